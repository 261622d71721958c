package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// TestResultOfALostStore shows every trial of a run whose store was destroyed, whether a report can be
// written or not.
func TestResultOfALostStore(t *testing.T) {
	for _, writable := range []bool{true, false} {
		ctx := t.Context()
		dir := t.TempDir()
		d := Dirs{Data: filepath.Join(dir, "data")}
		st, err := store.Open(ctx, d.StoreFile())
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		s := labtest.Samples["good"]
		run := s.Run()
		if err := st.CreateRun(ctx, run); err != nil {
			t.Fatal(err)
		}

		keeper := &store.Keeper{Store: st, Run: run.ID}
		for _, x := range s.Trials() {
			if err := keeper.AppendTrial(ctx, x); err != nil {
				t.Fatal(err)
			}
		}

		for _, file := range []string{d.StoreFile(), d.StoreFile() + "-wal"} {
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}

			f, err := os.OpenFile(file, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}

			if _, err := f.Write(bytes.Repeat([]byte{0xee}, int(info.Size()))); err != nil {
				t.Fatal(err)
			}

			f.Close()
		}

		lost := keeper.Settle(ctx, 0)
		if lost == nil {
			t.Error("the store has every trial")
		}

		place := filepath.Join(dir, "report.html")
		if !writable {
			place = "/dev/full"
		}

		out, err := userfile.Create(place)
		if err != nil {
			t.Fatal(err)
		}

		x := presenting(d, run, st, keeper, out, place)
		x.run.Status, x.run.Reason = record.RunFailed, lost.Error()
		err = x.present(ctx)
		if x.result == nil {
			t.Fatalf("got no result: %v", err)
		}

		text := report.Text(x.result.Document, 100, false)
		for _, want := range []string{"wireguard", "of n = 3 runs", lost.Error()[:20]} {
			if !strings.Contains(strings.ToLower(text), strings.ToLower(want)) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}

		wrote := x.result.Report != ""
		if wrote != writable || !writable && err == nil {
			t.Errorf("wrote a report: %v, error %v; writable: %v", wrote, err, writable)
		}
	}
}

// presenting returns the execution of a run that has ended and has its report to write.
func presenting(d Dirs, run record.Run, st *store.Store, keeper *store.Keeper, out *userfile.File,
	place string) *execution {
	return &execution{
		App:        &App{Dirs: d},
		plan:       plan.New(run.Design),
		run:        run,
		store:      st,
		keeper:     keeper,
		report:     out,
		reportPath: place,
		campaign:   &trial.Campaign{Run: run},
	}
}
