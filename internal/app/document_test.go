package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// TestDocumentOfFile: a document that was printed gives the page that its run gives. One from elsewhere may
// lack anything: no part that is missing stops the program.
func TestDocumentOfFile(t *testing.T) {
	d := Dirs{Data: filepath.Join(t.TempDir(), "chokepoint")}
	if err := labtest.WriteSample(t.Context(), d.StoreFile(), "good"); err != nil {
		t.Fatal(err)
	}

	stored, err := d.Document(t.Context(), labtest.Samples["good"].ID)
	if err != nil {
		t.Fatal(err)
	}

	want, err := report.HTML(stored)
	if err != nil {
		t.Fatal(err)
	}

	text, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}

	read := func(text []byte) (*analysis.Document, error) {
		file := filepath.Join(t.TempDir(), "run.json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return d.Document(t.Context(), file)
	}
	plan, err := d.PlanText(t.Context(), "run.json")
	if err != nil || plan != "" {
		t.Errorf("plan of a file: got %q, %v, want none", plan, err)
	}

	again, err := read(text)
	if err != nil {
		t.Fatal(err)
	}

	got, err := report.HTML(again)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the page of the file differs from that of the run: %v", err)
	}

	elsewhere := `{"format":"chokepoint/1","run":{"id":"../../x"}}` // an id that is a path
	for _, text := range []string{"", "{", "[]", `{"format":"chokepoint/1"}`, elsewhere,
		`{"format":"x","run":{"id":"20260101-010101-aaaa"}}`} {
		if _, err := read([]byte(text)); !errors.Is(err, ErrUsage) {
			t.Errorf("%q: got %v, want a usage error", text, err)
		}
	}

	if _, err := d.Document(t.Context(), filepath.Join(t.TempDir(), "none.json")); !errors.Is(err, ErrUsage) {
		t.Errorf("no file: got %v, want a usage error", err)
	}

	var whole any
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}

	stored.Verdicts[0].Shown = len(stored.Verdicts[0].Cells)
	if text, err = json.Marshal(stored); err != nil {
		t.Fatal(err)
	}

	if d, err := read(text); err != nil || len(d.Verdicts) != len(stored.Verdicts)-1 {
		t.Errorf("a verdict that is shown by a cell that it lacks: got %v, %v", d, err)
	}

	leavingOut(whole, func(path string) {
		text, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}

		d, err := read(text)
		if err != nil {
			return
		}

		defer func() {
			if p := recover(); p != nil {
				t.Errorf("without %s: %v", path, p)
			}
		}()
		if strings.Count(path, ".") <= 2 { // the page takes the longest
			if _, err := report.HTML(d); err != nil {
				t.Logf("without %s: %v", path, err)
			}
		}

		_ = report.Text(d, 80, false)
		_ = report.Screen(d, 80, false)
		_ = analysis.CompareRuns(stored, d)
	})
}

// leavingOut calls f with each value of a JSON tree left out in turn, of a list with its first element alone.
func leavingOut(tree any, f func(path string)) {
	var walk func(node any, path string)
	walk = func(node any, path string) {
		switch node := node.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(node)) {
				value := node[key]
				delete(node, key)
				f(path + "." + key)
				node[key] = value
				walk(value, path+"."+key)
			}
		case []any:
			if len(node) > 0 {
				walk(node[0], path+"[0]")
			}
		}
	}
	walk(tree, "")
}
