package report

import (
	"bytes"
	"fmt"
	"image/color"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestIntervalName(t *testing.T) {
	for _, test := range []struct {
		value statistics.Value
		want  string
	}{
		{statistics.Value{Spread: statistics.Spread{Interval: statistics.IntervalRange}}, "range"},
		{statistics.Value{Spread: statistics.Spread{
			Interval: statistics.IntervalOrder,
			Level:    .96875,
		}}, "96.9 % interval"},
		{statistics.Value{Spread: statistics.Spread{Interval: statistics.IntervalPooled}},
			"range of the trials that carry it"},
		{statistics.Value{Spread: statistics.Spread{
			Interval: statistics.IntervalPooled,
			Level:    .95,
		}},
			"95.0 % interval over all probes"},
		{statistics.Value{Spread: statistics.Spread{Interval: statistics.IntervalSingle}}, "single value"},
	} {
		got := intervalName(test.value)
		if got != test.want {
			t.Errorf("%s, level %v: %q, want %q", test.value.Interval, test.value.Level, got, test.want)
		}
	}
}

// TestSoakSaysWhatWasWatched: that no window was held back by heat is said of those that a sensor watched.
func TestSoakSaysWhatWasWatched(t *testing.T) {
	for _, tt := range []struct {
		throttled, unwatched int
		want                 string
		tone                 Tone
	}{
		{0, 0, "no window was held back by heat or power", Good},
		{0, 24, "heat and power were not watched (no sensor)", Quiet},
		{0, 3, "no window was held back by heat or power; 3 windows not watched (no sensor)", Good},
		{1, 0, "1 window was held back by heat or power", Doubt},
		{2, 3, "2 windows were held back by heat or power", Doubt},
	} {
		k := analysis.Soak{
			Label:     "4 streams",
			Windows:   24,
			Hours:     2,
			Throttled: tt.throttled,
			Unwatched: tt.unwatched,
		}
		if tt.unwatched > 0 {
			k.UnwatchedWhy = "no sensor"
		}

		got := soakItems(k)
		if len(got) != 1 || got[0].Text != tt.want || got[0].Tone != tt.tone {
			t.Errorf("%d held back, %d unwatched: got %+v, want %q, tone %v", tt.throttled, tt.unwatched, got,
				tt.want, tt.tone)
		}

		d := sampleDocument()
		d.Soaks = []analysis.Soak{k}
		html, err := HTML(d)
		if err != nil || !strings.Contains(string(html), tt.want) {
			t.Errorf("the page lacks %q: %v", tt.want, err)
		}

		if text, err := Markdown(d); err != nil || !strings.Contains(string(text), tt.want) {
			t.Errorf("the text lacks %q: %v", tt.want, err)
		}
	}
}

func TestNotesOfAllCellsStandOnce(t *testing.T) {
	d := sampleDocument()
	for i := range d.Cells {
		d.Cells[i].Grade = evidence.GradeSuspect
		d.Cells[i].Reasons = []evidence.Reason{{
			Kind:  evidence.ReasonBackgroundLoad,
			Text:  fmt.Sprintf("other processes used %d %% of a core", 20+3*i),
			Trial: "b1-r01.1",
		}}
	}

	table := resultTables(newView(d))[0]
	want := "other processes used 20–47 % of a core"
	if i := slices.IndexFunc(table.Common, func(n Item) bool { return n.Text == want }); i < 0 {
		t.Errorf("what all cells share is %v, want among it %q", table.Common, want)
	}

	for _, r := range table.Rows {
		if len(r.Notes) > 0 {
			t.Errorf("%s repeats it: %v", r.Cells[0].Text, r.Notes)
		}
	}

	for ext, render := range renderers() {
		if out, err := render(d); err != nil {
			t.Fatal(err)
		} else if n := strings.Count(strings.Join(strings.Fields(string(out)), " "),
			"in all cells: other"); ext == "html" && n != 1 {
			t.Errorf("%s says it %d times", ext, n)
		}
	}
}

// What several cells share stands once, below the table, and is named in the row of each.
func TestSharedNotesAreNamedInTheirRows(t *testing.T) {
	d := sampleDocument()
	for i := range d.Cells[:3] {
		d.Cells[i].Grade = evidence.GradeSuspect
		d.Cells[i].Reasons = []evidence.Reason{{
			Kind:  evidence.ReasonTesterLimited,
			Text:  "the tester alone is less than 1.2 times as fast",
			Trial: "b1-r01.1",
		}}
	}

	out, err := renderers()["120.txt"](d)
	if err != nil {
		t.Fatal(err)
	}

	n := strings.Count(string(out), "suspect [a]")
	if n != 3 {
		t.Errorf("named in %d rows, want 3:\n%s", n, out)
	}
}

// One level has one colour wherever it is shown, and no two levels share one while there are enough.
func TestOneColourPerLevel(t *testing.T) {
	v := newView(sweepDocument())
	seen := map[string]string{}
	for _, c := range v.all {
		class := v.class(c.Factors)
		level := c.Factors[v.line]
		if other, ok := seen[class]; ok && other != level {
			t.Errorf("%s is the colour of %s and %s", class, other, level)
		}

		seen[class] = level
	}

	page, err := HTML(sweepDocument())
	if err != nil {
		t.Fatal(err)
	}

	wireguard := v.colour(v.line, "wireguard")
	for _, use := range []string{"bar ", "line ", "q ", "run-line strong ", "dot ", "tube "} {
		if !strings.Contains(string(page), `class="`+use+wireguard) {
			t.Errorf("nothing of class %q has the colour of wireguard, %s", use, wireguard)
		}
	}

	if v.colour("a", "1") == v.colour("a", "2") {
		t.Error("two levels have one colour")
	}

	for i := range 20 {
		v.colour("b", fmt.Sprint(i))
	}

	got := v.colour("b", "19")
	if got != "c0" {
		t.Errorf("one level too many has the colour %s", got)
	}
}

// What is in doubt is hatched, in the chart and in its legend.
func TestDoubtIsHatched(t *testing.T) {
	page, err := HTML(sampleDocument())
	if err != nil {
		t.Fatal(err)
	}

	n := strings.Count(string(page), `class="hatch c1"`)
	if n < 3 { // wide, narrow, legend
		t.Errorf("%d hatched shapes, want at least 3", n)
	}
}

func TestEmptyColumnsGo(t *testing.T) {
	d := sampleDocument()
	for i := range d.Cells {
		d.Cells[i].Ceiling.TesterRatio = 0
	}

	for _, c := range resultTables(newView(d))[0].Columns {
		if c.Head == "Of the tester" {
			t.Error("a column without anything in it is shown")
		}
	}
}

func TestRatioTicks(t *testing.T) {
	c := &canvas{}
	for _, x := range []float64{10, 20, 60} {
		c.tick("middle", x, 5, "100 %")
	}

	n := strings.Count(c.svg("", ""), "<text")
	if n != 2 {
		t.Errorf("%d numbers stand where two have room", n)
	}

	if got := ratioTicks(.9, 2500); !slices.Contains(got, 1000) || !slices.Contains(got, 1) {
		t.Errorf("the ticks to 2500 are %v", got)
	}

	if got := ratioTick(2000); got != "×2,000" {
		t.Errorf("a tick is %s", got)
	}
}

// A chart that leaves the page has all that it needs with it, in either format and in the size asked for.
func TestChartsStandAlone(t *testing.T) {
	d := sampleDocument()
	for _, name := range charts(d) {
		svg, err := Chart(d, name, "svg", Size{})
		if err != nil {
			t.Fatal(err)
		}

		for _, want := range []string{d.Run.ID, "21 Nov 2026", "AMD EPYC 7B13", "class=\"t title\""} {
			if !strings.Contains(string(svg), want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}

		if !strings.HasPrefix(name, "path-") && !strings.Contains(string(svg), "Validity: ") {
			t.Errorf("%s does not say how far its numbers can be trusted", name)
		}

		if strings.HasPrefix(name, "time-") && !strings.Contains(string(svg), "3 runs") {
			t.Errorf("%s does not say how many runs it shows", name)
		}

		if strings.Contains(string(svg), "in the table") {
			t.Errorf("%s speaks of a table that it has not", name)
		}
	}

	svg, err := Chart(d, "", "svg", Size{})
	if err != nil || !strings.Contains(string(svg), "Validity: 8 of 9 cells valid, 1 suspect") ||
		!strings.Contains(string(svg), "Gbit/s") || !strings.Contains(string(svg), ">suspect<") ||
		!strings.Contains(string(svg), ">Whisker: smallest to largest") {
		t.Errorf("the first chart lacks validity, unit or legend: %v", err)
	}

	data, err := Chart(d, "", "png", Social())
	if err != nil {
		t.Fatal(err)
	}

	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}

	b := img.Bounds()
	if b.Dx() != 1200 || b.Dy() != 630 {
		t.Errorf("the preview has %v pixels", b)
	}

	colours := map[color.Color]bool{}
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			colours[img.At(x, y)] = true
		}
	}

	for _, name := range []string{"surface", "ink", "soft", "c1", "c2"} {
		want := hexColour(palette()[name][0], 1)
		if !colours[color.RGBA{want.R, want.G, want.B, 255}] {
			t.Errorf("nothing has the colour %s", name)
		}
	}

	if _, err := Chart(d, "no such", "png", Size{}); check.HintOf(err) == "" {
		t.Errorf("an unknown chart: %v, without the known ones", err)
	}
}

// TestBriefKeepsWhatQualifies: the one table of a post marks what is suspect, with the reason below, and says
// of a tunnel that it is in userspace.
func TestBriefKeepsWhatQualifies(t *testing.T) {
	d := smallDocument()
	d.Cells[0].Grade = evidence.GradeSuspect
	d.Cells[0].Reasons = []evidence.Reason{{Kind: evidence.ReasonBackgroundLoad, Text: "x"}}
	d.Cells[1].Resolved = map[string]string{"tunnel": "wireguard-userspace"}
	out := string(must(Brief(d)))
	for _, want := range []string{"**! suspect, background-load**: ", "| ! |",
		"| WireGuard (userspace) TCP"} {
		if !strings.Contains(out, want) {
			t.Errorf("got no %q:\n%s", want, out)
		}
	}
}

func TestBriefIsBrief(t *testing.T) {
	d := sampleDocument()
	out, err := Brief(d)
	if err != nil {
		t.Fatal(err)
	}

	lines := 0
	for _, l := range strings.Split(string(out), "\n") {
		if strings.HasPrefix(l, "- ") {
			lines++
		}
	}

	if lines != 7 || len(out) > 3000 || !strings.Contains(string(out), d.Run.ID) {
		t.Errorf("%d lines, %d bytes:\n%s", lines, len(out), out)
	}
}

// What all nodes share stands once, nodes that are alike are one, and all of it is folded.
func TestEnvironmentStandsOnce(t *testing.T) {
	d := sampleDocument()
	facts := func(forward string) map[string]string {
		return map[string]string{"kernel": "6.1", "forward": forward}
	}
	d.Environment = []record.Environment{{Node: "client", Facts: facts("0")}, {
		Node:  "router",
		Facts: facts("1"),
	}, {Node: "server", Facts: facts("0")}}
	var s Section
	environmentSection(newView(d), &s)
	fold, ok := s.Blocks[0].(Fold)
	if !ok || len(s.Blocks) != 1 {
		t.Fatalf("the section is %#v, want one fold", s.Blocks)
	}

	var got []string
	for _, b := range fold.Blocks {
		f, _ := b.(Facts)
		for _, i := range f.Items {
			got = append(got, f.Title+": "+i.Name+" "+i.Value+i.Missing)
		}
	}

	want := []string{"All nodes: kernel 6.1", "client, server: forward 0", "router: forward 1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCountsAreWhole(t *testing.T) {
	v := newView(sampleDocument())
	for _, r := range v.numbers("n", v.all, goodput).Rows {
		n := r.Cells[4].Text
		if n != "3" {
			t.Errorf("%s has n = %s, want 3", r.Cells[0].Text, n)
		}
	}
}

// Power stands in the tables where it was measured, and nowhere else.
func TestPowerColumns(t *testing.T) {
	const heads = "Goodput per W"
	for ext, render := range renderers() {
		if out, err := render(sampleDocument()); err != nil || strings.Contains(string(out), heads) {
			t.Errorf("%s without power: %v, want no column %s", ext, err, heads)
		}
	}

	d := sampleDocument()
	i := slices.IndexFunc(d.Cells, func(c analysis.Cell) bool { return loaded(&c) })
	d.Cells[i].Metrics[powerLoaded] = statistics.Summarise([]float64{6.7, 6.8, 6.9})
	d.Cells[i].Metrics[powerIdle] = statistics.Summarise([]float64{4.2, 4.2, 4.3})
	d.Cells[i].Metrics[perWatt] = statistics.Summarise([]float64{140e6, 141e6, 142e6})
	for ext, wants := range map[string][]string{
		"md": {heads, "6.80 W", "idle 4.20 W", "141 Mbit/s"}, "html": {heads, "6.80 W", "4.20 W", "141 Mbit/s"},
		"200.txt": {"Per watt", "6.80 W, 4.20 W", "141 Mbit/s"}, "80.txt": {"Per watt", "6.80 W, 4.20 W"},
	} {
		out, err := renderers()[ext](d)
		if err != nil {
			t.Fatal(err)
		}

		for _, want := range wants {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s lacks %q:\n%s", ext, want, out)
			}
		}
	}
}
