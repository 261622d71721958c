package lab_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestWhatHappensInTheWindowIsNoticed: after a warm-up through WireGuard, the client's route goes past the
// tunnel as the window begins, so that its traffic is not encrypted; or a link of the router becomes
// narrower. The first trial is left alone, and valid as far as path and MTU go.
func TestWhatHappensInTheWindowIsNoticed(t *testing.T) {
	apart.Needs(t, "ip")
	t.Parallel()
	for name, tt := range map[string]struct {
		kind  string
		plant func(l *lab.Lab) (node string, script string)
	}{
		"past the tunnel": {evidence.ReasonNotInTunnel, func(l *lab.Lab) (string, string) {
			return "client", fmt.Sprintf("ip route replace %s via %s dev lan", l.Address(1, 1, 4),
				l.Addresses()["router"][0])
		}},
		"a narrower link": {evidence.ReasonWrongMTU, func(*lab.Lab) (string, string) {
			return "router", "ip link set wan mtu 1300"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each in a lab of its own
			c := newCampaign(t, &lab.Locals{}, 2, "streams: 1, tunnel: wireguard", 2*time.Second,
				2*time.Second)
			c.onPhase(record.PhaseWindow, 2, func() {
				at, script := tt.plant(c.lab)
				labtest.Exec(t, c.lab, at, strings.Fields(script)...)
			})
			if err := c.conclude(t); err != nil {
				t.Logf("close: %v", err) // what was set behind its back may be in the way
			}

			d := analysis.Derive(c.Run, c.trials)
			if len(d.Trials) != 2 || d.Trials[0].Path == nil || d.Trials[0].Path.CountedFrom == 0 {
				t.Fatalf("got %+v, want two trials with counters of the window", d.Trials)
			}

			for i, want := range []bool{false, true} {
				got := slices.ContainsFunc(d.Trials[i].Reasons, func(r evidence.Reason) bool {
					return r.Kind == tt.kind
				})
				if got != want {
					t.Errorf("trial %d: %v, counters %+v: %s is %v, want %v", i+1, d.Trials[i].Reasons,
						d.Trials[i].Path, tt.kind, got, want)
				}
			}
		})
	}
}
