package diagnosis

import (
	"math"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// A stage has the median of its trials, and the first cause marks what it is about: a stage that was
// measured, a link, or else one of its own.
func TestPlaceMarksTheCause(t *testing.T) {
	trial := func(busy float64) []Stage {
		return []Stage{stageAt(place{"client", "generator"}, "sender", .1, ""),
			unknownStage(place{Element: "lan"}, "lan", "no rate"),
			stageAt(place{"router", "cpu0"}, "busiest core", busy, ""),
			stageAt(place{Element: "wan"}, "wan", .9, ""),
			stageAt(place{"server", "generator"}, "receiver", .2, "")}
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
		d := &Diagnosis{
			Class: tt.class,
			Causes: []Cause{{
				Class:   tt.class,
				Node:    tt.node,
				Element: tt.element,
				Facts:   []evidence.Evidence{{Text: "why"}},
			}},
		}
		d.Place([][]Stage{trial(.9), trial(.5), trial(.7)})
		u := d.Path[2].Utilisation
		if u == nil || *u != .7 {
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
	d.Place([][]Stage{{stageAt(place{"router", "cpu0"}, "busiest core", .3, "")}})
	if d.Path[0].Choke {
		t.Error("a part is marked though the cause is not known")
	}
}

// TestUnclassifiedWork: work whose kind a router does not tell makes its core busy, and says nothing of
// softirqs, neither for nor against.
func TestUnclassifiedWork(t *testing.T) {
	table := record.NewTable("cpu0/idle_ns", "cpu0/irq_ns", "cpu0/unclassified_ns", "cpu1/idle_ns",
		"cpu1/unclassified_ns")
	for i := range int64(11) {
		s := float64(i) * 1e9
		table.Append(i*1e9, .05*s, .1*s, .85*s, .9*s, .1*s)
	}

	samples := []record.Samples{{Probe: "cpu", Table: table}}
	o := &Observation{
		Run: &record.Run{},
		Trial: &record.Trial{
			Window: record.Window{Start: 1e9, End: 9e9},
			Nodes:  map[string]record.NodeData{"router": {Samples: samples}},
		},
	}
	cores := o.Cores("router")
	if len(cores) != 2 || math.Abs(cores[0].Busy-.95) > .01 || math.Abs(cores[0].Unclassified-.85) > .01 ||
		cores[0].Softirq != 0 {
		t.Fatalf("got %+v, want a core that is busy for 95 %%", cores)
	}

	if got := softirqWork(cores[0].IRQ, cores[0].Unclassified, cores[0].Busy); got.Part() != 0 {
		t.Errorf("unclassified work counts %v against softirqs, want 0", got.Part())
	}

	if got := softirqWork(.1, .1, .95); got.Part() >= 0 {
		t.Errorf("work that is told counts %v, want less than 0", got.Part())
	}

	for _, s := range o.coreStages("router") {
		if s.Label == "softirq" && (s.Utilisation != nil || s.Why == "") {
			t.Errorf("got a stage of softirqs that was measured: %+v", s)
		}
	}
}

// TestEqualCoresDiffer: the busiest and the least busy of equally busy cores are two.
func TestEqualCoresDiffer(t *testing.T) {
	table := record.NewTable("cpu0/idle_ns", "cpu0/user_ns", "cpu1/idle_ns", "cpu1/user_ns")
	for i := range int64(3) {
		table.Append(i*1e9, 0, float64(i)*1e9, 0, float64(i)*1e9)
	}

	samples := []record.Samples{{Probe: "cpu", Table: table}}
	o := &Observation{
		Run: &record.Run{},
		Trial: &record.Trial{
			Window: record.Window{End: 2e9},
			Nodes:  map[string]record.NodeData{"router": {Samples: samples}},
		},
	}
	s, why := o.systemAt("router")
	if why != "" || s.Full.Name != "cpu0" || s.Slack.Name != "cpu1" {
		t.Errorf("got %s and %s (%s), want both cores", s.Full, s.Slack, why)
	}
}
