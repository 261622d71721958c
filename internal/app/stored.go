package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// readStore opens the store for reading. It returns store.ErrNone if there is none.
func (d Dirs) readStore(ctx context.Context) (*store.Store, error) {
	if err := trusted(d.Data); d.Store == "" && err != nil {
		return nil, err
	}

	if d.shared != nil {
		return d.shared.Open(ctx)
	}
	return store.OpenReadOnly(ctx, d.place())
}

// Share returns a copy of d for several readers, which all use one open store. close closes the store.
func (d Dirs) Share() (shared Dirs, close func() error) {
	d.shared = store.NewShared(d.place())
	return d, d.shared.Close
}

// Runs returns the heads of all runs, newest first, or none if there is no store. If some heads cannot be
// read, it returns the others and an error.
func (d Dirs) Runs(ctx context.Context) ([]store.Head, error) {
	st, err := d.readStore(ctx)
	if errors.Is(err, store.ErrNone) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	runs, err := st.Runs(ctx)
	for i := range runs {
		err = errors.Join(err, reckon(st, runs[i].ID, &runs[i].Status))
	}

	return runs, errors.Join(err, st.Close())
}

// reckon changes the status of a run from running to killed if no process is recording the run.
func reckon(st *store.Store, run string, status *string) error {
	if *status != record.RunRunning {
		return nil
	}

	alive, err := st.Alive(run)
	if err == nil && !alive {
		*status = record.RunKilled
	}
	return err
}

// OpenStore opens the store for a command that names a run. If there is none, it returns an ErrUsage.
func (d Dirs) OpenStore(ctx context.Context) (*store.Store, error) {
	st, err := d.readStore(ctx)
	if errors.Is(err, store.ErrNone) {
		return nil, Usage("chokepoint run makes one; runs are looked for in "+
			cmp.Or(store.Shown(d.Store), d.Data), "%w", err)
	}
	return st, err
}

// ofRequest marks an error as an ErrUsage if the store could not do what the user asked: a name matches no
// run, several runs or another run, or a testbed is unknown or cannot fulfil a request.
func ofRequest(err error) error {
	_, missing := errors.AsType[*store.NotFoundError](err)
	_, several := errors.AsType[*store.AmbiguousError](err)
	_, taken := errors.AsType[*store.NameTakenError](err)
	_, unknown := errors.AsType[*store.UnknownBedError](err)
	_, refused := errors.AsType[*store.BedRefusedError](err)
	if missing || several || taken || unknown || refused {
		return Mark(ErrUsage, err)
	}
	return err
}

// WithRun calls f with the run that store.Resolve finds. If there is none, it returns an ErrUsage.
func (d Dirs) WithRun(ctx context.Context, name string, f func(*store.Store, record.Run) error) error {
	st, err := d.OpenStore(ctx)
	if err != nil {
		return err
	}

	run, err := st.Find(ctx, name)
	if err = ofRequest(err); err == nil {
		err = reckon(st, run.ID, &run.Status)
	}

	if err == nil {
		run.Design.Catalogue = registry.Catalogue().Labelled(run.Design.Labels)
		err = f(st, run)
	}

	return errors.Join(err, st.Close())
}

// Document derives the document of a stored run, including the results of experiments on its findings. If
// name ends in .json, it reads the document from that file instead, which may come from another machine.
func (d Dirs) Document(ctx context.Context, name string) (doc *analysis.Document, err error) {
	if IsDocumentFile(name) {
		return readDocument(name)
	}

	err = d.WithRun(ctx, name, func(st *store.Store, run record.Run) error {
		doc, err = derive(ctx, st, run)
		if err == nil {
			err = proofsOf(ctx, st, run, doc)
		}
		return err
	})
	return doc, err
}

// PlanText returns the text of a stored run's plan. It returns "" if the run has no plan, or if name is a
// document file, which does not contain the plan.
func (d Dirs) PlanText(ctx context.Context, name string) (text string, err error) {
	if IsDocumentFile(name) {
		return "", nil
	}

	err = d.WithRun(ctx, name, func(_ *store.Store, run record.Run) error {
		text = run.Design.Text
		return nil
	})
	return text, err
}

// proofsOf adds the results of the experiments on a run's findings to its document.
func proofsOf(ctx context.Context, st *store.Store, run record.Run, doc *analysis.Document) error {
	var proofs []diagnosis.Proof
	for i, id := range run.Experiments {
		if slices.Contains(run.Experiments[:i], id) {
			continue
		}

		of, err := st.Find(ctx, id)
		_, gone := errors.AsType[*store.NotFoundError](err)
		if gone {
			continue
		}

		if err != nil {
			return err
		}

		made, err := derive(ctx, st, of)
		if err != nil {
			return err
		}

		if made.Proof != nil {
			proofs = append(proofs, *made.Proof)
		}
	}

	doc.AddProofs(proofs)
	return nil
}

// NoteHeadline derives the headline and the results of a stored run, and stores them.
func (d Dirs) NoteHeadline(ctx context.Context, run string) error {
	doc, err := d.Document(ctx, run)
	if err != nil {
		return err
	}

	st, err := store.Open(ctx, d.place())
	if err != nil {
		return err
	}

	return errors.Join(summarise(ctx, st, doc), st.Close())
}

// summarise stores the headline and the results of a run's document.
func summarise(ctx context.Context, st *store.Store, doc *analysis.Document) error {
	return cmp.Or(st.SetHeadline(ctx, doc.Run.ID, doc.Headline()),
		st.SetResults(ctx, doc.Run.ID, doc.Results()))
}

// Rename changes the name of a run, and returns the run's id. An empty name removes the run's name. If the
// name is not valid or another run has it, Rename returns an ErrUsage.
func (d Dirs) Rename(ctx context.Context, run, name string) (id string, err error) {
	st, err := d.openToChange(ctx)
	if err != nil {
		return "", err
	}
	defer Closing(&err, st.Close)
	id, err = st.Resolve(ctx, run)
	if err != nil {
		return "", ofRequest(err)
	}

	if name != "" {
		if err := store.CheckName(name); err != nil {
			return "", Mark(ErrUsage, err)
		}
	}

	return id, ofRequest(st.SetName(ctx, id, name))
}

// free returns an ErrUsage if a run has the name. Even if name is "", it returns an error if the store has
// another schema, so that the run ends before anything is set up.
func (d Dirs) free(ctx context.Context, name string) error {
	st, err := d.readStore(ctx)
	_, other := errors.AsType[*store.VersionError](err)
	switch {
	// A locked store is not an error here, because the run waits for the lock later.
	case errors.Is(err, store.ErrNone), name == "" && err != nil && !other:
		return nil
	case err != nil:
		return err
	case name == "":
		return st.Close()
	}

	return errors.Join(ofRequest(st.Taken(ctx, name)), st.Close())
}

// derive derives the document of a stored run.
func derive(ctx context.Context, st *store.Store, run record.Run) (*analysis.Document, error) {
	entries, err := st.Index(ctx, run.ID)
	if err != nil {
		return nil, err
	}
	return Derive(run, len(entries), st.Each(ctx, run.ID))
}

// Derive creates the document of a run from its n trials, which it reads one at a time. Damaged trials become
// a caveat. Derive returns an error if all trials are damaged. It also returns an error if a trial cannot be
// read for another reason, because a partial document would look complete.
func Derive(run record.Run, n int, trials iter.Seq2[record.Trial, error]) (*analysis.Document, error) {
	debug.SetMemoryLimit(DocumentMemory) // the limit still applies while the document is written
	debug.FreeOSMemory()                 // return the memory of the measurement to the system
	d := analysis.Begin(run, n)
	var unread []*store.DamagedTrialError
	read := 0
	for t, err := range trials {
		if damaged, ok := errors.AsType[*store.DamagedTrialError](err); ok {
			unread = append(unread, damaged)
			continue
		}

		if err != nil {
			return nil, err
		}

		d.Add(t)
		read++
	}

	if len(unread) > 0 && read == 0 {
		return nil, unread[0]
	}

	if len(unread) > 0 {
		d.Caveat(record.Caveat{
			Kind: "unreadable",
			// The text does not contain the path or URL of the store.
			Text: fmt.Sprintf("%s of %d cannot be read from the store, such as %s: %v",
				unit.Count(len(unread), "trial"), n, unread[0].Trial, unread[0].Err),
		})
	}

	return d.Document(), nil
}

// DocumentMemory is the memory limit while a document is created. Above it, the garbage collector uses more
// CPU time to save memory. The limit matters for runs of a day, which have many long trials.
const DocumentMemory = 80 << 20

// outcome returns an ErrFailed if trials of a finished run failed or nothing was measured, and an
// ErrThreshold if thresholds were missed. A failed trial does not count if a later attempt succeeded.
func outcome(d *analysis.Document) error {
	var errs []error
	last := map[string]analysis.TrialView{}
	for _, t := range d.Trials {
		last[t.Row] = t
	}

	failed, measured := 0, false
	help := ""
	for _, t := range last {
		switch {
		case t.Grade == evidence.GradeFailed:
			failed++
			if t.Failure != nil {
				help = max(help, t.Failure.Hint) // any hint, but always the same one
			}
		case t.Kind != record.RowIdle && t.Kind != record.RowVerify:
			measured = true
		}
	}

	if failed > 0 {
		have := "have"
		if failed == 1 {
			have = "has"
		}

		err := fmt.Errorf("%d of %s failed and %s no number", failed, unit.Count(len(last), "trial"), have)
		err = check.WithHint(err, "chokepoint show "+d.Run.ID+
			" gives the reasons; "+cmp.Or(help, "chokepoint resume "+d.Run.ID+" tries again"))
		errs = append(errs, Mark(ErrFailed, err))
	}

	// If a trial failed or the run was interrupted, the cause is reported elsewhere.
	if failed == 0 && !measured && d.Run.Status != record.RunInterrupted {
		err := fmt.Errorf("nothing was measured: %w", whyNothing(d.Skipped))
		errs = append(errs, Mark(ErrFailed, check.WithHint(err, "chokepoint show "+d.Run.ID+
			" lists what was skipped")))
	}

	for _, t := range d.Thresholds {
		if !t.Met && !d.Unchecked(t) {
			errs = append(errs, Mark(ErrThreshold, fmt.Errorf("threshold missed: %s", thresholdText(d, t))))
		}
	}

	return errors.Join(errs...)
}

// whyNothing returns an error that contains the reasons why cells were skipped, the number of cells for each
// reason, and all hints.
func whyNothing(skipped []record.Skipped) error {
	err := errors.New("no cell has a trial")
	counts := map[string]int{}
	for _, s := range skipped {
		counts[s.Reason]++
	}

	if len(skipped) > 0 {
		err = fmt.Errorf("%s skipped", unit.Count(len(skipped), "cell"))
	}

	for _, s := range skipped {
		if n := counts[s.Reason]; n > 0 {
			err = check.WithHint(fmt.Errorf("%w; %d: %s", err, n, s.Reason), s.Hint)
		}

		delete(counts, s.Reason)
	}
	return err
}

// thresholdText describes a missed threshold: the cell, and the value or the reason why there is none.
func thresholdText(d *analysis.Document, t comparison.Threshold) string {
	parts := []string{t.Requirement}
	for _, c := range d.Cells {
		if len(t.Factors) > 0 && c.Factors.Key() == t.Factors.Key() && len(d.Cells) > 1 {
			parts = append(parts, "in "+c.Label)
		}
	}

	for _, s := range d.Skipped {
		if s.Factors.Key() == t.Factors.Key() {
			parts = append(parts, "in "+s.Label+", cell "+s.ID)
		}
	}

	reason := t.Reason
	if reason == "" {
		reason = "got " + metrics.Say(t.Metric, t.Value)
	}

	parts = append(parts, "("+reason+")")

	return strings.Join(parts, " ")
}
