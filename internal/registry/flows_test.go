package registry_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/shortflow"
)

// TestFlowsCrossTheRouter: both kernels count as many connections as the engine, and only the listener's
// remembers them when they have ended.
func TestFlowsCrossTheRouter(t *testing.T) {
	l := labtest.Up(t, "forward", registry.LabParts())
	near, far := labtest.Ends(t, l, 0, 4)
	for _, opener := range []string{"near", "far"} {
		steady.Run(t, func(t *steady.Trial) {
			load := labtest.Loads()["tcp up"]
			load.Opener = opener
			load.Duration = 2 * time.Second
			load.FlowSize = "5000"
			load.ConnectionRate = 200
			nodes := []string{l.Topology.Near, l.Topology.Far}
			if opener == "far" {
				slices.Reverse(nodes)
			}

			before := [2]int{tcpCount(t, l, nodes[0], "ActiveOpens"), tcpCount(t, l, nodes[1],
				"PassiveOpens")}
			waiting := timeWait(t, l, nodes[0])
			got, err := shortflow.Flows{}.Offer(labtest.Context(t), near, far, load,
				&labtest.Conductor{Length: load.Duration, Drain: time.Second})
			must(t, err)
			s := got.ShortFlows
			opened := tcpCount(t, l, nodes[0], "ActiveOpens") - before[0]
			accepted := tcpCount(t, l, nodes[1],
				"PassiveOpens") - before[1]
			least := int(s.Completed + s.Carried)
			if s.Failed > 0 || opened < least || accepted != opened {
				t.Errorf("%s opens: %d connections opened and %d accepted, the engine says %+v", opener,
					opened, accepted, s)
			}

			if s.Completed < 300 || opened > least*3/2 {
				t.Timedf("%s opens: %d connections opened, the engine says %+v; want 400 and few more",
					opener, opened, s)
			}

			mine, other := timeWait(t, l, nodes[0])-waiting, timeWait(t, l, nodes[1])
			if mine > 0 ||
				other < least {
				t.Errorf("%s opens: the opener remembers %d connections and the listener %d, want 0 and %d",
					opener, mine, other, least)
			}
		})
	}
}

// tcpCount is a counter of TCP of a node.
func tcpCount(t testing.TB, l *lab.Lab, node, name string) int {
	t.Helper()
	var names []string
	for line := range strings.Lines(labtest.Exec(t, l, node, "cat", "/proc/net/snmp")) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0] != "Tcp:":
		case names == nil:
			names = f
		default:
			n, err := strconv.Atoi(f[slices.Index(names, name)])
			must(t, err)
			return n
		}
	}

	t.Fatalf("node %s counts no %s", node, name)
	return 0
}

// timeWait returns how many connections a node remembers that have ended.
func timeWait(t testing.TB, l *lab.Lab, node string) int {
	t.Helper()
	const inTimeWait = "06"
	n := 0
	for line := range strings.Lines(labtest.Exec(t, l, node, "cat", "/proc/net/tcp")) {
		f := strings.Fields(line)
		if len(f) > 3 && f[3] == inTimeWait {
			n++
		}
	}

	return n
}

// TestRequestsTakeAsLongAsTheRateSays: 100 kB of payload are 106 kB on the wire, of which all but the burst
// passes a shaper at 8 Mbit/s: 96 ms.
func TestRequestsTakeAsLongAsTheRateSays(t *testing.T) {
	l := labtest.Up(t, "forward", registry.LabParts())
	settle(t, l, record.Setting{
		Knob:  "queue",
		Node:  "router",
		Port:  "lan",
		Value: "tbf rate 8M burst 10k limit 400k",
	})
	near, far := labtest.Ends(t, l, 0, 4)
	load := labtest.Loads()["tcp up"]
	load.Direction = record.Both
	load.Duration = 3 * time.Second
	load.ResponseSize = 100_000
	steady.Run(t, func(t *steady.Trial) {
		got, err := shortflow.Requests{}.Offer(labtest.Context(t), near, far, load,
			&labtest.Conductor{Length: load.Duration})
		must(t, err)
		s := got.ShortFlows
		if s.Asked != s.Completed*100_100 {
			t.Fatalf("got %+v, want requests of 100,100 bytes there and back", s)
		}

		if s.Completed < 15 || s.Completed > 40 {
			t.Timedf("got %+v, want about 30 requests", s)
		}

		for _, c := range s.Classes {
			for _, n := range c.Times {
				took := time.Duration(n.FromNs)
				if took < 80*time.Millisecond ||
					took > 250*time.Millisecond {
					t.Timedf("%d responses took %v, want about 100 ms", n.Flows, took)
				}
			}
		}
	})
}
