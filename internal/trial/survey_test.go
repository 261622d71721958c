package trial

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestUncounted: what a session of ours moves is no proof that the survey's packets passed.
func TestUncounted(t *testing.T) {
	got := agent.Reached{Back: make([]int, surveyPackets), Bytes: surveyPackets * 1472}
	for _, x := range []struct {
		packets, bytes uint64
		passed         bool
	}{{surveyPackets, surveyPackets * 1514, true}, {surveyPackets + 30, 12_000, false}, {12, 4_000, false}} {
		var moved []record.CounterMove
		for counter, grown := range map[string]uint64{"rx_packets": x.packets, "tx_packets": x.packets,
			"rx_bytes": x.bytes, "tx_bytes": x.bytes} {
			moved = append(moved, record.CounterMove{Counter: counter, Before: 1000, After: 1000 + grown})
		}
		if err := uncounted(moved, got); (err == nil) != x.passed {
			t.Errorf("%d packets of %d bytes: %v", x.packets, x.bytes, err)
		}
	}
}

// TestMeasurable: one version of IP is enough, if it has a path and that does not pass the router by.
func TestMeasurable(t *testing.T) {
	for _, x := range []struct {
		machine, four, over4, six, over6 check.State
		want                             bool
	}{
		{check.Yes, check.Yes, check.Yes, check.No, check.Unknown, true},
		{check.Yes, check.Yes, check.Unknown, check.No, check.Unknown, true},
		{check.Yes, check.Yes, check.No, check.Yes, check.Yes, true},
		{check.Yes, check.No, check.Unknown, check.No, check.Unknown, false},
		{check.Yes, check.Yes, check.No, check.No, check.Unknown, false},
		{check.No, check.Yes, check.Yes, check.Yes, check.Yes, false},
	} {
		all := []Capability{{"machine", "router", check.Answer{State: x.machine}}}
		for name, s := range map[string][2]check.State{"IPv4": {x.four, x.over4}, "IPv6": {x.six, x.over6}} {
			all = append(all, Capability{areaPath, name, check.Answer{State: s[0]}})
			if s[0] == check.Yes {
				all = append(all, Capability{areaPath, overRouter + name, check.Answer{State: s[1]}})
			}
		}
		if got := Measurable(all); got != x.want {
			t.Errorf("%+v: %v", x, got)
		}
	}
}
