package lab_test

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestGuestFaults: each fault of a router shows in what its traffic or its counters do.
func TestGuestFaults(t *testing.T) {
	l, _ := upGuest(t, t.TempDir(), "forward", labtest.Guest(t))
	plant := func(t *testing.T, node, port, level string) {
		t.Helper()
		hold(t, l, record.Setting{Knob: "fault", Node: node, Port: port, Value: level})
	}
	grows := func(t *testing.T, what, count string, load record.Load) {
		t.Helper()
		before := number(t, l, count)
		err := tryOffer(t, l, load)
		after := number(t, l, count)
		if after <= before {
			t.Errorf("%s: got %v before the load and %v after (%v), want more", what, before, after, err)
		}
	}
	dropped := `tc -s qdisc show dev wan | awk '/dropped/ {gsub(",", "", $7); n += $7} END {print n+0}'`
	for _, f := range []struct{ level, what, count string }{
		{"loss=20%", "packets lost", dropped},
		{"link_rate=1M+tiny_queue=1", "packets without room", dropped},
		{"log_flood=on", "lines of the log", "dmesg | awk '/chokepoint / {n++} END {print n+0}'"},
		{"budget=1", "times out of budget", `printf '%d' 0x$(awk '{print $3; exit}' /proc/net/softnet_stat)`},
	} {
		t.Run(f.level, func(t *testing.T) {
			plant(t, "router", "", f.level)
			grows(t, f.what, f.count, datagrams(1))
		})
	}

	t.Run("cpu_hog", func(t *testing.T) {
		busy := `awk '/^cpu / {print $2}' /proc/stat`
		plant(t, "router", "", "cpu_hog=1")
		grows(t, "CPU time of programs", busy, datagrams(1))
		hold(t, l)
		left := number(t, l, "ps | awk '/[a]gent-child/ {n++} END {print n+0}'")
		if left != 0 {
			t.Errorf("processes that use the CPU: got %v once the fault is gone, want none", left)
		}
	})
	hold(t, l)
}
