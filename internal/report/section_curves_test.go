package report

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
)

// The colours of the axis' own levels are no line's, and what is not drawn is said.
func TestCurvesOfManyLines(t *testing.T) {
	of := func(sizes, streams int) *analysis.Document {
		var plans []cellPlan
		for i := range sizes {
			for n := range streams {
				f := base("protocol", "udp", "packet_size", fmt.Sprint(64<<i))
				if streams > 1 {
					f["streams"] = fmt.Sprint(n + 1)
				}

				plans = append(plans, cellPlan{factors: f, pps: 1e5, bps: 8e8, p50: 1e6, p99: 2e6, idle: 1e4})
			}
		}

		d := documentOf(plans, 2)
		d.Cells[0].Grade = evidence.GradeSuspect
		return d
	}
	figure := func(d *analysis.Document, id string) (f Figure) {
		var s Section
		curveSection(newView(d), &s)
		for _, b := range s.Blocks {
			if x, ok := b.(Figure); ok && x.ID == id {
				f = x
			}
		}

		return f
	}
	f := figure(of(3, 1), "packet_rate_pps-by-packet_size")
	l := f.Draw.(curves).Lines
	if len(l) != 1 || !strings.HasPrefix(l[0].Class, "c0") ||
		!l[0].Points[0].Doubt {
		t.Errorf("lines %+v, want a grey one whose first point is in doubt", l)
	}

	if len(f.Cells) != 3 || !strings.Contains(fmt.Sprint(f.Legend), suspectWord) {
		t.Errorf("it shows %d cells, legend %v", len(f.Cells), f.Legend)
	}

	f = figure(of(3, 10), "packet_rate_pps-by-packet_size")
	want := "2 further lines are not drawn"
	if !strings.Contains(f.Caption, want) {
		t.Errorf("caption %q lacks %q", f.Caption, want)
	}
}

// A factor that follows from that of the axis does not tear the line apart; one that varies by itself does.
func TestCurvesOfDerivedFactors(t *testing.T) {
	frames := []cellPlan{}
	links := []cellPlan{}
	both := []cellPlan{}
	for i, n := range []int{128, 512, 1518} {
		pps := 1e5 / float64(i+1)
		frames = append(frames, cellPlan{
			factors: base("protocol", "udp", "frame_size", fmt.Sprint(n),
				"packet_size", fmt.Sprint(n-18)),
			pps:  pps,
			bps:  pps * 8e3,
			p50:  1e6,
			p99:  2e6,
			idle: 1e4,
		})
	}

	for i, n := range []int{1500, 4000, 9000} {
		f := base("tunnel", "wireguard", "link_mtu", fmt.Sprint(n), "mtu", fmt.Sprint(n-80))
		links = append(links, cellPlan{factors: f, bps: 1e9 * float64(i+1), p50: 1e6, p99: 2e6, idle: 1e4})
		f = maps.Clone(f)
		f["mtu"] = "1280"
		both = append(both, links[i], cellPlan{factors: f, bps: 9e8, p50: 1e6, p99: 2e6, idle: 1e4})
	}

	for _, test := range []struct {
		name, figure string
		plans        []cellPlan
		want         []int // points of each line
	}{
		{"frame sizes", "packet_rate_pps-by-frame_size", frames, []int{3}},
		{"their packets", "packet_rate_pps-by-packet_size", frames, nil},
		{"link MTU in a tunnel", "goodput_bps-by-link_mtu", links, []int{3}},
		{"its inner MTU", "goodput_bps-by-mtu", links, []int{3}},
		{"link MTU and inner MTU", "goodput_bps-by-link_mtu", both, []int{3}},
	} {
		var got []int
		var s Section
		curveSection(newView(documentOf(test.plans, 2)), &s)
		for _, b := range s.Blocks {
			if f, ok := b.(Figure); ok && f.ID == test.figure {
				for _, l := range f.Draw.(curves).Lines {
					got = append(got, len(l.Points))
				}
			}
		}

		diff := cmp.Diff(test.want, got)
		if diff != "" {
			t.Errorf("%s (-want +got)\n%s", test.name, diff)
		}
	}
}

// TestCurveAxis: levels lie where their numbers are, and each line has a name, also that of cells in which
// nothing is set.
func TestCurveAxis(t *testing.T) {
	var plans []cellPlan
	for _, nat := range []string{"off", "masquerade"} {
		for _, mtu := range []string{"1280", "1360", "1420"} {
			f := base("tunnel", "wireguard", "mtu", mtu, "nat", nat)
			plans = append(plans, cellPlan{factors: f, bps: 8e8, p50: 1e6, p99: 2e6, idle: 1e4})
		}
	}

	var s Section
	curveSection(newView(documentOf(plans, 2)), &s)
	f := s.Blocks[0].(Figure)
	got := each(f.Legend, func(l LegendItem) string { return l.Text })
	if diff := cmp.Diff([]string{"no NAT", "NAT masquerade"}, got); diff != "" {
		t.Errorf("legend (-want +got)\n%s", diff)
	}

	for _, test := range []struct {
		levels []float64
		want   []float64
	}{
		{[]float64{1280, 1360, 1420}, []float64{0, 80.0 / 140, 1}},
		{[]float64{1, 2, 8}, []float64{0, 1.0 / 3, 1}},
		{[]float64{0, 1, 8}, []float64{0, 1.0 / 8, 1}},
	} {
		at, _ := curves{X: test.levels}.scale(0, 1)
		for i, level := range test.levels {
			if got := at(level); math.Abs(got-test.want[i]) > 1e-9 {
				t.Errorf("%v of %v: got %v, want %v", level, test.levels, got, test.want[i])
			}
		}
	}
}
