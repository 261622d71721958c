package report

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
)

// TestOpening: the first screen has each rate once, its bottleneck with the fix, and the choke point of the
// path.
func TestOpening(t *testing.T) {
	page, err := HTML(sampleDocument())
	if err != nil {
		t.Fatal(err)
	}

	_, screen, _ := strings.Cut(string(page), `<div class="opening">`)
	screen, _, _ = strings.Cut(screen, "<nav")
	d := sampleDocument()
	for i := range d.Cells {
		c := &d.Cells[i]
		shown := fmt.Sprintf(`<tr data-cell="%s"><th scope="row">`, c.Factors.Key())
		if n := strings.Count(screen, shown); n != 1 {
			t.Errorf("the rate of %s stands there %d times, want once", c.Label, n)
		}
	}

	for _, want := range []string{`id="rates"`, `id="bottleneck"`, `id="path"`,
		"<i>Fix</i> spread received packets", "86 % sure", "▶ wan", "0 to 15 Gbit/s",
		">Range (n\u00a0=\u00a03)<"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the first screen lacks %q", want)
		}
	}

	if strings.Contains(screen, "was busy for 97 %") {
		t.Error("the first screen repeats evidence, which the section has")
	}
}

// TestOpeningLatency: the first screen has the round trips of the cell whose load adds most, with interval,
// number of runs and grade; a run without them has no such section.
func TestOpeningLatency(t *testing.T) {
	d := sweepDocument()
	d.Cells[1].Grade = evidence.GradeSuspect
	page, err := HTML(d)
	if err != nil {
		t.Fatal(err)
	}

	_, got, _ := strings.Cut(string(page), `<section id="bufferbloat">`)
	got, _, _ = strings.Cut(got, "</section>")
	got = regexp.MustCompile("<[^>]*>").ReplaceAllString(got, "")
	want := "no tunnel · TCP · 2 streams: 11.1 µs → 2.02 ms (96.9 % interval 1.90–2.16 ms, n = 6) · " +
		"added 41.0 ms · bufferbloat grade B · suspect"
	if !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	if l := newView(searchDocument()).loadedLatency(); l != nil {
		t.Errorf("without a load that adds anything: %+v", l)
	}
}

// TestOpeningHasRoomForEveryPlan: of many cells the first screen has the fastest of each group, and of many
// findings the first.
func TestOpeningHasRoomForEveryPlan(t *testing.T) {
	r := newView(sweepDocument()).rates()
	var names []string
	r.each(func(row *rateRow) { names = append(names, row.cell.Label) })
	if slices.Contains(names, "UDP 1500-byte packets") || r.Left() != 1 || r.LeftOnPhone() != 3 ||
		r.Cells != 13 || r.Shown != 12 || len(names) != 12 {
		t.Errorf("%d of %d cells are shown: %q, want all but the slowest of UDP", r.Shown, r.Cells, names)
	}

	r.each(func(row *rateRow) {
		if row.Desk && row.rank < 2 {
			t.Errorf("a phone does not show %s, one of the fastest two of its group", row.cell.Label)
		}
	})
	o := opening{Rates: newView(labelled("cell", 40)).rates(), Limits: make([]limit, 7)}
	o.Limits[3].Desk, o.Limits[4].Desk = true, true
	desk := 0
	o.Rates.each(func(row *rateRow) {
		if !row.Desk {
			desk++
		}
	})
	got := []int{o.Rates.Shown, desk, len(o.Shown()), o.Left(), o.LeftOnPhone()}
	if !slices.Equal(got, []int{maxRates, phoneRates, maxLimits, 2, 4}) {
		t.Errorf("rows, those of a phone, limits, those that are left, on a phone: %v", got)
	}

	small := newView(smallDocument())
	left := []int{openingOf(small, 0).LeftOnPhone(), openingOf(small, 8).LeftOnPhone()}
	if !slices.Equal(left, []int{0, len(small.found()) - 1}) {
		t.Errorf("limits that a phone leaves out, without and with alerts: %v, want none, all but one", left)
	}

	empty := newView(&analysis.Document{})
	if o := openingOf(empty, 0); len(o.Rates.Groups) > 0 || o.Path != nil || len(o.Limits) > 0 {
		t.Errorf("a run without cells has %+v", o)
	}
}

// TestFirstScreenCountsWhatItHides: on a phone the last rows of a run that a desk shows whole are counted.
func TestFirstScreenCountsWhatItHides(t *testing.T) {
	for cells, want := range map[int]string{
		10: "",
		12: `<span class="phone">2 more: <a href="#results">all 12</a>. </span>`,
		13: `<span class="desk">1 more: the fastest of each group are shown; <a href="#results">all 13</a>. </span>` +
			`<span class="phone">3 more: the fastest`,
	} {
		page, err := HTML(labelled("cell", cells))
		if err != nil {
			t.Fatal(err)
		}

		_, got, _ := strings.Cut(string(page), `<section id="rates">`)
		_, got, _ = strings.Cut(got, `<p class="cap">`)
		got, _, _ = strings.Cut(got, "</p>")
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%d cells: got %q, want %q", cells, got, want)
		}
	}
}

// TestStrip: the small picture has the top part of each node, marks the choke point once, by a sign and by
// colour, and is as wide and as low as asked for.
func TestStrip(t *testing.T) {
	d := sampleDocument()
	at := slices.IndexFunc(d.Cells, func(c analysis.Cell) bool {
		return c.Diagnosis.Class == "softirq-one-core"
	})
	for _, width := range []float64{widths["half"], narrowWidth} {
		k := strip(d.Cells[at].Diagnosis.Path).Draw(width)
		svg := k.svg("", "")
		for _, want := range []string{">97 %<", ">34 %<", ">41 %<", ">98 %<", "▶ busiest core<",
			"fill choke", `role="img" aria-label="Use of the path: client`} {
			if !strings.Contains(svg, want) {
				t.Errorf("the strip of %v px lacks %s", width, want)
			}
		}

		if strings.Contains(svg, ">12 %<") || strings.Count(svg, "▶") != 1 || k.w != width || k.h > 160 {
			t.Errorf("the strip of %v px has another part, %d marks, or %v × %v px", width,
				strings.Count(svg, "▶"), k.w, k.h)
		}
	}
}

// TestSearchedRates: the first screen of a search has what was found, not the rate of a trial of it.
func TestSearchedRates(t *testing.T) {
	v := newView(samples()["search"])
	r := v.rates()
	var got []string
	for _, g := range r.Groups {
		for _, row := range g.Rows {
			got = append(got, g.Name+", "+row.Name+": "+row.Rate.Text+", "+row.Spread)
		}
	}

	want := "UDP 110-byte packets, ndr: 90.1 kpps, 90.1 kpps – 90.9 kpps"
	if len(got) != 4 || got[0] != want || !r.Doubt || r.Columns() != 3 {
		t.Errorf("got %q, want first %q", got, want)
	}
}
