package lab_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// offer sends a load through the router.
func offer(t *testing.T, l *lab.Lab, load record.Load) {
	t.Helper()
	must(t, tryOffer(t, l, load))
}

func tryOffer(t *testing.T, l *lab.Lab, load record.Load) error {
	t.Helper()
	near, far := labtest.Ends(t, l, 0, 4)
	_, err := node.Engines()[0].Offer(labtest.Context(t), near, far, load,
		&labtest.Conductor{Length: load.Duration})
	return err
}

// datagrams are 2 Mbit/s of them.
func datagrams(flows int) record.Load {
	l := labtest.Loads()["udp 20M"]
	l.RateBps = 2e6
	l.PacketSize = 200
	l.Streams = flows
	l.Duration = 2 * time.Second
	return l
}

// ofRouter returns what a command prints in the router, as a shell has it.
func ofRouter(t *testing.T, l *lab.Lab, command string) string {
	t.Helper()
	return labtest.Exec(t, l, "router", "sh", "-c", command)
}

// number is the first number that a command prints.
func number(t *testing.T, l *lab.Lab, command string) float64 {
	t.Helper()
	text := ofRouter(t, l, command)
	for _, word := range strings.Fields(text) {
		if n, err := strconv.ParseFloat(word, 64); err == nil {
			return n
		}
	}

	t.Fatalf("%s: got %q, want a number", command, text)
	return 0
}

// ticks is the CPU time of the programs or kernel threads whose names begin so, in ticks.
const ticks = `t=0; for d in /proc/[0-9]*; do case "$(cat $d/comm 2>/dev/null)" in NAME*) ` +
	`set -- $(sed 's/.*) //' $d/stat); t=$((t+${12}+${13}));; esac; done; echo $t`

// TestGuestEffects: settings of a router with a kernel of its own change what its traffic or its counters
// do, and not only what is read back.
func TestGuestEffects(t *testing.T) {
	l, _ := upGuest(t, t.TempDir(), "forward", labtest.Guest(t))
	set := func(knob, value string) {
		t.Helper()
		hold(t, l, record.Setting{Knob: knob, Node: "router", Value: value})
	}
	t.Run("napi_threaded", func(t *testing.T) {
		set("napi_threaded", "on")
		count := strings.ReplaceAll(ticks, "NAME", "napi/")
		before := number(t, l, count)
		offer(t, l, datagrams(1))
		after := number(t, l, count)
		if after <= before {
			t.Errorf("threads of NAPI had %v ticks of CPU time before the load and %v after, want more",
				before, after)
		}
	})
	t.Run("flow_export", func(t *testing.T) {
		set("flow_export", "softflowd")
		offer(t, l, datagrams(5))
		sent := func() float64 { return number(t, l, `awk '/^Udp: [0-9]/ {print $5}' /proc/net/snmp`) }
		before := sent()
		hold(t, l) // which ends it, and so has it export what it knows
		after := sent()
		if after <= before {
			t.Errorf("datagrams sent by the router: got %v before its flows were exported, %v after", before,
				after)
		}
	})
	t.Run("flowtable", func(t *testing.T) {
		set("flowtable", "on")
		load := datagrams(1)
		done := make(chan string, 1)
		go func() {
			time.Sleep(time.Second)
			done <- ofRouter(t, l, "conntrack -L -p udp 2>/dev/null; cat /proc/net/nf_conntrack 2>/dev/null")
		}()
		offer(t, l, load)
		table := <-done
		if !strings.Contains(table, "OFFLOAD") {
			t.Errorf("tracked connections: got %q, want one that is offloaded", table)
		}
	})
	t.Run("conntrack_max", func(t *testing.T) {
		hold(t, l, record.Setting{Knob: "conntrack_max", Node: "router", Value: "20"},
			record.Setting{Knob: "firewall", Node: "router", Value: "0 stateful"})
		err := tryOffer(t, l, datagrams(100)) // each has to be answered before the load
		n := number(t, l, "cat /proc/sys/net/netfilter/nf_conntrack_count")
		if n > 20 || err == nil {
			t.Errorf("of 100 flows all got through (%v), and %v are tracked, want 20 at most", err, n)
		}
	})
	t.Run("txqueuelen", func(t *testing.T) {
		set("txqueuelen", "7")
		queue := ofRouter(t, l, "tc qdisc replace dev wan root pfifo && tc qdisc show dev wan; "+
			"tc qdisc del dev wan root")
		if !strings.Contains(queue, "limit 7p") {
			t.Errorf("a queue as long as its device's: got %q, want 7 packets", queue)
		}
	})
	t.Run("idle_policies", func(t *testing.T) {
		set("idle_policies", "20")
		n := number(t, l, "ip xfrm policy | grep -c '^src'")
		if n < 40 {
			t.Errorf("policies: got %v, want 20 in each direction", n)
		}
	})
	t.Run("idle_tunnels", func(t *testing.T) {
		set("idle_tunnels", "4")
		n := number(t, l, "ip link show up type wireguard | grep -c cpidle")
		if n != 4 {
			t.Errorf("tunnels: got %v, want 4", n)
		}
	})
	hold(t, l)
}

// TestGuestCoreEffects: with two processors, the one that a setting names does the work.
func TestGuestCoreEffects(t *testing.T) {
	guest := labtest.Guest(t)
	guest.CPUs = 2
	l, _ := upGuest(t, t.TempDir(), "forward", guest)
	grew := func(count string) float64 {
		t.Helper()
		before := number(t, l, count)
		offer(t, l, datagrams(1))
		return number(t, l, count) - before
	}
	interrupts := func(cpu string) string {
		return `awk '/virtio.*(input|output)/ {n += $` + cpu + `} END {print n+0}' /proc/interrupts`
	}
	t.Run("irq_affinity", func(t *testing.T) {
		for value, columns := range map[string][2]string{"0": {"2", "3"}, "1": {"3", "2"}} {
			hold(t, l, record.Setting{Knob: "irq_affinity", Node: "router", Value: value})
			here := grew(interrupts(columns[0]))
			there := grew(interrupts(columns[1]))
			if here == 0 && there == 0 {
				t.Skip("skip: the ports' interrupts are not named here")
			}

			if here < 10*there+10 {
				t.Errorf("irq_affinity=%s: %v interrupts of the ports there and %v on the other, want "+
					"nearly all there", value, here, there)
			}
		}
	})
	t.Run("cpus", func(t *testing.T) {
		hold(t, l, record.Setting{Knob: "irq_affinity", Node: "router", Value: "0"},
			record.Setting{Knob: "cpus", Node: "router", Value: "1"})
		// received_rps of the second processor is the tenth field of its line, in hexadecimal.
		n := grew(`printf '%d' 0x$(awk 'NR == 2 {print $10}' /proc/net/softnet_stat)`)
		if n < 100 {
			t.Errorf("packets steered to the second processor: got %v, want those of the load", n)
		}
	})
	t.Run("cpu_count", func(t *testing.T) {
		// Two loops of two seconds keep both processors busy, with what the shell itself can.
		const loops = `read up rest </proc/uptime; end=$((${up%.*} + 3)); loop() { while read up rest ` +
			`</proc/uptime; [ "${up%.*}" -lt $end ]; do :; done; }; loop & loop & wait`
		// What the second processor was busy for in its life, in ticks; it has no line while it is off.
		const busy = `awk '$1 == "cpu1" {print $2+$4+$7+$8}' /proc/stat`
		hold(t, l)
		before := number(t, l, busy)
		ofRouter(t, l, loops)
		both := number(t, l, busy)
		if both-before < 50 {
			t.Fatalf("ticks of the second of two processors: got %v more, want those of a loop", both-before)
		}

		hold(t, l, record.Setting{Knob: "cpu_count", Node: "router", Value: "1"})
		ofRouter(t, l, loops)
		offer(t, l, datagrams(1))
		hold(t, l)
		one := number(t, l, busy) - both
		if one > (both-before)/4 {
			t.Errorf("ticks of a processor that was off: got %v more under load, %v while it worked; want "+
				"hardly any", one, both-before)
		}
	})
	hold(t, l)
}
