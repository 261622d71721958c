package app

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/tuning"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// These are the sizes of an experiment. It has proveBlocks blocks, each with one window per step and
// proveCopies windows without a change.
const (
	proveBlocks = 3
	proveCopies = 3
	proveWindow = time.Second
	// maxTests is the maximum number of experiments about one cause. If an experiment refutes the cause, the
	// remaining ones are not run.
	maxTests = 3
)

// Experiment is a plan that tests a cause.
type Experiment struct {
	Plan *plan.Plan
	Text string // plan as a YAML file

	of   analysis.Verdict
	made plan.Patched // description from which the plan was made
}

// testsOf returns the experiments about the causes of a run. For each verdict, these are the experiments
// about its first cause, in the cell with the highest confidence. If class is set, they are the experiments
// about that class in each cell, whether or not it was diagnosed. If there are none, testsOf tells the user
// why.
func (a again) testsOf(ctx context.Context, doc *analysis.Document, class string) (tests []Experiment,
	err error) {
	if class != "" {
		return a.testsOfClass(ctx, doc, class)
	}

	for _, v := range doc.Verdicts {
		cause, cell := namedCause(doc, v)
		if cause == nil || noFault(v.Class) {
			a.note("not put to the test: %s", v.Text)
			continue
		}

		tests = append(tests, a.plansFor(asFound(doc), v, cell, *cause)...)
	}
	return tests, nil
}

// testsOfClass returns the experiments about a class in each cell of the document.
func (a again) testsOfClass(ctx context.Context, doc *analysis.Document, class string) (tests []Experiment,
	err error) {
	trials, err := a.firstTrials(ctx)
	if err != nil {
		return nil, err
	}

	for _, c := range doc.Cells {
		t, ok := trials[c.Factors.Key()]
		if !ok {
			continue
		}

		v := analysis.Verdict{Class: class, Text: strings.ReplaceAll(class, "-", " ") + " in " + c.Label}
		cause := diagnosis.Cause{
			Class:       class,
			Text:        v.Text,
			Experiments: analysis.TestsOf(&a.on, t, class),
		}
		tests = append(tests, a.plansFor(asFound(doc), v, c.Factors, cause)...)
	}

	return tests, nil
}

// firstTrials returns the first successful load trial of each cell.
func (a again) firstTrials(ctx context.Context) (map[string]record.Trial, error) {
	out := map[string]record.Trial{}
	err := a.Dirs.WithRun(ctx, a.on.ID, func(st *store.Store, _ record.Run) error {
		for t, err := range st.Each(ctx, a.on.ID) {
			if err != nil {
				return err
			}

			_, have := out[t.Row.Cell()]
			if t.Row.Kind == record.RowLoad && t.Status == record.TrialOK && !have {
				out[t.Row.Cell()] = t
			}
		}
		return nil
	})
	return out, err
}

// noFault reports whether a class is not a limit that can be removed. For shared-cpu, it returns false,
// because the steps of a sweep can confirm that class.
func noFault(class string) bool {
	r, _ := diagnosis.RuleOf(class)
	return r.Has("quiet") && class != diagnosis.SharedCPU
}

// namedCause returns the cause that a verdict names, and the cell with the highest confidence. The cause is
// nil if there is none.
func namedCause(doc *analysis.Document, v analysis.Verdict) (*diagnosis.Cause, record.Factors) {
	cell := v.Cells[v.Shown]
	for i := range doc.Cells {
		d := doc.Cells[i].Diagnosis
		if d != nil && d.Named() && doc.Cells[i].Factors.Key() == cell.Key() {
			return &d.Causes[0], cell
		}
	}
	return nil, cell
}

// asFound returns the situation of the routers as they were before the run changed anything.
func asFound(doc *analysis.Document) tuning.Situation {
	s := tuning.Situation{Found: *doc}
	for _, c := range doc.Cells {
		s.Cells = append(s.Cells, c.Factors)
	}
	return s
}

// plansFor returns the plans of a cause's experiments. It leaves out experiments that the lab cannot run, and
// experiments that would undo settings of the router's owner. If none is left, it tells the user why.
func (a again) plansFor(found tuning.Situation, v analysis.Verdict, cell record.Factors,
	cause diagnosis.Cause) (tests []Experiment) {
	var refused []string
	for _, e := range cause.Experiments {
		if len(e.Resource) != len(e.Steps) || len(tests) == maxTests {
			continue
		}

		if a.other.At != "" && e.From != diagnosis.FromTester {
			refused = append(refused, e.Factor+": nothing reaches what lies between two machines")
			continue
		}

		e, why := without(e, found.Undoes)
		if why != "" {
			refused = append(refused, e.Factor+": "+why)
			continue
		}

		made := a.patched(cell, cause, e)
		pl, err := a.readPatched(made)
		if err == nil && len(pl.Skipped()) > 0 {
			err = errors.New(pl.Skipped()[0].Reason)
		}

		if err != nil {
			refused = append(refused, e.Factor+": "+err.Error())
			continue
		}

		tests = append(tests, Experiment{pl, made.Text(a.other.Vocabulary()), v, made})
	}

	if len(tests) == 0 {
		a.note("not put to the test: %s: %s", v.Text,
			append(refused, "no experiment is known that this lab can make")[0])
	}

	return tests
}

// without removes the steps of an experiment that would undo settings found on the router. If no step is
// left, it also returns the reason.
func without(e diagnosis.Experiment, undoes func(tuning.Change) string) (left diagnosis.Experiment,
	why string) {
	undone := func(level string) bool {
		text := undoes(tuning.Change{Levels: factor.Cell{e.Factor: level}})
		why = cmp.Or(why, text)
		return text != ""
	}
	left = e
	left.Steps, left.Resource = nil, nil
	for i, step := range e.Steps {
		if !undone(step) {
			left.Steps, left.Resource = append(left.Steps, step), append(left.Resource, e.Resource[i])
		}
	}

	if left.Fix != "" && undone(left.Fix) {
		left.Fix = ""
	}

	if left.Fix != "" || len(left.Steps) > 0 {
		why = ""
	}

	return left, why
}

func (a again) patched(cell record.Factors, cause diagnosis.Cause, e diagnosis.Experiment) plan.Patched {
	of := &record.Experiment{
		Run:    a.on.ID,
		Class:  cause.Class,
		Factor: e.Factor,
		Expect: e.Expect,
		Fix:    e.Fix,
		Why:    e.Why,
	}
	x := plan.Patched{
		Name: "prove-" + cause.Class,
		Description: "An experiment that could refute: " +
			cause.Text + ".",
		Design:     a.on.Design,
		Cells:      []factor.Cell{cell},
		Copies:     proveCopies,
		Blocks:     proveBlocks,
		Window:     proveWindow,
		Experiment: of,
	}
	for i, level := range e.Steps {
		of.Steps = append(of.Steps, record.SweepStep{Level: level, Resource: e.Resource[i]})
		x.Patches = append(x.Patches, factor.Cell{e.Factor: level})
	}

	if e.Fix != "" {
		x.Patches = append(x.Patches, factor.Cell{e.Factor: e.Fix})
	}

	return x
}

// prove runs the experiments about the causes of a run one after the other, and shows the user each result.
func (a again) prove(ctx context.Context, doc *analysis.Document, class string) error {
	tests, err := a.testsOf(ctx, doc, class)
	if err != nil {
		return err
	}

	var all time.Duration
	for _, t := range tests {
		all += a.takes(t.Plan, doc)
	}

	if all > 0 {
		a.note("%s, %s in all; Ctrl-C ends them and keeps what is finished", unit.Count(len(tests),
			"experiment"), about(all))
	}

	refuted := map[string]bool{}
	for i, t := range tests {
		if refuted[t.of.Text] {
			continue
		}

		takes := a.takes(t.Plan, doc)
		if !a.until.IsZero() && time.Now().Add(takes).After(a.until) {
			a.note("experiment %d of %d left out, about %s: the time of --for does not suffice: %s", i+1,
				len(tests), about(takes), t.of.Text)
			continue
		}

		e := t.Plan.Design.Experiment
		what := "steps of " + e.Factor
		if len(e.Steps) == 0 {
			what = e.Factor + " " + e.Fix + ", which should remove the limit"
		}

		a.note("experiment %d of %d, about %s: %s; %s", i+1, len(tests),
			about(takes), t.of.Text, what)
		proof, err := a.put(ctx, t.Plan)
		if err == nil && proof != nil && proof.Verdict == diagnosis.Undecided && proof.Expect > 0 {
			a.note("once more, with twice as many blocks")
			t.made.Blocks *= 2
			if t.Plan, err = a.readPatched(t.made); err == nil {
				proof, err = a.put(ctx, t.Plan)
			}
		}

		if err != nil {
			return err
		}

		refuted[t.of.Text] = proof != nil && proof.Verdict == diagnosis.Refuted
	}

	return nil
}

// put runs one experiment, shows the user its result and returns it. It returns nil if there is no result.
func (a again) put(ctx context.Context, p *plan.Plan) (*diagnosis.Proof, error) {
	done, err := a.run(ctx, p)
	if done == nil || done.Proof == nil || err != nil && ctx.Err() != nil {
		return nil, err
	}

	a.noteText(done.Proof.Text)
	return done.Proof, err
}

// Experiments returns the experiments that Prove would run.
func (a *App) Experiments(ctx context.Context, doc *analysis.Document, o ProveOptions) ([]Experiment, error) {
	again, err := a.onceMore(ctx, doc.Run.ID, o.CodeFile)
	if err != nil {
		return nil, err
	}

	return again.testsOf(ctx, doc, o.Class)
}

// ProveOptions select the causes to test.
type ProveOptions struct {
	Class    string    // class to test in each cell, diagnosed or not; if "", the diagnosed causes are tested
	CodeFile string    // file that contains the pairing code shown by the peer
	Until    time.Time // experiments that would end later are not started; zero means no limit
}

// Prove tests the causes that a stored run diagnosed, under the run's conditions. Each experiment is a
// separate run. Prove returns the run's document with the results, even if it fails.
func (a *App) Prove(ctx context.Context, doc *analysis.Document, o ProveOptions) (*analysis.Document, error) {
	again, err := a.onceMore(ctx, doc.Run.ID, o.CodeFile)
	if err != nil {
		return doc, err
	}

	again.until = o.Until
	err = again.prove(ctx, doc, o.Class)
	now, lost := a.Dirs.Document(context.WithoutCancel(ctx), doc.Run.ID)
	if lost != nil {
		return doc, errors.Join(err, lost)
	}

	return now, err
}

// ProveResult tests the causes that a run has just diagnosed, and adds the results to its document and
// report.
func (a *App) ProveResult(ctx context.Context, r *Result, o ProveOptions) error {
	doc, err := a.Prove(ctx, r.Document, o)
	r.Document = doc
	if r.Report == "" {
		return err
	}

	html, reportErr := report.HTML(doc)
	if reportErr == nil {
		reportErr = userfile.Put(userfile.CreateReport, r.Report, html)
	}

	return errors.Join(err, reportErr)
}
