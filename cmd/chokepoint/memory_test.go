package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
)

// TestResultOfALostStore shows every trial of a run whose store was destroyed, whether a report can be
// written or not.
func TestResultOfALostStore(t *testing.T) {
	for _, writable := range []bool{true, false} {
		ctx, dir := t.Context(), t.TempDir()
		d := dirs{Data: filepath.Join(dir, "data")}
		st, err := store.Open(ctx, d.storeFile())
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		s := samples["good"]
		run := s.run()
		if err := st.CreateRun(ctx, run); err != nil {
			t.Fatal(err)
		}
		keeper := &store.Keeper{Store: st, Run: run.ID}
		for _, x := range s.trials() {
			if err := keeper.AppendTrial(ctx, x); err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range []string{d.storeFile(), d.storeFile() + "-wal"} {
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
		out, err := createOutFile(place)
		if err != nil {
			t.Fatal(err)
		}
		var text, errs bytes.Buffer
		x := &execution{p: &program{streams: streams{Out: &text, Err: &errs}, dirs: d},
			plan: plan.New(run.Design), run: run, store: st, keeper: keeper, report: out, reportPath: place,
			campaign: &trial.Campaign{Run: run}}
		x.run.Status, x.run.Reason = record.RunFailed, lost.Error()
		err = x.present(ctx)
		for _, want := range []string{"wireguard", "of n = 3 runs", lost.Error()[:20]} {
			if !strings.Contains(strings.ToLower(text.String()), strings.ToLower(want)) {
				t.Errorf("no %q in\n%s", want, text.String())
			}
		}
		if told := strings.Contains(text.String(), "Report: "); told != writable || !writable && err == nil {
			t.Errorf("told of a report: %v, error %v; writable: %v", told, err, writable)
		}
	}
}
