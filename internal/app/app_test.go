package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// TestMain lets the test binary play the program's other roles, in which a lab starts it again.
func TestMain(m *testing.M) {
	if os.Args[0] == endSoak {
		endSoakMain()
		return
	}

	isRole, err := registry.Serve(os.Args[1:])
	switch {
	case err != nil:
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	case isRole:
		os.Exit(0)
	}

	os.Exit(m.Run())
}

// events keeps the events of a run.
type events struct {
	list   []record.Event
	closed bool
}

func (e *events) Event(x record.Event) { e.list = append(e.list, x) }
func (e *events) Close() error         { e.closed = true; return nil }

// TestWholeRun drives a run from its plan to its document, its report and its comparison, as a program other
// than the command line would, and leaves no lab.
func TestWholeRun(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	sink := &events{}
	a := &App{
		Dirs: Dirs{
			Data:    filepath.Join(dir, "data"),
			State:   filepath.Join(dir, "state"),
			Cache:   filepath.Join(dir, "cache"),
			Runtime: filepath.Join(dir, "run"),
		},
		Events: func() progress.Sink { return sink },
	}
	pl, err := plan.Read("one", []byte("name: one\nmatrix: {protocol: [tcp], streams: [1]}\n"+
		"method: {duration: 500ms, warmup: 100ms, cooldown: 0, runs: 2}\n"+
		"measure: {latency_idle: off, latency_loaded: false, verify: false}\n"), Peer{}.Vocabulary(), nil)
	if err != nil {
		t.Fatal(err)
	}

	var docs [2]*Result
	for i := range docs {
		head := a.NewRun(pl)
		head.Lab = record.LabLocal
		head.Name = fmt.Sprint("run-", i)
		docs[i], err = a.Run(ctx, pl, head, RunOptions{})
		if err != nil || docs[i].Outcome != nil {
			t.Fatalf("run: got %v, outcome %v", err, docs[i].Outcome)
		}

		if info, err := os.Stat(docs[i].Report); err != nil || info.Size() == 0 {
			t.Errorf("report: got %v, want a file that is not empty", err)
		}
	}

	if c := docs[0].Document.Cells; len(c) != 1 || c[0].Metrics["goodput_bps"].Median <= 0 {
		t.Errorf("cells: got %+v, want one with a goodput", c)
	}

	last := sink.list[len(sink.list)-1]
	if !sink.closed || last.Event != "run-ended" {
		t.Errorf("events: got %q last, closed %v", last.Event, sink.closed)
	}

	heads, err := a.Dirs.Runs(ctx)
	if err != nil || len(heads) != len(docs) || heads[0].Status != record.RunDone {
		t.Errorf("runs: got %+v, %v, want two that are done", heads, err)
	}

	best := heads[0].Headline
	if heads[0].Name != "run-1" || best == nil || best.Metric != "goodput_bps" || best.Value <= 0 {
		t.Errorf("list: got name %q, headline %+v, want run-1 with a goodput", heads[0].Name, best)
	}

	again := a.NewRun(pl)
	again.Lab, again.Name = record.LabLocal, "run-0"
	if r, err := a.Run(ctx, pl, again, RunOptions{}); r != nil || !errors.Is(err, ErrUsage) {
		t.Errorf("a name that a run has: got %v, want an ErrUsage", err)
	}

	c, _, err := a.Compare(ctx, docs[0].Document.Run.ID, "latest")
	if err != nil || len(c.Comparisons) == 0 {
		t.Errorf("compare: got %+v, %v", c, err)
	}

	if left, err := lab.List(a.Dirs.Labs()); err != nil || len(left) > 0 {
		t.Errorf("labs: got %v, %v, want none", left, err)
	}
}

// TestRunEndsWithItsContext stops a run by the cause of an interrupt: what is finished stays, and Resume
// makes the rest.
func TestRunEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	a := &App{Dirs: Dirs{
		Data:    filepath.Join(dir, "data"),
		State:   filepath.Join(dir, "state"),
		Cache:   filepath.Join(dir, "cache"),
		Runtime: filepath.Join(dir, "run"),
	}}
	a.Events = func() progress.Sink { return stopAfterTrial{cancel} }
	pl, err := plan.Read("two", []byte("name: two\nmatrix: {protocol: [tcp], streams: [1, 2]}\n"+
		"method: {duration: 500ms, warmup: 100ms, cooldown: 0, runs: 2}\n"+
		"measure: {latency_idle: off, latency_loaded: false, verify: false}\n"), Peer{}.Vocabulary(), nil)
	if err != nil {
		t.Fatal(err)
	}

	head := a.NewRun(pl)
	head.Lab = record.LabLocal
	r, err := a.Run(ctx, pl, head, RunOptions{})
	if r == nil || r.Document.Run.Status != record.RunInterrupted {
		t.Fatalf("run: got %+v, %v, want one that was interrupted", r, err)
	}

	a.Events = nil
	whole, err := a.Resume(t.Context(), "", ResumeOptions{})
	if err != nil || whole.Document.Run.Status != record.RunDone || len(whole.Document.Cells) != 2 {
		t.Fatalf("resume: got %+v, %v, want two cells", whole, err)
	}

	before, after := len(r.Document.Trials), len(whole.Document.Trials)
	if before == 0 || before >= after {
		t.Errorf("trials: got %d before and %d in all", before, after)
	}
}

// stopAfterTrial interrupts a run when the first trial has ended.
type stopAfterTrial struct{ cancel context.CancelCauseFunc }

func (s stopAfterTrial) Event(e record.Event) {
	if e.Event == "trial-ended" {
		s.cancel(ErrInterrupted)
	}
}

func (s stopAfterTrial) Close() error { return nil }

// TestUnhurried: the second request ends the waiting, and nothing else does before its time.
func TestUnhurried(t *testing.T) {
	hard := make(chan struct{})
	a := &App{Hurry: hard}
	ctx, stop := a.unhurried(context.Background())
	if ctx.Err() != nil {
		t.Error("it has ended before the second request")
	}

	close(hard)
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("waited 5 s for the second request to end it")
	}

	stop()
	_, stop = new(App).unhurried(context.Background())
	stop() // which waits for nothing
}
