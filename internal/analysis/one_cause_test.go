package analysis

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// One effect has one cause in a document: what a policer of the path drops is not lost at random on another
// of its cells, unless that asks for less than passes, or its data goes the other way.
func TestOneEffectHasOneCause(t *testing.T) {
	cell := func(class string, bps float64, f record.Factors) Cell {
		rates := map[string]statistics.Value{metrics.Goodput: {Median: bps}}
		return Cell{
			Cell: metrics.Cell{Label: class, Factors: f, Metrics: rates},
			Diagnosis: &diagnosis.Diagnosis{
				Class:      class,
				Text:       class,
				Confidence: .9,
				Causes: []diagnosis.Cause{{
					Class:      class,
					Text:       class,
					Confidence: .9,
					Facts:      []evidence.Evidence{{Text: "9 % lost"}},
				}},
			},
		}
	}
	udp := func(rate string) record.Factors {
		f := quickFactors("protocol", "udp")
		f["rate"] = rate
		return f
	}
	policed := cell(diagnosis.Policer, 50e6, udp("flat"))
	for _, tt := range []struct {
		name string
		of   record.Factors
		want string
	}{
		{"flat out", quickFactors("direction", "up"), diagnosis.Policer},
		{"above the rate", udp("80M"), diagnosis.Policer},
		{"below the rate", udp("5M"), diagnosis.RandomLoss},
		{"the other way", quickFactors("direction", "down"), diagnosis.RandomLoss},
		{"another path", quickFactors("direction", "up", "tunnel", "wireguard"), diagnosis.RandomLoss},
	} {
		lossy := cell(diagnosis.RandomLoss, 20e6, tt.of)
		d := &Document{
			Cells: []Cell{lossy, policed},
			Run: RunHead{Procedure: record.Procedure{
				Loads: designOf(tt.of, policed.Factors).Loads,
			}},
		}
		d.oneCause()
		got := d.Cells[0].Diagnosis
		if got.Class != tt.want || !strings.Contains(got.Causes[0].Facts[0].Text, "9 %") {
			t.Errorf("%s: got %s by %+v, want %s", tt.name, got.Class, got.Causes[0].Facts, tt.want)
		}

		if tt.want == diagnosis.Policer && (len(got.Excluded) != 1 || got.Excluded[0].Class !=
			diagnosis.RandomLoss) {
			t.Errorf("%s: %+v is ruled out, want random loss", tt.name, got.Excluded)
		}
	}

	// What both ends tell of the path together explains its cells, too.
	d := &Document{Cells: []Cell{cell(diagnosis.RandomLoss, 20e6, quickFactors("direction", "up"))}}
	d.Paths = []diagnosis.Path{{
		Factors: d.Run.Path(d.Cells[0].Factors),
		Directions: []diagnosis.PathDirection{
			{Direction: "up", Diagnosis: *policed.Diagnosis}},
	}}
	if d.oneCause(); d.Cells[0].Diagnosis.Class != diagnosis.Policer {
		t.Errorf("beside a policed path: got %s, want a policer", d.Cells[0].Diagnosis.Class)
	}
}
