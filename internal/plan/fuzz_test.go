package plan_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/google/go-cmp/cmp"
)

// FuzzRead: no input panics; an error is an *Error and comes without a plan; what is read expands to blocks
// that hold every cell once.
func FuzzRead(f *testing.F) {
	for _, pattern := range []string{"plans/*.yaml", "testdata/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %v, %d files", pattern, err, len(files))
		}

		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}

			f.Add(data, "method.runs=2")
		}
	}

	for _, tc := range badFiles {
		if len(tc.text) < 10000 {
			f.Add([]byte(tc.text), "include.0.streams=1,2")
		}
	}

	f.Fuzz(func(t *testing.T, data []byte, set string) {
		var sets []string
		if set != "" {
			sets = append(sets, set)
		}

		p, err := plan.Read("fuzz.yaml", data, words(), sets)
		if err != nil {
			var e *plan.Error
			if p != nil || !errors.As(err, &e) || e.Text == "" || e.File == "" {
				t.Fatalf("got %v, %#v, want no plan and an *Error with place and text", p, err)
			}

			if e.File == "fuzz.yaml" && (e.Line < 1 || e.Column < 1) {
				t.Fatalf("got no line and column: %v", err)
			}

			return
		}

		if len(p.Cells()) > 200 {
			return
		}

		want := sorted(keys(p.Cells()))
		for _, k := range []int{1, 2} {
			var got []string
			for _, row := range p.Block(k) {
				if row.OfCell() {
					got = append(got, row.Cell())
				}
			}

			diff := cmp.Diff(want, sorted(got))
			if diff != "" {
				t.Fatalf("block %d (-want +got):\n%s", k, diff)
			}
		}
	})
}
