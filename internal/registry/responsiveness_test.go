package registry_test

import (
	"slices"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/responsiveness"
)

// TestResponsivenessSeesAKnownQueue: 200 kB at 20 Mbit/s are 80 ms, which TCP keeps filled. Each kind of
// request has to wait there once on its way up.
func TestResponsivenessSeesAKnownQueue(t *testing.T) {
	l := labtest.Up(t, "forward", registry.LabParts())
	settle(t, l, record.Setting{
		Knob:  "queue",
		Node:  "router",
		Port:  "wan",
		Value: "tbf rate 20M burst 32k limit 200k",
	})
	near, far := labtest.Ends(t, l, 0, 4)
	load := labtest.Loads()["tcp up"]
	load.Streams = 4
	load.Duration = 3 * time.Second
	got, err := responsiveness.Engine{}.Offer(labtest.Context(t), near, far, load,
		&labtest.Conductor{Length: load.Duration})
	must(t, err)
	r := got.Responsiveness
	for _, kind := range []struct {
		name string
		ns   []int64
	}{{"handshakes", r.Connect}, {"foreign requests", r.Exchange}, {"loaded requests", r.Loaded}} {
		s := slices.Sorted(slices.Values(kind.ns))
		if len(s) < 10 {
			t.Errorf("%s: got %d, want 10 or more", kind.name, len(s))
			continue
		}

		median := time.Duration(s[len(s)/2])
		if median < 40*time.Millisecond ||
			median > 250*time.Millisecond {
			t.Errorf("%s took %v (median of %d), want about the 80 ms of the queue", kind.name, median,
				len(s))
		}
	}
}
