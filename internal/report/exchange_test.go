package report

import (
	"encoding/xml"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// must is a text that can be written.
func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}

// importedDocument is a run that iperf3 measured.
func importedDocument() *analysis.Document {
	d := sweepDocument()
	d.Run.Plan = "imported"
	d.Run.Lab = record.LabImported
	d.Run.ImportedFrom = []string{"iperf3 3.12"}
	d.Caveats = []record.Caveat{{
		Kind: "foreign",
		Text: "iperf3 3.12 measured this, not chokepoint; its " +
			"results lack: telemetry of the nodes",
	}}
	return d
}

// TestForeignIsSaid: every form says what measured an imported run, and but for a row of wg-bench and a line
// of CSV what it lacks. None claims it.
func TestForeignIsSaid(t *testing.T) {
	d := importedDocument()
	comparison := &analysis.RunComparison{A: d.Run, B: d.Run}
	for name, tt := range map[string]struct {
		text  []byte
		lacks bool
	}{
		"benchstat":        {Benchstat(d), true},
		"ministat":         {must(Ministat(d)), true},
		"openmetrics":      {OpenMetrics(d), true},
		"junit":            {must(JUnit(d, false)), true},
		"junit of compare": {must(ComparisonJUnit(comparison, nil, false)), false},
		"wg-bench":         {must(WGBench(d)), false},
		"csv":              {must(CSV(d)), false},
		"csv-long":         {must(CSVLong(d)), false},
		"md":               {must(Markdown(d)), true},
		"html":             {must(HTML(d)), true},
		"json":             {must(JSON(d)), true},
		"text":             {[]byte(strings.Join(strings.Fields(Text(d, 100, false)), " ")), true},
	} {
		text := string(tt.text)
		if !strings.Contains(text, "iperf3 3.12") ||
			tt.lacks && !strings.Contains(text, "telemetry of the nodes") {
			t.Errorf("%s does not tell what measured the run, or what it lacks:\n%.600s", name, text)
		}

		if strings.Contains(text, "measured by chokepoint") {
			t.Errorf("%s says that chokepoint measured it", name)
		}
	}

	golden(t, "imported.benchstat", Benchstat(d))
	for line := range strings.Lines(string(OpenMetrics(d))) {
		if strings.HasPrefix(line, "chokepoint_cell_info{") && !strings.Contains(line,
			`,measured_by="iperf3 3.12"`) {
			t.Fatalf("no cell that iperf3 measured: %s", line)
		}
	}

	text, err := JUnit(d, false)
	s := readJUnit(t, text, err)
	if len(s.Properties) != 2 {
		t.Errorf("junit: got the properties %+v", s.Properties)
	}
}

// TestForeignIsNotOurs: what is said of our own method is not said of another program's.
func TestForeignIsNotOurs(t *testing.T) {
	for form, text := range shown(t, importedDocument()) {
		for _, wrong := range []string{"at the receiver", "counted by the receiver", "come from a UDP echo",
			"warm-up is excluded", "Payload that arrived in the window", "Observing cost"} {
			if strings.Contains(text, wrong) {
				t.Errorf("%s says %q of what iperf3 measured", form, wrong)
			}
		}

		if !strings.Contains(text, "as iperf3 3.12 counted it") {
			t.Errorf("%s does not say who counted", form)
		}
	}
}

// TestNothingToWrite: a run without what a form is for is refused with what else there is.
func TestNothingToWrite(t *testing.T) {
	d := samples()["empty"]
	for name, write := range map[string]func(*analysis.Document) ([]byte, error){"ministat": Ministat,
		"wg-bench": WGBench} {
		text, err := write(d)
		if err == nil || len(text) > 0 || check.HintOf(err) == "" ||
			!strings.Contains(err.Error(), d.Run.ID) {
			t.Errorf("%s: got %q and %v (hint %q), want an error that names the run", name, text, err,
				check.HintOf(err))
		}
	}

	d = cipherDocument()
	for i, c := range d.Cells {
		values := map[string]float64{}
		for name, x := range c.Metrics {
			values[name] = x.Median
		}

		d.Trials = append(d.Trials, analysis.TrialView{
			Row:        strconv.Itoa(i),
			Assignment: record.Assignment{Kind: record.RowLoad, Factors: c.Factors},
			Metrics:    values,
		})
	}

	ciphers := string(must(Ministat(d)))
	if !strings.Contains(ciphers, "\n# no column, because without "+
		metrics.Label(metrics.CipherRate)+": x25519") {
		t.Errorf("of a crypto run: %q, want that keys have no speed in bits", ciphers)
	}

	if !strings.Contains(ciphers, "bit/s; ministat") || len(strings.Split(ciphers, "\n")) < 4 {
		t.Errorf("of a crypto run: %q, want the speed of each cipher", ciphers)
	}
}

// TestBenchstat: every trial is a line with the values that it has. Tests of bench/oracle hold benchstat's
// own reader to find the same in the golden files.
func TestBenchstat(t *testing.T) {
	all := 0
	for name, d := range samples() {
		v := newView(d)
		want := 0
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

		text := Benchstat(d)
		golden(t, name+".benchstat", text)
		got := 0
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "Benchmark") {
				continue
			}

			got++
			for pair := range slices.Chunk(strings.Fields(line)[2:], 2) {
				value, err := strconv.ParseFloat(pair[0], 64)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}

				sums[pair[1]] -= value
			}
		}

		if got != want {
			t.Errorf("%s: got %d lines of trials, want %d", name, got, want)
		}

		all += got
		for _, m := range d.Metrics {
			sum := sums[m.Name]
			if m.Better != "" && (sum > 1e-3 || sum < -1e-3) {
				t.Errorf("%s: %s differs by %g over all trials", name, m.Name, sum)
			}
		}
	}

	if all < 100 {
		t.Errorf("only %d trials have a line", all)
	}
}

// TestMinistat: each column has the goodput of one cell's trials, and nothing else, also where another cell
// has fewer.
func TestMinistat(t *testing.T) {
	d := smallDocument()
	d.Trials = slices.DeleteFunc(d.Trials, func(x analysis.TrialView) bool {
		return x.Block == 2 && x.Factors.Key() == d.Cells[0].Factors.Key()
	})
	v := newView(d)
	labels := map[string]int{}
	columns := map[int][]string{}
	for line := range strings.Lines(string(must(Ministat(d)))) {
		if number, label, ok := strings.Cut(strings.TrimPrefix(line, "# "), ": "); ok {
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}

			label, words, _ := strings.Cut(label, ": median of ")
			if !strings.HasSuffix(words, ", valid\n") {
				t.Errorf("column %d is of %q, without its validity", n, words)
			}

			labels[strings.TrimSpace(label)] = n
		} else if !strings.HasPrefix(line, "#") {
			for i, value := range strings.Fields(line) {
				columns[i+1] = append(columns[i+1], value)
			}
		}
	}

	lengths := map[int]bool{}
	for _, c := range v.all {
		var want []string
		for _, x := range v.counted(c) {
			if bps, ok := x.Metrics[goodput]; ok {
				want = append(want, strconv.FormatFloat(bps, 'f', -1, 64))
			}
		}

		lengths[len(want)] = true
		got := columns[labels[printable(c.Label)]]
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", c.Label, got, want)
		}
	}

	if len(lengths) < 2 {
		t.Errorf("all cells have as many trials: %v", lengths)
	}
}

// sampleLine is a sample of OpenMetrics text 1.0 (its ABNF), of a gauge with labels and without a timestamp.
var sampleLine = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)\{[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*"` +
	`(?:,[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*")*\} (-?[0-9][-+.0-9e]*)$`)

var (
	idLabel = regexp.MustCompile(`[{,]id="[0-9a-f]{10}"[,}]`)
	// ofRun is a label that another run of the same plan may change.
	ofRun = regexp.MustCompile(`[{,](?:run|cell|validity|reasons|measured_by)="`)
)

func TestOpenMetrics(t *testing.T) {
	for name, d := range samples() {
		text := string(OpenMetrics(d))
		if !strings.HasSuffix(text, "# EOF\n") {
			t.Errorf("%s: does not end with # EOF", name)
		}

		family := ""
		medians := 0
		counts := 0
		for line := range strings.Lines(strings.TrimSuffix(text, "# EOF\n")) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case strings.HasPrefix(line, "# TYPE "):
				family = strings.Fields(line)[2]
			case strings.HasPrefix(line, "# HELP "+family+" "):
			case strings.HasPrefix(line, "# UNIT "):
				if !strings.HasPrefix(line, "# UNIT "+family+" ") || !strings.HasSuffix(family, "_"+strings.
					Fields(line)[3]) {
					t.Errorf("%s: the name %s does not end with the unit: %s", name, family, line)
				}
			default:
				found := sampleLine.FindStringSubmatch(line)
				if found == nil || found[1] != family {
					t.Fatalf("%s: no sample of %s: %s", name, family, line)
				}

				if strings.Contains(line, `stat="median"`) {
					medians++
				}

				if strings.HasPrefix(line, "chokepoint_trials{") {
					counts++
				}

				whole := strings.HasPrefix(line, "chokepoint_requirement_met{requirement=") // of no cell
				if !whole && !idLabel.MatchString(line) || ofRun.MatchString(line) != (family ==
					"chokepoint_cell_info") {
					t.Errorf("%s: no id, or a label of the run: %s", name, line)
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

		if medians != want || counts != want {
			t.Errorf("%s: got %d medians of %d counts of trials, want %d", name, medians, counts, want)
		}

		for sample, want := range map[string]int{
			"chokepoint_cell_valid{":                    len(d.Cells) + len(d.Skipped),
			"chokepoint_cell_info{":                     len(d.Cells) + len(d.Skipped),
			"chokepoint_requirement_met{requirement=\"": len(d.Thresholds),
		} {
			n := strings.Count(text, "\n"+sample)
			if n != want {
				t.Errorf("%s: %d samples of %s, want %d", name, n, sample, want)
			}
		}
	}

	d := smallDocument()
	d.Cells[0].Metrics[idleP50] = statistics.Summarise([]float64{20e3, 30e3, 25e3})
	text := string(OpenMetrics(d))
	for _, want := range []string{`stat="median"} 2.5e-05`, `stat="low",interval="range"} 2e-05`,
		"# UNIT chokepoint_rtt_idle_p50_seconds seconds\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("got no %q: %s", want, text)
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
		text, err := JUnit(d, false)
		s := readJUnit(t, text, err)
		missed, lost := 0, 0
		for _, x := range d.Thresholds {
			if !x.Met {
				missed++
			}
		}

		skipped := len(d.Skipped)
		grades := map[string]string{}
		for _, c := range d.Cells {
			grades[c.Factors.Key()] = c.Grade
			if c.Runs == 0 && c.Grade != evidence.GradeNotReached {
				lost++
			} else if c.Grade != evidence.GradeValid {
				skipped++
			}
		}

		for _, x := range d.Thresholds {
			if x.Met && grades[x.Factors.Key()] == evidence.GradeSuspect {
				skipped++
			}
		}

		if s.Failures != missed || s.Errors != lost || s.Skipped != skipped {
			t.Errorf("%s: %d failures, %d errors, %d skipped; want %d, %d, %d", name, s.Failures, s.Errors,
				s.Skipped, missed, lost, skipped)
		}

		for _, c := range s.Cases {
			passes := c.Class == "cell" && c.Error == nil && c.Skipped == nil
			if passes && !(strings.Contains(c.Out, "median of") && strings.HasSuffix(c.Out, ", valid")) {
				t.Errorf("%s: the output of %s is %q", name, c.Name, c.Out)
			}
		}
	}

	cut := interruptedDocument()
	cut.Thresholds = []comparison.Threshold{{
		Requirement: "goodput >= 1G",
		Factors:     cut.Cells[0].Factors,
		Validity:    evidence.GradeNotReached,
		Reason:      "the cell was not reached",
	}}
	text, err := JUnit(cut, false)
	s := readJUnit(t, text, err)
	if got := s.Cases[3]; got.Skipped == nil ||
		got.Skipped.Message != "not checked: the cell was not reached" {
		t.Errorf("requirement of a cell that was not reached: got %+v", got)
	}

	if n := strings.Count(string(OpenMetrics(cut)), "chokepoint_requirement_met"); n > 0 {
		t.Errorf("a requirement that was not checked has %d samples", n)
	}

	want := "not reached: the run was interrupted (Ctrl-C)"
	for _, c := range s.Cases[:3] {
		if c.Skipped == nil || c.Skipped.Message != want {
			t.Errorf("%s: got %+v, want it skipped: %s", c.Name, c.Skipped, want)
		}
	}

	text, err = JUnit(damagedDocument(), true)
	s = readJUnit(t, text, err)
	suspect := 0
	for _, c := range s.Cases {
		if c.Skipped != nil && strings.Contains(c.Skipped.Message, "suspect") {
			t.Errorf("strict: %s is skipped: %s", c.Name, c.Skipped.Message)
		}

		if c.Class == "cell" && c.Failure != nil && strings.HasPrefix(c.Failure.Message, "suspect: ") {
			suspect++
		}
	}

	if suspect == 0 {
		t.Error("strict: no suspect cell fails")
	}

	a := record.Factors{"tunnel": "none"}
	b := record.Factors{"tunnel": "wireguard"}
	doubted := record.Factors{"tunnel": "openvpn"}
	compared := &analysis.RunComparison{
		Regressions: []analysis.Regression{{Factors: a, Text: hostile},
			{Factors: doubted, Text: "slower", Suspect: true}},
		Comparisons: []comparison.Comparison{{Factors: a, Metric: goodput, Ratio: .5},
			{Factors: b, Verdict: statistics.TooFew()}, {Factors: b, Verdict: statistics.TooFew()}},
	}
	labels := map[string]string{a.Key(): "none", b.Key(): "wireguard", doubted.Key(): "openvpn"}
	for strict, want := range map[bool][3]int{false: {3, 1, 2}, true: {3, 2, 1}} {
		text, err = ComparisonJUnit(compared, labels, strict)
		s = readJUnit(t, text, err)
		if got := [3]int{s.Tests, s.Failures, s.Skipped}; got != want {
			t.Errorf("comparison, strict %v: got %d tests, failures and skipped, want %d", strict, got, want)
		}

		if got := propertyOf(s.Cases[0], goodput+"_ratio"); got != "0.5" {
			t.Errorf("comparison: got the ratio %q, want 0.5", got)
		}

		if got := propertyOf(s.Cases[1], "id"); got != doubted.ID() {
			t.Errorf("comparison: got the id %q, want %q", got, doubted.ID())
		}
	}
}

// propertyOf returns the value of a test's property, "" if it has none of the name.
func propertyOf(c junitCase, name string) string {
	for _, p := range c.Properties {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}

// TestJUnitHasTheNumbers: the properties of a cell's test, and of a requirement's, are what the document has.
func TestJUnitHasTheNumbers(t *testing.T) {
	d := sampleDocument()
	d.Thresholds = append(d.Thresholds, comparison.Threshold{
		Requirement: "validity = valid",
		Factors:     d.Cells[0].Factors,
		Metric:      record.Validity,
		Op:          "=",
		Validity:    evidence.GradeSuspect,
		Reason:      "the cell is suspect",
	})
	text, err := JUnit(d, false)
	s := readJUnit(t, text, err)
	for i, c := range d.Cells {
		got := s.Cases[i]
		if propertyOf(got, "id") != c.Factors.ID() || propertyOf(got, "validity") != c.Grade {
			t.Errorf("%s: got %+v", c.Label, got.Properties)
		}

		x := c.Metrics[goodput]
		want := []string{decimal(x.Median), "bit/s", decimal(x.Low), decimal(x.High), strconv.Itoa(x.N)}
		for k, name := range []string{"median", "unit", "low", "high", "n"} {
			if value := propertyOf(got, goodput+"_"+name); value != want[k] {
				t.Errorf("%s: %s is %q, want %q", c.Label, name, value, want[k])
			}
		}
	}

	skipped := s.Cases[len(s.Cases)-1]
	if want := d.Skipped[0].Factors.ID(); propertyOf(skipped, "id") != want ||
		propertyOf(skipped, "validity") != evidence.GradeSkipped || !strings.Contains(skipped.Name, "cake") {
		t.Errorf("skipped: got %s with %+v, want the id %s", skipped.Name, skipped.Properties, want)
	}

	first := s.Cases[len(d.Cells)]
	limit := d.Thresholds[0]
	if propertyOf(first, "metric") != limit.Metric ||
		propertyOf(first, "limit") != limit.Op+" "+decimal(limit.Limit) || propertyOf(first, "unit") == "" {
		t.Errorf("requirement: got %+v of %+v", first.Properties, limit)
	}

	valid := s.Cases[len(d.Cells)+len(d.Thresholds)-1]
	if valid.Failure == nil || valid.Failure.Message != "the cell is suspect" ||
		propertyOf(valid, "limit") != "" {
		t.Errorf("validity: got %+v", valid)
	}
}

func TestWGBench(t *testing.T) {
	form := regexp.MustCompile(`^\| [^|\n]+ \| [^|\n]+ \| [0-9.]+ [KMG]?bits/sec \| (?:[^|\n]|\\\|)+ \|$`)
	for name, d := range samples() {
		rows, err := WGBench(d)
		hint := check.HintOf(err)
		if len(rows) == 0 && (err == nil || hint == "") {
			t.Errorf("%s: no row, and the error is %v with the hint %q", name, err, hint)
		}

		for line := range strings.Lines(string(rows)) {
			if !form.MatchString(strings.TrimSuffix(line, "\n")) {
				t.Errorf("%s: %q is no row", name, line)
			}
		}
	}

	if rows := string(must(WGBench(sweepDocument()))); strings.Count(rows, "\n") != 4 {
		t.Errorf("got %q, want a row for each of four cells with WireGuard", rows)
	}

	for bps, want := range map[float64]string{943e6: "943 Mbits/sec", 1.5e9: "1.5 Gbits/sec",
		12: "12 bits/sec"} {
		got := wgRate(bps)
		if got != want {
			t.Errorf("%g: got %s, want %s", bps, got, want)
		}
	}
}

// TestTrialWords: a file that holds one trial says how valid it is, and of how many trials its cell is.
func TestTrialWords(t *testing.T) {
	for name, d := range samples() {
		words := TrialWords(d)
		if len(words) != len(d.Trials) {
			t.Errorf("%s: got words of %d trials, want %d", name, len(words), len(d.Trials))
		}

		for _, x := range d.Trials {
			got := words[x.ID]
			for _, r := range x.Reasons {
				if !strings.Contains(got, r.Kind) {
					t.Errorf("%s: %s: got %q, want it to have %s", name, x.ID, got, r.Kind)
				}
			}

			if !strings.HasPrefix(got, "validity: "+x.Grade) {
				t.Errorf("%s: %s: got %q, want the grade %s first", name, x.ID, got, x.Grade)
			}

			if x.Kind == record.RowLoad && !strings.Contains(got, "; its cell, of ") {
				t.Errorf("%s: %s: got %q, want what its cell came to", name, x.ID, got)
			}
		}
	}
}
