package report

import (
	"bytes"
	"fmt"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// charts names the charts of a run, in the order of its page.
func charts(d *analysis.Document) []string {
	names, _ := sheets(newView(d))
	return names
}

// TestDefaultChart: the first chart shows results, even if the page has the picture of a path above them.
func TestDefaultChart(t *testing.T) {
	d := sampleDocument()
	d.Verdicts = d.Verdicts[:1]
	f := newView(d).found()[0]
	f.Diagnosis.Ledger = &diagnosis.Ledger{Data: []diagnosis.Account{{
		Node: "router", Element: "lan", Stage: diagnosis.StageQueue, In: new(100.0), Out: new(100.0),
	}}}
	names := charts(d)
	if names[0] != "goodput" || !slices.Contains(names, "way") {
		t.Errorf("charts %q, want goodput first, and way", names)
	}
}

// TestPathChartHasItsValidity: the foot of the use of one cell's path is about this cell alone.
func TestPathChartHasItsValidity(t *testing.T) {
	d := sampleDocument()
	f := newView(d).found()[0]
	svg, err := Chart(d, "use-1", "svg", Size{})
	want := fmt.Sprintf("Validity: %s, %s", f.Cell.Grade, unit.Count(f.Cell.Runs, "run"))
	if err != nil || !strings.Contains(string(svg), want) {
		t.Errorf("%v, want %q in %s", err, want, svg)
	}
}

// A chart in a size has its wide form, whole, or there is none.
func TestSizeOfCharts(t *testing.T) {
	d := sampleDocument()
	for _, size := range []Size{{1080, 1080}, {800, 800}, Social()} {
		svg, err := Chart(d, "goodput", "svg", size)
		if err != nil {
			t.Fatal(err)
		}

		// The narrow form has the numbers of the round trip alone.
		if !strings.Contains(string(svg), "round trip: idle ○") || !strings.Contains(string(svg), d.Run.ID) {
			t.Errorf("%v: the chart is narrow or lacks its foot", size)
		}
	}

	for _, format := range []string{"svg", "png"} {
		_, err := Chart(d, "goodput", format, Size{400, 200})
		if err == nil || !strings.Contains(check.HintOf(err), "--size") {
			t.Errorf("%s of 400x200: %v, want a hint", format, err)
		}
	}
}

// manyCells has so many that its bars are a tall picture.
func manyCells(n int) *analysis.Document {
	var plans []cellPlan
	for i := range n {
		plans = append(plans, cellPlan{
			factors: base("streams", fmt.Sprint(i+1)),
			label:   fmt.Sprint(i + 1),
			bps:     1e9,
			p50:     1e6,
			p99:     2e6,
			idle:    1e4,
		})
	}
	return documentOf(plans, 1)
}

// A picture of many cells takes fewer pixels for each unit, and one beyond all screens is refused.
func TestPixelsAreBounded(t *testing.T) {
	for cells, want := range map[int]int{5: dense * wideWidth, 100: wideWidth} {
		data, err := Chart(manyCells(cells), "goodput", "png", Size{})
		if err != nil {
			t.Fatal(err)
		}

		if c, err := png.DecodeConfig(bytes.NewReader(data)); err != nil || c.Width != want {
			t.Errorf("%d cells: %d pixels wide, %v, want %d", cells, c.Width, err, want)
		}
	}

	data, err := Chart(manyCells(1700), "goodput", "png", Size{})
	if err == nil || !strings.Contains(err.Error(), "million pixels") || check.HintOf(err) == "" {
		t.Errorf("1700 cells: %d bytes, %v, want a refusal with a hint", len(data), err)
	}
}

func TestChartNamesCollide(t *testing.T) {
	d := smallDocument()
	for i := range d.Cells {
		d.Cells[i].Label = "alike"
	}

	names := charts(d)
	if !slices.Contains(names, "time-alike") || !slices.Contains(names, "time-alike-2") {
		t.Errorf("the charts are %v", names)
	}
}

// TestFoldedChartsHaveNames: what the page hides until a reader opens it is a chart like others, and is not
// the default.
func TestFoldedChartsHaveNames(t *testing.T) {
	d := sampleDocument()
	e := model.Effects{Main: []model.Effect{{
		Factor:   "streams",
		Level:    "4",
		Against:  "1",
		Ratio:    model.Interval{Value: 2},
		Suspect:  true,
		Unused:   2,
		Measured: 8,
		Verdict:  statistics.TooFew(),
	}}}
	d.Effects = &e
	names := charts(d)
	for _, want := range []string{"effect-ratios", "use-1"} {
		if i := slices.Index(names, want); i < 1 {
			t.Errorf("%s is the chart %d of %q", want, i, names)
			continue
		}

		svg, err := Chart(d, want, "svg", Size{})
		if err != nil || !strings.Contains(string(svg), "<svg") {
			t.Errorf("%s: %v", want, err)
		}
	}

	page := string(must(HTML(d)))
	for _, want := range []string{"2 of 8 blocks are not used", statistics.TooFew()[:11], ", suspect"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestDelayTicks(t *testing.T) {
	for _, tt := range []struct {
		low, high float64
		want      []float64
	}{{2.5e6, 9e6, []float64{5e6}}, {1.5e6, 3e7, []float64{2e6, 5e6, 1e7, 2e7}},
		{9e3, 1.2e6, []float64{1e4, 1e5, 1e6}}} {
		got := delayTicks(tt.low, tt.high)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v to %v: %v, want %v", tt.low, tt.high, got, tt.want)
		}
	}
}

// What tells things apart by number is no quantity.
func TestIdentitiesAreNoQuantities(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		like bool
	}{
		{"others used 20 % of a core", "others used 9.5 % of a core", true},
		{"lost 3, of 10 packets (12 %).", "lost 4, of 11 packets (13 %).", true},
		{"cpu0 was busy for 99 %", "cpu3 was busy for 96 %", false},
		{"trial b1-r02 failed", "trial b1-r05 failed", false},
		{"IPv4 only", "IPv6 only", false}, {"192.168.1.1 is gone", "192.168.1.2 is gone", false},
		{"at 10:00:03", "at 10:00:09", false}, {"is ×2,330 more", "is ×2,331 more", false},
	} {
		if likeText(tt.a, tt.b) != tt.like {
			t.Errorf("%q and %q: want alike %v", tt.a, tt.b, tt.like)
		}
	}

	d := sampleDocument()
	for i, text := range []string{"cpu0 of the router was 99 % busy", "cpu3 of the router was 96 % busy",
		"cpu0 of the router was 95 % busy"} {
		d.Cells[i].Grade = evidence.GradeSuspect
		d.Cells[i].Reasons = []evidence.Reason{{Kind: evidence.ReasonTesterLimited, Text: text}}
	}

	table := resultTables(newView(d))[0]
	got := table.Rows[1].Notes
	if len(got) != 1 || got[0].Text != "cpu3 of the router was 96 % busy" {
		t.Errorf("the reason of the second row is %v", got)
	}

	if !table.says(Item{Kind: evidence.ReasonTesterLimited, Text: "cpu0 of the router was 95–99 % busy"}) &&
		!slices.ContainsFunc(table.Notes, func(n Item) bool {
			return n.Text == "cpu0 of the router was 95–99 % busy"
		}) {
		t.Errorf("the reason of two rows is none of %v", table.Notes)
	}
}

// Nothing that was not measured is drawn or called failed, and no sentence is about nothing.
func TestInterruptedBeforeItsFirstLoad(t *testing.T) {
	d := interruptedDocument()
	for _, name := range charts(d) {
		if !strings.HasPrefix(name, "path-") {
			t.Errorf("a chart of nothing: %s", name)
		}
	}

	page, err := HTML(d)
	if err != nil {
		t.Fatal(err)
	}

	for _, text := range []string{string(page), Text(d, 100, false)} {
		if strings.Contains(text, "Whisker") || !strings.Contains(text, "not reached") ||
			!strings.Contains(text, "Nothing was measured") {
			t.Errorf("it says:\n%.3000s", text)
		}
	}

	one := sampleDocument()
	one.Cells[1] = d.Cells[0]
	b := newView(one).bar(&one.Cells[1], goodput)
	if b.Failed != "not reached" {
		t.Errorf("a cell without trials is called %q", b.Failed)
	}
}

// On a card a number is called what it is.
func TestCardsNameTheirNumbers(t *testing.T) {
	page, err := HTML(sampleDocument())
	if err != nil {
		t.Fatal(err)
	}

	for head, metric := range map[string]string{"Loss": lossRatio, "Retransmits": retransmits} {
		found := false
		for _, cell := range strings.Split(string(page), "<td ") {
			if strings.Contains(cell, `data-metric="`+metric+`" data-stat="median"`) &&
				strings.Contains(cell, "data-head=") {
				found = found || strings.Contains(cell, `data-head="`+head+`"`)
				if strings.Contains(cell, `data-head="`+map[string]string{"Loss": "Retransmits",
					"Retransmits": "Loss"}[head]+`"`) {
					t.Errorf("%s has another head: %.200s", metric, cell)
				}
			}
		}

		if !found {
			t.Errorf("no %s is called %s", metric, head)
		}
	}
}

// The brief form has the result: of a search what was found, of doubts their kinds.
func TestBriefHasTheResult(t *testing.T) {
	out, err := Brief(searchDocument())
	if err != nil || !strings.Contains(string(out), "| Searched |") {
		t.Errorf("%v:\n%s", err, out)
	}

	d := sampleDocument()
	d.Cells[0].Caveats = append(d.Cells[0].Caveats, record.Caveat{Kind: "interval-not-reached"})
	out, err = Brief(d)
	if err != nil || !strings.Contains(string(out), "1 suspect (") ||
		!strings.Contains(string(out), "interval-not-reached") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestRatiosHaveOneForm(t *testing.T) {
	for _, tt := range []struct {
		ratio, low, high float64
		want             string
	}{{.95, .91, 1.02, "×0.950 ×0.910–×1.02"}, {1.2, .813, 2.33, "×1.20 ×0.813–×2.33"},
		{2000, 1500, 2330, "×2,000 ×1,500–×2,330"}} {
		k := comparison.Comparison{Spread: statistics.Spread{Low: tt.low, High: tt.high}, Ratio: tt.ratio}
		got := unit.Times(k.Ratio) + " " + ratioRange(k)
		if got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}

	if got := []string{ratioTick(2), ratioTick(2.5), ratioTick(2000), ratioTick(.5)}; !slices.Equal(got,
		[]string{"×2", "×2.5", "×2,000", "×0.5"}) {
		t.Errorf("ticks %q", got)
	}
}
