package diagnosis_test

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var update = flag.Bool("update", false, "rewrite the figures, and the page that has them")

const page = "../../docs/diagnosis.md"

func writeJSON(t *testing.T, file string, v any) {
	text, err := json.MarshalIndent(v, "", " ")
	if err == nil {
		err = os.WriteFile(file, append(text, '\n'), 0o644)
	}

	if err != nil {
		t.Fatal(err)
	}
}

// TestPage holds docs/diagnosis.md to the figures.
func TestPage(t *testing.T) {
	frame, err := template.ParseFiles("testdata/page.md")
	if err != nil {
		t.Fatal(err)
	}

	l := readFigures[ledgerFigures](t, ledgerFile)
	var text strings.Builder
	err = frame.Execute(&text, map[string]any{
		"Ledgers":      l,
		"LocatedAlone": count{l.Located.Right - l.Packets.Right, l.Packets.Of},
		"LeftOut":      readFigures[leftOut](t, leftOutFile).markdown(),
		"Mechanisms":   readFigures[mechanismFigures](t, mechanismFile).markdown(),
	})
	if err != nil {
		t.Fatal(err)
	}

	want := text.String()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	got, err := os.ReadFile(page)
	if err != nil || string(got) != want {
		t.Errorf("docs/diagnosis.md is not that of the figures (%v): go -C bench test ./diagnosis -run "+
			"TestPage -update", err)
	}
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
		why := differ(c.Diagnosis, after.Cells[i].Diagnosis)
		if why != "" {
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

// firstRun reads the first run of the recording.
func firstRun(t testing.TB) (record.Run, []record.Trial) {
	list, stored := source(t)
	for x := range load(t, list, stored) {
		return x.Run, x.Trials
	}

	t.Fatal("the recording has no run")
	return record.Run{}, nil
}

// BenchmarkDiagnose times the diagnosis of one trial: its numbers, its validity and the rules.
func BenchmarkDiagnose(b *testing.B) {
	run, trials := firstRun(b)
	trials = slices.DeleteFunc(trials, func(t record.Trial) bool { return t.Row.Kind != record.RowLoad })
	for i := 0; b.Loop(); i++ {
		analysis.Brief(&run, trials[i%len(trials)])
	}
}

// BenchmarkStored times the same for a trial that is read from a store, and the document that it makes.
func BenchmarkStored(b *testing.B) {
	trials := 0
	began := time.Now()
	for b.Loop() {
		list, stored := source(b)
		for x := range load(b, list, stored) {
			trials += len(x.Trials)
			x.document()
		}
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
