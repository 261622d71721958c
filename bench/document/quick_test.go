package document

import (
	"flag"
	"fmt"
	"html"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	lab     = flag.String("lab", "local", "kind of lab of the run")
	flooded = flag.Bool("flooded", false, "UDP flat out floods the router, which loses probes, too")
	report  = flag.String("report", "", "report.html of the run")
	screen  = flag.String("screen", "", "what show printed on a terminal of 80 columns")
)

// quick lists the ten cells of the plan quick by the factors that tell them apart.
var quick = []map[string]string{
	{"tunnel": "none", "protocol": "tcp", "streams": "1", "direction": "up", "nat": "off"},
	{"tunnel": "none", "protocol": "tcp", "streams": "1", "direction": "down", "nat": "off"},
	{"tunnel": "none", "protocol": "tcp", "streams": "4", "direction": "up", "nat": "off"},
	{"tunnel": "none", "protocol": "tcp", "streams": "4", "direction": "down", "nat": "off"},
	{"tunnel": "wireguard", "protocol": "tcp", "streams": "1", "direction": "up"},
	{"tunnel": "wireguard", "protocol": "tcp", "streams": "1", "direction": "down"},
	{"tunnel": "wireguard", "protocol": "tcp", "streams": "4", "direction": "up"},
	{"tunnel": "wireguard", "protocol": "tcp", "streams": "4", "direction": "down"},
	{"tunnel": "none", "protocol": "tcp", "streams": "1", "direction": "up", "nat": "masquerade"},
	{"tunnel": "none", "protocol": "udp", "packet_size": "64", "direction": "up"},
}

// TestQuick checks a run of the plan quick: ten cells, each with its rate, latencies and intervals.
func TestQuick(t *testing.T) {
	d := read(t)
	head := []string{d.Format, d.Run.Plan, d.Run.Lab, d.Run.Status}
	want := []string{"chokepoint/1", "quick", *lab, "done"}
	if !slices.Equal(head, want) {
		t.Errorf("format, plan, lab and status: got %q, want %q", head, want)
	}

	if d.Run.ID == "" || d.Run.Method.Seed == "" || d.Run.Command == "" {
		t.Errorf("id, seed and command: got %+v, want none empty", d.Run)
	}

	if len(d.Cells) != len(quick) {
		t.Errorf("got %d cells, want %d", len(d.Cells), len(quick))
	}

	for _, c := range d.Cells {
		var kinds []string
		for _, r := range c.Reasons {
			kinds = append(kinds, r.Kind)
		}

		fmt.Fprintf(t.Output(), "note: %-40s %-8s %s\n", c.Label, c.Grade, strings.Join(kinds, ", "))
	}

	for _, factors := range quick {
		found := slices.DeleteFunc(slices.Clone(d.Cells), func(c cell) bool { return !has(c, factors) })
		if len(found) != 1 {
			t.Errorf("got %d cells with %v, want one", len(found), factors)
			continue
		}

		t.Run(found[0].Label, func(t *testing.T) { checkCell(t, found[0]) })
	}

	if *report != "" {
		checkReport(t, d)
	}

	if *screen != "" {
		checkScreen(t)
	}
}

// Bounds of the one screen of plan quick.
const (
	maxScreenLines = 40
	maxFirstRate   = 8 // the line of the first measured rate
	screenWidth    = 80
)

var sgr = regexp.MustCompile(`\x1b\[[0-9;]*m|\r`)

// checkScreen checks that the result fits on one screen, and begins with the rates.
func checkScreen(t *testing.T) {
	data, err := os.ReadFile(*screen)
	if err != nil {
		t.Fatal(err)
	}

	lines := strings.Split(strings.TrimRight(sgr.ReplaceAllString(string(data), ""), "\n"), "\n")
	if len(lines) > maxScreenLines {
		t.Errorf("the screen has %d lines, max %d", len(lines), maxScreenLines)
	}

	first := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "bit/s") })
	if first < 0 || first >= maxFirstRate {
		t.Errorf("the first rate stands in line %d, max %d", first+1, maxFirstRate)
	}

	for i, l := range lines {
		// the path of the page may be longer
		if n := utf8.RuneCountInString(l); n > screenWidth && !strings.HasPrefix(l, "Report ") {
			t.Errorf("line %d has %d columns: %s", i+1, n, l)
		}
	}
}

func has(c cell, factors map[string]string) bool {
	for name, level := range factors {
		if c.Factors[name] != level {
			return false
		}
	}
	return true
}

func checkCell(t *testing.T, c cell) {
	if c.Grade != "valid" && c.Grade != "suspect" {
		t.Errorf("grade %q, want valid or suspect", c.Grade)
	}

	if c.Grade == "suspect" && len(c.Reasons) == 0 {
		t.Error("suspect without a reason")
	}

	if c.Runs != 3 || c.Failed != 0 {
		t.Errorf("%d runs and %d failed, want 3 and 0", c.Runs, c.Failed)
	}

	path := map[string]string{"offload": "wire", "ip": "4", "topology": "forward"}
	if !has(c, path) {
		t.Errorf("got %v, want %v among them", c.Factors, path)
	}

	efficiency := c.Ceiling.HeaderEfficiency
	if c.Ceiling.Kind != "none: virtual link" || efficiency <= 0 || efficiency >= 1 {
		t.Errorf("ceiling %q with header efficiency %v, want none: virtual link and a ratio", c.Ceiling.Kind,
			efficiency)
	}

	bounds := boundsOf(c)
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		checkValue(t, c, name, bounds[name])
	}
}

// boundsOf returns the metrics that a cell must have and values that are plausible on any machine.
func boundsOf(c cell) map[string][2]float64 {
	bounds := map[string][2]float64{
		"rtt_idle_p50_ns":   {100, 1e9},
		"rtt_loaded_p99_ns": {100, 10e9},
	}
	if c.Factors["protocol"] != "udp" {
		bounds["goodput_bps"] = [2]float64{1e6, 1e12}
		return bounds
	}

	bounds["packet_rate_pps"] = [2]float64{100, 1e9}
	bounds["loss_ratio"] = [2]float64{0, 1}
	if *flooded && c.Metrics["loss_ratio"].Median > .5 { // too few probes return for a 99th percentile
		delete(bounds, "rtt_loaded_p99_ns")
	}

	return bounds
}

func checkValue(t *testing.T, c cell, name string, bounds [2]float64) {
	v, ok := c.Metrics[name]
	if !ok {
		t.Errorf("no %s", name)
		return
	}

	inOrder := slices.IsSorted([]float64{bounds[0], v.Low, v.Median, v.High, bounds[1]})
	if v.N != 3 || !inOrder {
		t.Errorf("%s is %v [%v, %v] with n=%d, want it in order, in %v and n=3", name, v.Median, v.Low,
			v.High, v.N, bounds)
	}

	// One short window has too few probes for a 99th percentile; those of all three together have enough.
	if name == "rtt_loaded_p99_ns" && v.Interval == "pooled" {
		return
	}

	values := slices.Sorted(slices.Values(v.Values))
	if v.Interval != "range" || !slices.Equal(values, []float64{v.Low, v.Median, v.High}) {
		t.Errorf("%s is %v [%v, %v], interval %q; want the range of %v", name, v.Median, v.Low, v.High,
			v.Interval, v.Values)
	}
}

// external matches what a page loads from elsewhere. A link that a reader may follow is none of it.
var external = regexp.MustCompile(`(?i)(src|srcset|data|poster)\s*=\s*["']?\s*(https?:)?//|<link[^>]+href\s*=\s*["']?\s*(https?:)?//|@import|url\(\s*["']?\s*(https?:)?//`)

// maxReport bounds the bytes of the page.
const maxReport = 500_000

// checkReport checks that the page works offline and holds run, cells and reasons.
func checkReport(t *testing.T, d document) {
	page, err := os.ReadFile(*report)
	if err != nil {
		t.Fatal(err)
	}

	fmt.Fprintf(t.Output(), "note: report of %d bytes\n", len(page))
	if len(page) > maxReport {
		t.Errorf("the report has %d bytes, at most %d are allowed", len(page), maxReport)
	}

	m := external.Find(page)
	if m != nil {
		t.Errorf("the report loads something from elsewhere: %q", m)
	}

	want := []string{d.Run.ID, d.Run.Method.Seed}
	for _, c := range d.Cells {
		want = append(want, c.Label)
		for _, r := range c.Reasons {
			want = append(want, r.Text)
		}
	}

	text := html.UnescapeString(string(page))
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("the report lacks %q", w)
		}
	}
}
