package knob

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// passed returns how many bytes leave the router towards the server while the client sends 1000-byte
// datagrams at 40 Mbit/s for half a second, which is 2.5 MB, and how long that took.
func passed(t *testing.T, r route) (bytes float64, took time.Duration) {
	t.Helper()
	out := r.dial(t)
	defer out.Close()
	before := r.router.counters(t, "wan")
	began := time.Now()
	for sent := 0; sent < 2500; {
		for due := int(time.Since(began) / (200 * time.Microsecond)); sent < min(due, 2500); sent++ {
			_, _ = out.Write(make([]byte, 972)) // nobody listens, which the server may say
		}

		time.Sleep(time.Millisecond)
	}

	took = time.Since(began)
	return float64(r.router.counters(t, "wan").TxBytes - before.TxBytes), took
}

// TestPolicerAndShapeHoldTheirRate: what passes is the rate and a bucket of 128 KiB; without, everything
// does.
func TestPolicerAndShapeHoldTheirRate(t *testing.T) {
	for _, k := range []Knob{Policer(), Shape()} {
		t.Run(k.Name(), func(t *testing.T) {
			r := newRoute(t)
			for _, level := range []State{"off", "8M", "off"} {
				var lacks error
				r.router.do(t, func() error {
					err := k.Apply(context.Background(), r.place(), level)
					if errors.Is(err, host.ErrUnsupported) {
						lacks, err = err, nil
					}
					return err
				})
				if lacks != nil {
					t.Skipf("skip: this kernel or user lacks the setting: %v", lacks)
				}

				got, took := passed(t, r)
				most := 8e6/8*took.Seconds() + 128<<10
				if level == "8M" && (got > 1.1*most || got < .5*most) || level == "off" && got < 2.3e6 {
					t.Errorf("%s=%s: %.0f bytes passed in %v, want at most %.0f of a rate, and 2.5 MB "+
						"without", k.Name(), level, got, took, most)
				}
			}
		})
	}
}

// TestSysctlDecidesWhatPasses: a kernel setting by its name has the effect of that name.
func TestSysctlDecidesWhatPasses(t *testing.T) {
	r := newRoute(t)
	k := Sysctl()
	for level, patience := range map[string]time.Duration{"0": stays, "1": arrives} {
		p := r.place()
		p.Sysctls = OfNamespace
		r.router.set(t, k, p, State("net.ipv4.conf.all.forwarding="+level))
		arrived := r.outward(t, patience).IsValid()
		if arrived != (level == "1") {
			t.Errorf("forwarding=%s: a datagram arrives: %v", level, arrived)
		}
	}
}
