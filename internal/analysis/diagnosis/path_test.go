package diagnosis

import (
	"math"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
)

// A stage has the median of its trials, and the first cause marks what it is about: a stage that was
// measured, a link, or else one of its own.
func TestPlaceMarksTheCause(t *testing.T) {
	trial := func(busy float64) []Stage {
		return []Stage{stageOf("client", "generator", "sender", .1, "", ""),
			stageOf("", "lan", "lan", math.NaN(), "", "no rate"), stageOf("router", "cpu0", "busiest core", busy, "", ""),
			stageOf("", "wan", "wan", .9, "", ""), stageOf("server", "generator", "receiver", .2, "", "")}
	}
	for _, tt := range []struct {
		name, class, node, element string
		want                       int // index of the marked stage, -1 = none
		label                      string
	}{
		{"a core", "softirq-one-core", "router", "cpu0", 2, "busiest core"},
		{"a link", "link-rate", "", "wan", 3, "wan"},
		{"a link by the port at its end", "link-rate", "router", "wan", 3, "wan"},
		{"what has no stage", "conntrack-full", "router", "conntrack", 3, "conntrack full"},
		{"the path as a whole", "random-loss", "", "", -1, ""},
	} {
		d := &Diagnosis{Class: tt.class, Causes: []Cause{{Class: tt.class, Node: tt.node, Element: tt.element,
			Facts: []evidence.Evidence{{Text: "why"}}}}}
		d.Place([][]Stage{trial(.9), trial(.5), trial(.7)})
		if u := d.Path[2].Utilisation; u == nil || *u != .7 {
			t.Errorf("%s: the core is at %v, want the median 0.7", tt.name, u)
		}
		got := -1
		for i, s := range d.Path {
			if s.Choke {
				got = i
			}
		}
		if got != tt.want || got >= 0 && d.Path[got].Label != tt.label {
			t.Errorf("%s: stage %d of %+v is marked, want %d %s", tt.name, got, d.Path, tt.want, tt.label)
		}
	}
}

// An answer that is not the first cause marks nothing.
func TestPlaceOfUnknown(t *testing.T) {
	d := &Diagnosis{Class: Unknown, Causes: []Cause{{Class: "shaper", Node: "router", Element: "cpu0"}}}
	d.Place([][]Stage{{stageOf("router", "cpu0", "busiest core", .3, "", "")}})
	if d.Path[0].Choke {
		t.Error("a part is marked though the cause is not known")
	}
}
