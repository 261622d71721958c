package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// cellsOfPlan makes a view of cells of TCP and UDP with and without a tunnel, as a plan would list them.
func cellsOfPlan() *view {
	d := &analysis.Document{}
	add := func(label string, f record.Factors) {
		d.Cells = append(d.Cells, analysis.Cell{Cell: metrics.Cell{Factors: f, Label: label}})
	}
	for _, tunnel := range []string{"none", "wireguard"} {
		for _, streams := range []string{"1", "4"} {
			for _, direction := range []string{"up", "down"} {
				f := record.Factors{"tunnel": tunnel, "protocol": "tcp", "streams": streams,
					"direction": direction, "nat": "off"}
				words := map[string]string{"none": "no tunnel", "wireguard": "wireguard", "1": "1 stream",
					"4": "4 streams"}
				add(words[tunnel]+" · TCP · "+words[streams]+" · "+direction, f)
			}
		}
	}

	add("no tunnel · TCP · 1 stream · up · masquerade", record.Factors{"tunnel": "none", "protocol": "tcp",
		"streams": "1", "direction": "up", "nat": "masquerade"})
	return newView(d)
}

func TestGroupsOfCells(t *testing.T) {
	var got []string
	v := cellsOfPlan()
	for _, g := range v.groups(v.all) {
		got = append(got, g.head+":")
		for _, r := range g.rows {
			got = append(got, r.label+" = "+r.full)
		}
	}

	want := []string{
		"TCP:",
		"up    1 stream = up 1 stream",
		"      4 streams = up 4 streams",
		"down  1 stream = down 1 stream",
		"      4 streams = down 4 streams",
		"WireGuard TCP:",
		"up    1 stream = up 1 stream",
		"      4 streams = up 4 streams",
		"down  1 stream = down 1 stream",
		"      4 streams = down 4 streams",
		"TCP masquerade:",
		"up  1 stream = up 1 stream",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("groups:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestNamesOfCells: a finding names its cells, and no others, by few words.
func TestNamesOfCells(t *testing.T) {
	v := cellsOfPlan()
	for _, tt := range []struct {
		want  string
		cells []int
	}{
		{"all cells", []int{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{"WireGuard", []int{4, 5, 6, 7}},
		{"no tunnel · 4 streams", []int{2, 3}},
		{"masquerade", []int{8}},
		{"WireGuard; masquerade", []int{4, 5, 6, 7, 8}},
		{"no tunnel · down; masquerade", []int{1, 3, 8}},
		{"no tunnel · up · 1 stream · no masquerade", []int{0}},
		{"no tunnel · down; WireGuard · up and 1 more", []int{1, 3, 4, 6, 8}},
		{"all but WireGuard · down · 1 stream", []int{0, 1, 2, 3, 4, 6, 7, 8}},
	} {
		var f finding
		for _, i := range tt.cells {
			f.Cells = append(f.Cells, v.all[i].Factors)
			f.Labels = append(f.Labels, v.all[i].Label)
		}

		if got := v.who(f, 2); got != tt.want {
			t.Errorf("cells %v: %q, want %q", tt.cells, got, tt.want)
		}
	}
}

// TestScreenIsOneScreen: at 80 columns plan quick takes forty lines at most, two of which the program adds
// below, and the first rate stands in the first eight.
func TestScreenIsOneScreen(t *testing.T) {
	lines := strings.Split(strings.TrimRight(Screen(samples()["quick"], 80, false), "\n"), "\n")
	if len(lines) > 37 {
		t.Errorf("the screen has %d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}

	for i, line := range lines {
		if strings.Contains(line, "bit/s") {
			if i >= 8 {
				t.Errorf("the first rate stands in line %d", i+1)
			}

			return
		}
	}

	t.Error("no rate on the screen")
}

// TestScreenFitsWithEverything: a run of quick whose cells differ in cause and in reason for doubt, with many
// cautions and skipped cells, fits too.
func TestScreenFitsWithEverything(t *testing.T) {
	long := strings.Repeat("and what follows from it takes more words ", 3)
	d := sampleDocument()
	for i := range d.Cells {
		c := &d.Cells[i]
		c.Grade = evidence.GradeSuspect
		c.Reasons = []evidence.Reason{{Kind: fmt.Sprint("reason-", i), Text: fmt.Sprint(i, " is odd ", long)}}
		c.Diagnosis.Causes = slices.Clone(c.Diagnosis.Causes)
		if len(c.Diagnosis.Causes) > 0 {
			c.Diagnosis.Causes[0].Element = fmt.Sprint("cpu", i)
			c.Diagnosis.Causes[0].Remedies = []diagnosis.Remedy{{Do: "raise the rate"}}
			second := c.Diagnosis.Causes[0]
			second.Class, second.Text = diagnosis.Policer, long
			c.Diagnosis.Causes = append(c.Diagnosis.Causes[:1], second)
		}

		caveat := record.Caveat{Kind: fmt.Sprint("caveat-", i), Text: fmt.Sprint(i, long)}
		d.Caveats = append(d.Caveats, caveat)
		d.Skipped = append(d.Skipped, record.Skipped{Factors: c.Factors, Reason: fmt.Sprint(i, long)})
	}

	d.Verdicts = analysis.Verdicts(d.Cells)
	got := Screen(d, 80, false)
	if n := strings.Count(got, "\n"); n > screenLines || !strings.Contains(got, "more: --full") ||
		!strings.Contains(got, "fix: ") {
		t.Errorf("%d lines, want %d at most, a fix, and what was left out:\n%s", n, screenLines, got)
	}
}

// TestScreenSaysWhatTheNumbersAre: shares are those of the baseline, intervals of two kinds are both named,
// cells with the same reason and other grades are not given one grade, and a soak and an experiment have
// their outcomes.
func TestScreenSaysWhatTheNumbersAre(t *testing.T) {
	d := sampleDocument()
	d.Cells[4].OfBaseline = &analysis.Share{Ratio: .181, Of: "same without tunnel"}
	d.Cells[8].OfBaseline = &analysis.Share{Ratio: .5, Of: "same with governor performance"}
	x := d.Cells[0].Metrics[goodput]
	x.Interval = statistics.IntervalOrder
	x.N = 6
	d.Cells[0].Metrics[goodput] = x
	d.Cells[3].Grade = evidence.GradeFailed
	d.Cells[3].Reasons = d.Cells[2].Reasons
	d.Soaks = []analysis.Soak{{
		Label:   "4 streams",
		Windows: 24,
		Hours:   2,
		Trends: []analysis.Trend{{Kind: analysis.TrendDrift, Text: "goodput: no trend"},
			{Kind: analysis.TrendLeak, Text: "host memory in use: it grew by 80 MB", Real: true}},
	}, {
		Label:   "1 stream",
		Windows: 24,
		Hours:   2,
		Trends:  []analysis.Trend{{Kind: analysis.TrendDrift, Text: "goodput: no trend"}},
	}, {
		Label:   "short",
		Windows: 3,
		Hours:   .1,
		Missing: []string{"trends: 3 windows are fewer than 6"},
	}}
	d.Proof = &diagnosis.Proof{Text: "the shaper limits: confirmed", By: "r2"}
	got := Screen(d, 120, false)
	if !strings.Contains(Text(d, 120, false), d.Proof.Text) {
		t.Error("the full text lacks the experiment")
	}

	for _, want := range []string{"Experiment  " + d.Proof.Text, "18.1 %", "interval or range (n=3–6)",
		"suspect or failed, tester-limited",
		"4 streams: 24 windows in 2.0 h: host memory in use: it grew by 80 MB\n",
		"1 stream: 24 windows in 2.0 h: no trend beyond chance\n",
		"short: 3 windows in 0.10 h: trends: 3 windows are fewer than 6\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the screen lacks %q:\n%s", want, got)
		}
	}

	if strings.Contains(got, "50.0 %") {
		t.Errorf("the share of another governor is called one of plain:\n%s", got)
	}
}

// largeDocument has two thousand cells with forty findings.
func largeDocument() *analysis.Document {
	var plans []cellPlan
	var factors []record.Factors
	for _, tunnel := range []string{"none", "wireguard"} {
		for _, congestion := range []string{"cubic", "bbr"} {
			for _, direction := range []string{"up", "down"} {
				for streams := range 25 {
					for mss := range 10 {
						f := base("tunnel", tunnel, "congestion", congestion, "direction", direction,
							"streams", fmt.Sprint(streams+1), "mss", fmt.Sprint(500+100*mss))
						factors = append(factors, f)
						plans = append(plans, cellPlan{f, "", 1e9 + float64(len(plans)), 0, 0, 9e3, 1e6, 2e6,
							10, .9, "Good", .02})
					}
				}
			}
		}
	}

	for i, label := range analysis.Labels(sampleFactors(), factors) {
		plans[i].label = label
	}

	d := documentOf(plans, 3)
	for i := range d.Cells {
		c := &d.Cells[i]
		c.Diagnosis.Causes[0].Element = fmt.Sprint("cpu", i*7%40)
		if i%3 == 0 {
			c.Grade = evidence.GradeSuspect
			c.Reasons = []evidence.Reason{{
				Kind: evidence.ReasonTesterLimited,
				Text: fmt.Sprintf("core cpu%d was busy for %d %% of the window", i%50, i%100),
			}}
		}
	}

	d.Verdicts = analysis.Verdicts(d.Cells)
	return d
}

func BenchmarkLargeScreen(b *testing.B) {
	d := largeDocument()
	for b.Loop() {
		Screen(d, 80, false)
	}
}

func BenchmarkLargeText(b *testing.B) {
	d := largeDocument()
	for b.Loop() {
		Text(d, 120, false)
	}
}

func BenchmarkLargePage(b *testing.B) {
	d := largeDocument()
	for b.Loop() {
		if _, err := HTML(d); err != nil {
			b.Fatal(err)
		}
	}
}

// TestPlainRatio: a share of the same without something, or with none of it, is one of the plain path's.
func TestPlainRatio(t *testing.T) {
	for of, want := range map[string]string{
		"same without tunnel":            "50.0 %",
		"same with no firewall rules":    "50.0 %",
		"same with governor performance": "",
	} {
		if got := plainRatio(&analysis.Cell{OfBaseline: &analysis.Share{Ratio: .5, Of: of}}); got != want {
			t.Errorf("%s: got %q, want %q", of, got, want)
		}
	}
}

// TestPacketsHaveBits: a rate of packets stands beside that of their payload, another rate alone.
func TestPacketsHaveBits(t *testing.T) {
	v := newView(sampleDocument())
	for _, c := range v.all {
		both, rate := v.bothRates(c).Sub, rateCell(v, c).Sub
		if packets(c) && has(c, goodput) != strings.Contains(both, "bit/s") || !packets(c) && both != rate {
			t.Errorf("%s: got %q beside %q", c.Label, both, rate)
		}
	}
}

// TestSkippedCellsHaveNames: the screen never counts skipped cells without naming one of them.
func TestSkippedCellsHaveNames(t *testing.T) {
	d := sampleDocument()
	d.Skipped = []record.Skipped{{Label: "A", Reason: "no module"}, {Label: "B", Reason: "no rights"},
		{Label: "C", Reason: "no module"}, {Reason: "no device"}}
	want := []string{"A and 1 more: no module", "B: no rights", "1 cell: no device"}
	if got := skippedCounts(newView(d)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestStackedRowsNameBothQuantities: on a terminal too narrow for the table, the share of the tester is not
// a bare number beside the core's load.
func TestStackedRowsNameBothQuantities(t *testing.T) {
	d := sampleDocument()
	d.Cells[0].Ceiling.TesterRatio = .5
	got := strings.Join(strings.Fields(Text(d, 40, false)), " ")
	if !strings.Contains(got, "% (50.0 % of tester)") || strings.Contains(got, "Core, ") {
		t.Errorf("the share of the tester is not named:\n%s", got)
	}
}
