package diagnosis_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var (
	half   = flag.String("half", "tuning", "the half to score: tuning or test")
	update = flag.Bool("update", false, "rewrite the figures, and by those of the test half its page")
)

const (
	page    = "../../docs/diagnosis.md"
	testLog = "testdata/test-half.log"
)

func figuresFile(half string) string { return filepath.Join("testdata", "figures-"+half+".json") }

// outcomes scores the instances of a half.
func outcomes(t testing.TB, half string) []outcome {
	if all, ok := diagnosed[half]; ok {
		return all
	}
	var all []outcome
	if half == "tuning" {
		for _, e := range examples(t) {
			if e.Planted == nil && e.d != nil {
				all = append(all, e.outcome)
			}
		}
		return all
	}
	list, stored := source(t)
	load(t, list, stored, func(r recorded) bool { return tuning(r.ID) == (half == "tuning") },
		func(x *aRun, of []recorded) { all = append(all, diagnose(x, of)...) })
	diagnosed[half] = all
	return all
}

// diagnosed keeps the outcomes of a half for the next test.
var diagnosed = map[string][]outcome{}

// TestAccuracy scores the rules on a half of the suite. A figure that is lower than the committed one is a
// failure. Each look at the test half is noted.
func TestAccuracy(t *testing.T) {
	if *half != "tuning" && *half != "test" {
		t.Fatalf("-half %s: it is tuning or test", *half)
	}
	began := time.Now()
	all := outcomes(t, *half)
	f := accuracy(*half, all)
	t.Logf("%d instances scored in %s\n\n%s", len(all), time.Since(began).Round(time.Millisecond),
		f.markdown())
	for _, o := range all {
		if len(o.Truths) == 0 && o.d.Class != diagnosis.Unknown ||
			len(o.Truths) > 0 && o.d.Class != o.Truths[0].Class {
			t.Logf("%s (%s %s) is %v, said: %s %.0f %%: %s", o.ID, o.Run, strings.Join(o.Trials, " "),
				o.Truths, o.d.Class, 100*o.d.Confidence, o.d.Text)
		}
	}
	if *half == "test" {
		note(t, f)
	}
	if *keepDir != "" {
		return // another recording than the committed one has figures of its own
	}
	if *update {
		writeFigures(t, f)
		return
	}
	before, ok := readFigures(t, *half)
	if !ok {
		t.Skip("skip: no figures are committed yet: -update writes them")
	}
	for _, why := range f.lowered(before) {
		t.Error(why)
	}
}

// note adds a look at the test half to the log that is kept.
func note(t *testing.T, f figures) {
	file, err := os.OpenFile(testLog, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(file, "%s top-1 %s; top-2 %s; unknown %s; false alarms %s\n",
		time.Now().UTC().Format(time.RFC3339), f.Top1, f.Top2, f.Unknown, f.Alarms)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

func writeFigures(t *testing.T, f figures) {
	writeJSON(t, figuresFile(f.Half), f)
	if f.Half == "test" {
		if err := os.WriteFile(page, []byte(pageOf(f, true, readMechanismFigures(t))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func writeJSON(t *testing.T, file string, v any) {
	text, err := json.MarshalIndent(v, "", " ")
	if err == nil {
		err = os.WriteFile(file, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func readFigures(t *testing.T, half string) (f figures, ok bool) {
	text, err := os.ReadFile(figuresFile(half))
	if errors.Is(err, os.ErrNotExist) {
		return f, false
	}
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f, true
}

// TestPage holds docs/diagnosis.md to the figures of the test half.
func TestPage(t *testing.T) {
	f, ok := readFigures(t, "test")
	want := pageOf(f, ok, readMechanismFigures(t))
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil || string(got) != want {
		t.Errorf("docs/diagnosis.md is not that of the figures (%v): go test ./bench/diagnosis -update", err)
	}
}

// pageOf is docs/diagnosis.md.
func pageOf(f figures, scored bool, of mechanismFigures) string {
	text := "The test half has not been scored yet: no recording is committed.\n"
	if scored {
		text = f.markdown()
	}
	frame, err := os.ReadFile("testdata/page.md")
	if err != nil {
		return err.Error()
	}
	text = strings.Replace(string(frame), "FIGURES\n", text, 1)
	text = strings.Replace(text, "LEFTOUT\n", readLeftOut().markdown(), 1)
	return strings.Replace(text, "MECHANISMS\n", of.markdown(), 1)
}

// TestReducedTrialsAreDiagnosedAlike: of committed trials whose tables go on before and after the window
// the rules say the same once they are reduced. TestPack holds every trial that it packs to it.
func TestReducedTrialsAreDiagnosedAlike(t *testing.T) {
	run, trials := firstRun(t)
	was := 0
	for i := range trials {
		for _, n := range trials[i].Nodes {
			for _, s := range n.Samples {
				was += rowsAround(s.Table)
			}
		}
	}
	before := analysis.Derive(run, trials)
	now, compared := 0, 0
	for i := range trials {
		reduce(&trials[i])
		for _, n := range trials[i].Nodes {
			for _, s := range n.Samples {
				if s.Table != nil {
					now += len(s.Table.T)
				}
			}
		}
	}
	after := analysis.Derive(run, trials)
	for i, c := range before.Cells {
		if c.Diagnosis == nil {
			continue
		}
		compared++
		if why := differ(c.Diagnosis, after.Cells[i].Diagnosis); why != "" {
			t.Errorf("cell %s: %s", c.Label, why)
		}
	}
	if compared == 0 || now >= was {
		t.Errorf("%d cells compared, of %d rows %d are left: want some, and less", compared, was, now)
	}
}

// rowsAround adds rows far before and after those that a table has, which say what its ends say, and counts
// them all.
func rowsAround(t *record.Table) int {
	if t == nil || len(t.T) == 0 {
		return 0
	}
	const far = int64(5e9)
	t.T = append([]int64{t.T[0] - far}, append(t.T, t.T[len(t.T)-1]+far)...)
	for i, v := range t.V {
		t.V[i] = append([]float64{v[0]}, append(v, v[len(v)-1])...)
	}
	return len(t.T)
}

// firstRun is the committed recording's first run.
func firstRun(t *testing.T) (record.Run, []record.Trial) {
	list, stored := source(t)
	var first *aRun
	load(t, list, stored, func(recorded) bool { return first == nil }, func(x *aRun, _ []recorded) {
		if first == nil {
			first = x
		}
	})
	if first == nil {
		t.Skip("skip: nothing is recorded yet")
	}
	return first.Run, first.trials
}

// BenchmarkDiagnose is what one trial takes: its numbers, its validity and the rules.
func BenchmarkDiagnose(b *testing.B) {
	list, stored := source(b)
	var run *aRun
	load(b, list, stored, func(recorded) bool { return run == nil }, func(x *aRun, _ []recorded) { run = x })
	if run == nil {
		b.Skip("skip: nothing is recorded yet")
	}
	trials := slices.DeleteFunc(run.trials, func(t record.Trial) bool { return t.Row.Kind != record.RowLoad })
	for i := 0; b.Loop(); i++ {
		analysis.Candidate(&run.Run, trials[i%len(trials)])
	}
}

// BenchmarkStored is the same of a trial that is read from a store, and of the document that it makes.
func BenchmarkStored(b *testing.B) {
	trials, began := 0, time.Now()
	for b.Loop() {
		list, stored := source(b)
		load(b, list, stored, func(recorded) bool { return true }, func(x *aRun, _ []recorded) {
			trials += len(x.trials)
			x.document()
		})
	}
	b.ReportMetric(float64(time.Since(began).Milliseconds())/float64(max(trials, 1)), "ms/trial")
}

// TestWilson holds the interval to published values (Brown, Cai and DasGupta 2001 give its formula), and
// the score to what it counts.
func TestWilson(t *testing.T) {
	for _, tt := range []struct {
		c         count
		low, high float64
	}{{count{0, 10}, 0, .2775}, {count{10, 10}, .7225, 1}, {count{5, 10}, .2366, .7634}} {
		low, high := rig.Wilson(tt.c.Right, tt.c.Of)
		if math.Abs(low-tt.low) > 1e-4 || math.Abs(high-tt.high) > 1e-4 {
			t.Errorf("%d of %d: got %.4f to %.4f, want %.4f to %.4f", tt.c.Right, tt.c.Of, low, high,
				tt.low, tt.high)
		}
	}
}

// TestScores: of planted answers, what is right and what is wrong.
func TestScores(t *testing.T) {
	say := func(kind string, truths []truth, causes ...diagnosis.Cause) outcome {
		d := &diagnosis.Diagnosis{Class: diagnosis.Unknown, Causes: causes}
		if len(causes) > 0 {
			d.Class, d.Confidence = causes[0].Class, .9
		}
		in := instance{ID: kind + "#00", Kind: kind}
		return outcome{recorded: recorded{instance: in, Truths: truths}, d: d}
	}
	at := func(class, node string) diagnosis.Cause { return diagnosis.Cause{Class: class, Node: node} }
	f := accuracy("test", []outcome{
		say(kindFault, []truth{{"router", "", "rule-list"}}, at("rule-list", "router")),
		say(kindFault, []truth{{"router", "", "rule-list"}}, at("log-flood", "router"),
			at("rule-list", "router")),
		say(kindFault, []truth{{"router", "", "rule-list"}}),
		say(kindTwo, []truth{{"router", "", "a"}, {"router", "", "b"}}, at("a", "client"), at("b", "router")),
		say(kindHealthy, []truth{{Class: diagnosis.Healthy}}, at(diagnosis.Healthy, "")),
		say(kindHealthy, []truth{{Class: diagnosis.Healthy}}, at("rule-list", "router")),
		say(kindUnknown, nil), say(kindUnknown, nil, at("rule-list", "router")),
	})
	for what, c := range map[string][2]count{"top-1": {f.Top1, {2, 4}}, "top-2": {f.Top2, {3, 4}},
		"unknown": {f.Unknown, {1, 2}}, "alarms": {f.Alarms, {1, 2}}, "localised": {f.Localised, {2, 4}},
		"detected": {f.Detected, {7, 8}}} {
		if c[0] != c[1] {
			t.Errorf("%s: got %v, want %v", what, c[0], c[1])
		}
	}
	worse := f
	worse.Top1.Right--
	worse.Alarms.Right++
	if why := worse.lowered(f); len(why) != 2 || len(f.lowered(f)) != 0 {
		t.Errorf("what is worse: %q, want two; and none of the same", why)
	}
}
