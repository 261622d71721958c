package analysis

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// sharesRun is a run with cells of these rates, with two blocks.
func sharesRun(cells []record.Factors, rates []float64) (record.Run, []record.Trial) {
	s := newSynthetic(3)
	var trials []record.Trial
	for block := 1; block <= 2; block++ {
		for i, f := range cells {
			trials = append(trials, s.trial(f, block, len(cells)*block+i, rates[i]))
		}
	}
	return syntheticRun(cells...), trials
}

// TestSharesOfBaselineAndMTU: a cell's share is of the same load without a tunnel, or without what else it
// differs in, and of the default MTU where several were measured. Another load is no baseline.
func TestSharesOfBaselineAndMTU(t *testing.T) {
	wireguard := func(mtu string) record.Factors { return quickFactors("tunnel", "wireguard", "mtu", mtu) }
	cells := []record.Factors{quickFactors(), quickFactors("streams", "4"), quickFactors("nat", "masquerade"),
		wireguard("1420"), wireguard("1280")}
	run, trials := sharesRun(cells, []float64{4e9, 8e9, 3e9, 2e9, 1.8e9})
	run.Design.Baseline = quickFactors() // differs from four streams in the load
	d := Derive(run, trials)
	for i, want := range []struct {
		baseline, mtu float64
		of            string
	}{
		{},
		{},
		{baseline: .75, of: "same without address translation"},
		{baseline: .5, mtu: 1, of: "same without tunnel"},
		{baseline: .45, mtu: .9, of: "same without tunnel"},
	} {
		c := d.Cells[i]
		check := func(what string, got *Share, want float64) {
			t.Helper()
			switch {
			case want == 0 && got != nil:
				t.Errorf("%s: %s: got %+v, want none", c.Label, what, got)
			case want > 0 && (got == nil || math.Abs(got.Ratio/want-1) > .02):
				t.Errorf("%s: %s: got %+v, want %g", c.Label, what, got, want)
			}
		}
		check("of baseline", c.OfBaseline, want.baseline)
		check("of default MTU", c.OfDefaultMTU, want.mtu)
		if c.OfBaseline != nil && c.OfBaseline.Of != want.of {
			t.Errorf("%s: of %q, want %q", c.Label, c.OfBaseline.Of, want.of)
		}

		if c.OfDefaultMTU != nil && c.OfDefaultMTU.Of != "default MTU 1420" {
			t.Errorf("%s: of %q", c.Label, c.OfDefaultMTU.Of)
		}
	}
}

// TestUses: the slowest cell bounds the line, and what was not measured is said not to be.
func TestUses(t *testing.T) {
	cells := []record.Factors{quickFactors(), quickFactors("direction", "down"),
		quickFactors("tunnel", "wireguard"), quickFactors("protocol", "udp", "packet_size", "64")}
	run, trials := sharesRun(cells, []float64{941e6, 470e6, 300e6, 100e6})
	got := map[string]UseCase{}
	for _, u := range Derive(run, trials).Uses {
		got[u.Use] = u
		if u.Rule == "" || u.Measured() != (u.Verdict != "not measured") {
			t.Errorf("%+v", u)
		}
	}

	line := got["Internet line, routed"]
	if line.Cell["direction"] != "down" || line.LineBps < 470e6/.96 || line.LineBps > 470e6/.93 {
		t.Errorf("line: %+v, want the one that 470 Mbit/s down fill", line)
	}

	vpn := got["Working from home by VPN, WireGuard"]
	if vpn.Verdict != "enough for lines up to 333 Mbit/s" ||
		!strings.HasSuffix(vpn.Because, ", the only direction measured: up") {
		t.Errorf("VPN: %+v", vpn)
	}

	for _, use := range []string{"Internet line behind NAT", "Internet line, IPv6", "Many short connections",
		"Full load for hours"} {
		if u, ok := got[use]; !ok || u.Measured() {
			t.Errorf("%s: %+v, want it not measured", use, u)
		}
	}

	if strings.Contains(line.Because, "only direction") {
		t.Errorf("line: %+v, want both directions", line)
	}

	if u := got["Many small packets"]; !u.Measured() || u.Cell["packet_size"] != "64" {
		t.Errorf("packets: %+v", u)
	}
}

// TestUsesClaimNoMoreThanWasMeasured: a soak of few windows is not steady, and the latency is that of a valid
// cell, or of one in which the load added more than can be measured.
func TestUsesClaimNoMoreThanWasMeasured(t *testing.T) {
	added := []float64{9e6, 5e6, 40e6}
	var d Document
	var path UnderLoad
	path.Directions = map[string]LoadedPath{}
	for i, direction := range []string{record.Up, record.Down, record.Both} {
		f := quickFactors("direction", direction)
		d.Cells = append(d.Cells, Cell{Cell: metrics.Cell{Factors: f, Grade: evidence.GradeValid}})
		path.Directions[direction] = LoadedPath{
			Cell:         f,
			AddedNs:      &added[i],
			AddedInNoise: direction == record.Up,
			Grade:        "A",
		}
	}

	d.Cells[2].Grade = evidence.GradeSuspect
	d.UnderLoad = []UnderLoad{path}
	u := d.latencyUse()
	if u.Because != "down: load adds 5.00 ms, grade A" || u.Grade != evidence.GradeValid {
		t.Errorf("latency: %+v, want that of the valid cell with a measurable delay", u)
	}

	d.Soaks = []Soak{{Windows: 3, Hours: 1, Missing: []string{"trends: 3 windows are fewer than 6"}}}
	if u := d.hoursUse(); u.Verdict != "cannot tell" || !u.Measured() {
		t.Errorf("soak: %+v, want no verdict", u)
	}
}

// TestASlowDirectionIsNotLeftOut: a suspect cell decides where its direction has no valid one.
func TestASlowDirectionIsNotLeftOut(t *testing.T) {
	run, trials := sharesRun([]record.Factors{quickFactors(), quickFactors("direction", "down")},
		[]float64{941e6, 300e6})
	d := Derive(run, trials)
	for i := range d.Cells {
		d.Cells[i].Grade = evidence.GradeValid
		if factor.Direction.Is(d.Cells[i].Factors, record.Down) {
			d.Cells[i].Grade = evidence.GradeSuspect
		}
	}

	u := UsesOf(d)[0]
	if u.Cell["direction"] != record.Down || u.Grade != evidence.GradeSuspect || u.LineBps > 320e6 {
		t.Errorf("line: %+v, want the one that the suspect direction fills", u)
	}
}

// TestDefaultMTUDecides: a user has the default MTU, whatever a wrong one carried. Where it has no number the
// verdict says so.
func TestDefaultMTUDecides(t *testing.T) {
	wireguard := func(mtu string) record.Factors { return quickFactors("tunnel", "wireguard", "mtu", mtu) }
	for _, test := range []struct {
		mtus  []string
		rates []float64
		want  string
		says  bool
	}{
		{[]string{"1280", "1420", "1500"}, []float64{300e6, 400e6, 4e6}, "1420", false},
		{[]string{"1280", "1500"}, []float64{300e6, 4e6}, "1500", true},
	} {
		run, trials := sharesRun(distinctFactors(test.mtus, wireguard), test.rates)
		for _, u := range Derive(run, trials).Uses {
			if u.LineBps == 0 {
				continue
			}

			says := strings.Contains(u.Because, "without a number at the default MTU 1420")
			if u.Cell["mtu"] != test.want || says != test.says {
				t.Errorf("MTUs %q: %+v, want that at %s", test.mtus, u, test.want)
			}
		}
	}
}

// TestUsualLinkMTUDecides: where every cell sets the MTU of the links, a user has 1500.
func TestUsualLinkMTUDecides(t *testing.T) {
	link := func(mtu string) record.Factors { return quickFactors("link_mtu", mtu) }
	cells := distinctFactors([]string{"1300", "1500", "9000"}, link)
	run, trials := sharesRun(cells, []float64{4e6, 400e6, 900e6})
	for _, u := range Derive(run, trials).Uses {
		if u.LineBps > 0 && u.Cell["link_mtu"] != "1500" {
			t.Errorf("%+v, want that at 1500", u)
		}
	}
}

func distinctFactors(levels []string, of func(string) record.Factors) (out []record.Factors) {
	for _, level := range levels {
		out = append(out, of(level))
	}
	return out
}

// TestSuspectCellsBoundAVerdict: the verdict that a suspect cell decides rests on the bound of its interval,
// and says so; one suspect run decides nothing.
func TestSuspectCellsBoundAVerdict(t *testing.T) {
	cells := []record.Factors{quickFactors(), quickFactors("protocol", "udp", "packet_size", "64")}
	run, trials := sharesRun(cells, []float64{400e6, 100e6})
	for _, n := range []int{2, 1} {
		d := Derive(run, trials[:n*len(cells)])
		for i := range d.Cells {
			c := &d.Cells[i]
			c.Grade = evidence.GradeSuspect
			c.Reasons = []evidence.Reason{{Kind: "background-load"}}
			for name, v := range c.Metrics {
				v.Low = v.Median / 2
				v.High = 1e9 // ns
				c.Metrics[name] = v
			}
		}

		for _, u := range UsesOf(d) {
			switch {
			case !u.Measured():
			case !strings.Contains(u.Because, "suspect (background-load): "):
				t.Errorf("%d runs: %+v, want it to say that the cell is suspect", n, u)
			case n == 1 && u.Verdict != "cannot tell":
				t.Errorf("one suspect run: %+v, want no verdict", u)
			case n > 1 && !strings.Contains(u.Because, " bound, "):
				t.Errorf("%+v, want it to name the bound", u)
			case n > 1 && u.LineBps > 0 && (u.LineBps < 200e6 || u.LineBps > 215e6):
				t.Errorf("%+v, want the line that half of 400 Mbit/s fills", u)
			}
		}
	}
}

// TestUsesOfOtherPaths: NAT that was found between two machines counts as NAT, and an emulated router's speed
// is none.
func TestUsesOfOtherPaths(t *testing.T) {
	run, trials := sharesRun([]record.Factors{quickFactors()}, []float64{941e6})
	d := Derive(run, trials)
	measured := func() (out []string) {
		for _, u := range UsesOf(d) {
			if u.LineBps > 0 {
				out = append(out, u.Use)
			}
		}
		return out
	}
	if got := measured(); !slices.Equal(got, []string{"Internet line, routed"}) {
		t.Errorf("got %q", got)
	}

	d.Ways = []Way{{IP: 4, NAT: "near"}, {IP: 6, NAT: "none"}}
	if got := measured(); !slices.Equal(got, []string{"Internet line behind NAT"}) {
		t.Errorf("behind NAT: got %q", got)
	}

	d.Caveats = []record.Caveat{{Kind: "emulated"}}
	if got := measured(); len(got) > 0 {
		t.Errorf("emulated: got %q", got)
	}
}
