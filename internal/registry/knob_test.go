package registry_test

import (
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// settle makes settings hold, or skips the test if one cannot be made here.
func settle(t testing.TB, l *lab.Lab, want ...record.Setting) {
	t.Helper()
	for _, s := range want {
		a := l.CheckSetting(labtest.Context(t), s)
		if a.State == check.No {
			t.Skip("skip: this kernel or user lacks the setting: " + a.Reason)
		}
	}

	must(t, l.Reconcile(labtest.Context(t), want))
}

func TestLinkMTUBoundsThePath(t *testing.T) {
	t.Parallel()
	l := labtest.Up(t, "forward", registry.LabParts())
	settle(t, l, record.Setting{Knob: "link_mtu", Node: "router", Port: "wan", Value: "1300"})
	for ip := 4; ip <= 6; ip += 2 {
		labtest.WantReach(t, l, 0, ip, 1301, 1300)
	}
}

func TestIPForwardDecidesWhatPasses(t *testing.T) {
	t.Parallel()
	l := labtest.Up(t, "forward", registry.LabParts())
	for _, tt := range []struct {
		level  string
		v4, v6 bool
	}{{"on", true, true}, {"ipv4", true, false}, {"ipv6", false, true}, {"off", false, false},
		{"on", true, true}} {
		t.Run("ip_forward="+tt.level, func(t *testing.T) {
			settle(t, l, record.Setting{Knob: "ip_forward", Node: "router", Value: tt.level})
			for ip, want := range map[int]bool{4: tt.v4, 6: tt.v6} {
				beyond := 100
				sizes := []int(nil)
				if want {
					beyond = 0
					sizes = []int{100}
				}

				labtest.WantReach(t, l, 0, ip, beyond, sizes...)
			}
		})
	}
}

// TestVLANTagsBothEnds: with the same tag on every node packets pass; with the tag missing on one they do
// not.
func TestVLANTagsBothEnds(t *testing.T) {
	t.Parallel()
	l := labtest.Up(t, "forward", registry.LabParts())
	tag := func(nodes ...string) []record.Setting {
		var out []record.Setting
		for _, n := range nodes {
			out = append(out, record.Setting{Knob: "vlan", Node: n, Value: "10"})
		}
		return out
	}
	settle(t, l, tag("client", "router", "server")...)
	for ip := 4; ip <= 6; ip += 2 {
		labtest.WantReach(t, l, 0, ip, 0, 100, 1500)
	}

	settle(t, l, tag("client", "server")...)
	labtest.WantReach(t, l, 0, 4, 100)
	settle(t, l)
	labtest.WantReach(t, l, 0, 4, 0, 1500)
}

// TestQueueShapes: a token bucket holds its rate, and what it drops is in the accounts of the load.
func TestQueueShapes(t *testing.T) {
	l := labtest.Up(t, "forward", registry.LabParts())
	settle(t, l, record.Setting{
		Knob:  "queue",
		Node:  "router",
		Port:  "wan",
		Value: "tbf rate 20M burst 8k limit 16k",
	})
	near, far := labtest.Ends(t, l, 0, 4)
	load := labtest.Loads()["udp 20M"]
	load.RateBps = 60e6
	load.PacketSize = 1000
	load.Duration = 500 * time.Millisecond
	steady.Run(t, func(t *steady.Trial) {
		got, err := node.Engines()[0].Offer(labtest.Context(t), near, far, load,
			&labtest.Conductor{Length: load.Duration})
		must(t, err)
		p := got.Flows[0].Packets
		if p.Sent != p.Received+p.Lost {
			t.Errorf("sent %d, received %d, lost %d; want sent = received + lost", p.Sent, p.Received, p.Lost)
		}

		rate := float64(p.Received) * float64(p.Size) * 8e9 / float64(got.Flows[0].ReceiverNs)
		if rate < 15e6 || rate > 22e6 || p.Lost == 0 {
			t.Timedf("60 Mbit/s into 20 Mbit/s: got %.1f Mbit/s and %d packets lost, want about 20 and "+
				"some lost", rate/1e6, p.Lost)
		}
	})
}
