package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// What an experiment is made of: so many blocks of three doses, with an untouched window for each.
const (
	proveBlocks = 3
	proveCopies = 3
	proveWindow = 2 * time.Second
	// mostTests of one finding are made, unless one refutes it before.
	mostTests = 3
)

// test is an experiment with the plan that makes it.
type test struct {
	of   analysis.Verdict
	plan *plan.Plan
	text string
}

// testsOf are the experiments on the findings of a run: of each verdict, those of its first cause in the cell
// that it was surest of. why says of each finding without any why there is none.
func (a again) testsOf(doc *analysis.Document) (tests []test, why []string) {
	for _, v := range doc.Verdicts {
		cause, cell := namedCause(doc, v)
		if cause == nil || noFault(v.Class) {
			why = append(why, v.Text)
			continue
		}
		found, refused := a.plansFor(cell, *cause)
		for _, t := range found {
			t.of = v
			tests = append(tests, t)
		}
		if len(found) == 0 {
			reason := "no experiment is known that this lab can make"
			if len(refused) > 0 {
				reason = refused[0]
			}
			why = append(why, v.Text+": "+reason)
		}
	}
	return tests, why
}

// noFault says that a class is an answer without a limit to take away. The cores that all roles share are
// such a limit: doses can tell.
func noFault(class string) bool {
	r, _ := diagnosis.RuleOf(class)
	return r.Quiet && class != diagnosis.SharedCPU
}

// namedCause is the cause that a verdict names, and the cell that it was surest of; nil if none is named.
func namedCause(doc *analysis.Document, v analysis.Verdict) (*diagnosis.Cause, record.Factors) {
	cell := v.Cells[v.Shown]
	for i := range doc.Cells {
		if d := doc.Cells[i].Diagnosis; d != nil && d.Named() && doc.Cells[i].Factors.Key() == cell.Key() {
			return &d.Causes[0], cell
		}
	}
	return nil, cell
}

// plansFor are the plans of a cause's experiments, and why others cannot be made.
func (a again) plansFor(cell record.Factors, cause diagnosis.Cause) (tests []test, refused []string) {
	for _, e := range cause.Experiments {
		if len(e.Resource) != len(e.Doses) || len(tests) == mostTests {
			continue
		}
		if a.other.peer != "" && e.From != diagnosis.FromTester {
			refused = append(refused, e.Factor+": nothing reaches what lies between two machines")
			continue
		}
		text := a.patched(cell, cause, e).Text(a.other.vocabulary())
		pl, err := a.read("prove-"+cause.Class, text)
		if err == nil && len(pl.Skipped()) > 0 {
			err = errors.New(pl.Skipped()[0].Reason)
		}
		if err != nil {
			refused = append(refused, e.Factor+": "+err.Error())
			continue
		}
		tests = append(tests, test{plan: pl, text: text})
	}
	return tests, refused
}

func (a again) patched(cell record.Factors, cause diagnosis.Cause, e diagnosis.Experiment) plan.Patched {
	of := &record.Experiment{Run: a.on.ID, Class: cause.Class, Factor: e.Factor, Expect: e.Expect, Fix: e.Fix,
		Why: e.Why}
	x := plan.Patched{Name: "prove-" + cause.Class, Description: "Doses that would refute: " + cause.Text +
		".",
		Design: a.on.Design, Cells: []factor.Cell{cell}, Copies: proveCopies, Blocks: proveBlocks,
		Window: proveWindow, Experiment: of}
	for i, level := range e.Doses {
		of.Doses = append(of.Doses, record.Dose{Level: level, Resource: e.Resource[i]})
		x.Patches = append(x.Patches, factor.Cell{e.Factor: level})
	}
	if e.Fix != "" {
		x.Patches = append(x.Patches, factor.Cell{e.Factor: e.Fix})
	}
	return x
}

// prove runs the experiments on the findings of a run, one after the other, and says of each what came out.
func (a again) prove(ctx context.Context, doc *analysis.Document) error {
	tests, why := a.testsOf(doc)
	for _, text := range why {
		a.p.note("not put to the test: %s", text)
	}
	refuted := map[string]bool{}
	for i, t := range tests {
		if refuted[t.of.Text] {
			continue
		}
		e := t.plan.Design.Experiment
		a.p.note("experiment %d of %d, about %s: %s; doses of %s", i+1, len(tests),
			unit.Seconds(t.plan.Estimate(rowOverhead).Round(time.Second)), t.of.Text, e.Factor)
		done, err := a.run(ctx, t.plan)
		if done != nil && done.Proof != nil && (err == nil || ctx.Err() == nil) {
			refuted[t.of.Text] = done.Proof.Verdict == diagnosis.Refuted
			a.p.note("%s", done.Proof.Text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dryRun prints the plans of the experiments on the findings of a run, each as a file of its own.
func (p *program) dryRun(ctx context.Context, doc *analysis.Document) error {
	head, err := loadHead(ctx, p.dirs, doc.Run.ID)
	if err != nil {
		return err
	}
	a, err := p.onceMore(head, "")
	if err != nil {
		return err
	}
	tests, why := a.testsOf(doc)
	for _, text := range why {
		a.p.note("not put to the test: %s", text)
	}
	var texts []string
	for _, t := range tests {
		if a.p.json {
			if err := printLine(a.p.Out, expandPlan(t.plan)); err != nil {
				return err
			}
			continue
		}
		texts = append(texts, t.text)
	}
	return write(a.p.Out, check.Plain(strings.Join(texts, "---\n")))
}

// proveRun puts the findings of a stored run to the test, and gives back its document with what came out. The
// document comes with an error, too.
func (p *program) proveRun(ctx context.Context, doc *analysis.Document, codeFile string) (*analysis.Document,
	error) {
	head, err := loadHead(ctx, p.dirs, doc.Run.ID)
	if err != nil {
		return doc, err
	}
	a, err := p.onceMore(head, codeFile)
	if err != nil {
		return doc, err
	}
	err = a.prove(ctx, doc)
	now, lost := loadDocument(context.WithoutCancel(ctx), p.dirs, doc.Run.ID)
	if lost != nil {
		return doc, errors.Join(err, lost)
	}
	return now, err
}

// proved adds to a run that has just ended the proofs of its findings: to its report, and below its result.
func (x *execution) proved(ctx context.Context, codeFile string) error {
	if x.doc == nil {
		return nil
	}
	doc, err := x.p.proveRun(ctx, x.doc, codeFile)
	html, reportErr := report.HTML(doc)
	var file *outFile
	if reportErr == nil {
		file, reportErr = createReport(x.reportPath)
	}
	if reportErr == nil {
		reportErr = errors.Join(file.commit(html), file.abort())
	}
	return errors.Join(err, reportErr, x.p.coloured(doc, x.p.laidOut(doc, report.Diagnosis)))
}

// withProofs adds to a document what the experiments on its findings said, as far as they are still stored.
func withProofs(doc *analysis.Document, experiments []string,
	read func(id string) (*analysis.Document, error)) error {
	var proofs []diagnosis.Proof
	for i, id := range experiments {
		if slices.Contains(experiments[:i], id) {
			continue
		}
		of, err := read(id)
		if err != nil {
			return err
		}
		if of != nil && of.Proof != nil {
			proofs = append(proofs, *of.Proof)
		}
	}
	doc.AddProofs(proofs)
	return nil
}

// proveUsage is what --prove does, with run and with diagnose.
const proveUsage = "put each finding to the test: three doses of one resource in\nrandom order, between " +
	"untouched windows; then all is put back"

// dryWithout refuses --dry-run alone.
func dryWithout(dry, prove bool) error {
	if dry && !prove {
		return &usageError{"--dry-run without --prove", "chokepoint diagnose RUN --prove --dry-run"}
	}
	return nil
}
