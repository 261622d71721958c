package report

import (
	"bytes"
	"encoding/xml"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestBenchstat: benchstat's own reader finds every trial with the values that it has.
func TestBenchstat(t *testing.T) {
	for name, d := range samples() {
		v, want := newView(d), 0
		sums := map[string]float64{}
		for _, c := range v.all {
			for _, x := range v.counted(c) {
				some := 0
				for m, value := range x.Metrics {
					if sums[m] += value; v.metric[m].Better != "" {
						some = 1
					}
				}
				want += some
			}
		}
		r, got := benchfmt.NewReader(bytes.NewReader(Benchstat(d)), name), 0
		for r.Scan() {
			switch line := r.Result().(type) {
			case *benchfmt.SyntaxError:
				t.Errorf("%s: %v", name, line)
			case *benchfmt.Result:
				got++
				for _, value := range line.Values {
					sums[value.Unit] -= value.Value
				}
			}
		}
		if got != want || r.Err() != nil {
			t.Errorf("%s: benchstat reads %d results (%v), want %d", name, got, r.Err(), want)
		}
		for _, m := range d.Metrics {
			if sum := sums[m.Name]; m.Better != "" && (sum > 1e-3 || sum < -1e-3) {
				t.Errorf("%s: %s differs by %g over all trials", name, m.Name, sum)
			}
		}
	}
}

// TestMinistat: each column has the goodput of one cell's trials.
func TestMinistat(t *testing.T) {
	d := smallDocument()
	v := newView(d)
	var rows [][]string
	for line := range strings.Lines(string(Ministat(d))) {
		if !strings.HasPrefix(line, "#") {
			rows = append(rows, strings.Fields(line))
		}
	}
	column := 0
	for _, c := range v.all {
		trials := v.counted(c)
		if len(trials) == 0 || trials[0].Metrics[goodput] == 0 {
			continue
		}
		for i, x := range trials {
			if got, err := strconv.ParseFloat(rows[i][column], 64); err != nil || got != x.Metrics[goodput] {
				t.Errorf("%s, trial %d: got %s, want %g", c.Label, i, rows[i][column], x.Metrics[goodput])
			}
		}
		column++
	}
	if column == 0 || len(rows[0]) != column {
		t.Errorf("got %d columns, want %d", len(rows[0]), column)
	}
}

// sampleLine is a sample of OpenMetrics text 1.0 (its ABNF), of a gauge with labels and without a timestamp.
var sampleLine = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)\{[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*"` +
	`(?:,[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*")*\} (-?[0-9][-+.0-9e]*)$`)

func TestOpenMetrics(t *testing.T) {
	for name, d := range samples() {
		text := string(OpenMetrics(d))
		if !strings.HasSuffix(text, "# EOF\n") {
			t.Errorf("%s: does not end with # EOF", name)
		}
		family, medians := "", 0
		for line := range strings.Lines(strings.TrimSuffix(text, "# EOF\n")) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case strings.HasPrefix(line, "# TYPE "):
				family = strings.Fields(line)[2]
			case strings.HasPrefix(line, "# HELP "+family+" "):
			default:
				found := sampleLine.FindStringSubmatch(line)
				if found == nil || found[1] != family {
					t.Fatalf("%s: no sample of %s: %s", name, family, line)
				}
				if strings.Contains(line, `stat="median"`) {
					medians++
				}
			}
		}
		want := 0
		for _, m := range d.Metrics {
			for _, c := range d.Cells {
				if _, ok := c.Metrics[m.Name]; ok {
					want++
				}
			}
		}
		if medians != want {
			t.Errorf("%s: got %d medians, want %d", name, medians, want)
		}
	}
}

func readJUnit(t *testing.T, text []byte, err error) (s junitSuite) {
	t.Helper()
	if err == nil {
		err = xml.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Cases) != s.Tests {
		t.Errorf("%d tests are counted, there are %d", s.Tests, len(s.Cases))
	}
	return s
}

func TestJUnit(t *testing.T) {
	for name, d := range samples() {
		text, err := JUnit(d)
		s := readJUnit(t, text, err)
		missed, lost := 0, 0
		for _, x := range d.Thresholds {
			if !x.Met {
				missed++
			}
		}
		for _, c := range d.Cells {
			if c.Runs == 0 {
				lost++
			}
		}
		if s.Failures != missed || s.Errors != lost || s.Skipped != len(d.Skipped) {
			t.Errorf("%s: %d failures, %d errors, %d skipped; want %d, %d, %d", name, s.Failures, s.Errors,
				s.Skipped, missed, lost, len(d.Skipped))
		}
	}
	a, b := record.Factors{"tunnel": "none"}, record.Factors{"tunnel": "wireguard"}
	text, err := ComparisonJUnit(&analysis.RunComparison{Regressions: []analysis.Regression{
		{Factors: a, Text: hostile}, {Factors: a, Text: "slower", Suspect: true}},
		Comparisons: []comparison.Comparison{{Factors: a}, {Factors: b}, {Factors: b}}},
		map[string]string{a.Key(): "none", b.Key(): "wireguard"})
	s := readJUnit(t, text, err)
	if s.Tests != 2 || s.Failures != 1 ||
		!strings.HasSuffix(s.Cases[0].Failure.Message, "; slower (suspect)") {
		t.Errorf("comparison: got %+v", s)
	}
}

func TestWGBench(t *testing.T) {
	form := regexp.MustCompile(`^\| [^|\n]+ \| [^|\n]+ \| [0-9.]+ [KMG]?bits/sec \| (?:[^|\n]|\\\|)+ \|$`)
	for name, d := range samples() {
		for line := range strings.Lines(string(WGBench(d))) {
			if !form.MatchString(strings.TrimSuffix(line, "\n")) {
				t.Errorf("%s: %q is no row", name, line)
			}
		}
	}
	if rows := string(WGBench(sweepDocument())); strings.Count(rows, "\n") != 4 {
		t.Errorf("got %q, want a row for each of four cells with WireGuard", rows)
	}
	for bps, want := range map[float64]string{943e6: "943 Mbits/sec", 1.5e9: "1.5 Gbits/sec",
		12: "12 bits/sec"} {
		if got := wgRate(bps); got != want {
			t.Errorf("%g: got %s, want %s", bps, got, want)
		}
	}
}
