package app

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// TestNoteOthers: a run during which another one began has a caveat, like that one.
func TestNoteOthers(t *testing.T) {
	begun := time.Now()
	for _, tt := range []struct {
		name string
		late time.Duration // of the other run
		lab  string
		want bool
	}{
		{"later", time.Second, record.LabLocal, true},
		{"earlier", -time.Second, record.LabLocal, false},
		{"imported", time.Second, record.LabImported, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "runs.db"))
			if err != nil {
				t.Fatal(err)
			}

			run := labtest.Samples["good"].Run()
			other := labtest.Samples["failed"].Run()
			run.Started, other.Started, other.Lab = begun, begun.Add(tt.late), tt.lab
			for _, r := range []record.Run{run, other} {
				if err := st.CreateRun(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}

			notes := 0
			a := &App{Note: func(string, ...any) { notes++ }}
			x := &execution{App: a, store: st, run: run, opened: begun}
			x.noteOthers(t.Context())
			got, err := st.Find(t.Context(), run.ID)
			if err != nil {
				t.Fatal(err)
			}

			if noted := len(got.Caveats) > len(run.Caveats); noted != tt.want {
				t.Errorf("caveats %v: got one more: %v, want %v", got.Caveats, noted, tt.want)
			}

			if err := st.Close(); err != nil {
				t.Fatal(err)
			}

			if x.noteOthers(t.Context()); notes != 1 {
				t.Errorf("%d notes, want one, of the store that was closed", notes)
			}
		})
	}
}
