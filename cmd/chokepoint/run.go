package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// settleTime is how long a run waits, at its beginning and its end, for a store that another program has
// locked.
const settleTime = 2 * time.Minute

// undoTime is how long putting a local lab back may take. It takes 20 ms.
const undoTime = 20 * time.Second

type runOptions struct {
	plan   planOptions
	lab    labOptions
	meter  string
	other  otherEnd
	attach string
	report string
	prove  bool
}

func newRunCommand(p *program) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use: "run [PLAN] [--set PATH=VALUE]… [--seed N] [--budget D] [--strict] [--lab KIND] [--attach " +
			"LAB] [--peer HOST] [--meter METER] [--report FILE] [--prove] [--json] [--quiet]",
		Short: "Run a plan on a lab, store every trial, and write the report",
		Long: "Run a plan: a YAML file or one of the built-in plans; without a name, quick, and\n" +
			"with --peer path. The lab is made of namespaces of this machine and is gone\n" +
			"afterwards. Every finished trial is stored before the next begins. The first\n" +
			"Ctrl-C stops the load, puts everything back and keeps what is finished; the second\n" +
			"stops waiting.\n\n" +
			"With --peer the lab is this machine, another one that runs chokepoint peer, and\n" +
			"whatever lies between: it is measured as it is, and nothing is changed.",
		Args: optionalArg, ValidArgsFunction: completePlans,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.plan.name = append(args, "")[0]
			if err := cmp.Or(o.plan.validate(cmd.Flags()), htmlFile(o.report)); err != nil {
				return err
			}
			return runRun(cmd.Context(), o, p)
		},
	}
	o.plan.addFlags(cmd)
	o.lab.addFlags(cmd.Flags())
	o.other.addFlags(cmd.Flags(), "measure what lies between this machine and `HOST`, which runs "+
		"chokepoint peer")
	cmd.Flags().StringVar(&o.attach, "attach", "", "use the `LAB` that lab up has made")
	cmd.Flags().BoolVar(&o.prove, "prove", false, proveUsage)
	cmd.Flags().StringVar(&o.meter, "meter", "", "read the power of the router, or of the machine that "+
		"carries it, from `METER`: shelly://HOST, tasmota://HOST, "+
		"command:PROGRAM ARGS or typed:idle=WATTS,loaded=WATTS")
	addRunOutput(cmd, &o.report)
	oneLab(cmd)
	addMachines(cmd, &o.lab.machines)
	return cmd
}

// addRunOutput gives a command the flags that say where the results of a run go.
func addRunOutput(cmd *cobra.Command, report *string) {
	cmd.Flags().StringVar(report, "report", "",
		"write the HTML report to this `FILE` instead of the run's directory")
	addJSON(cmd, "print one JSON object per event, and the document of show --json last")
	cmd.Flags().Bool("quiet", false, "show no progress: warnings, errors and the result alone")
}

func runRun(ctx context.Context, o runOptions, p *program) error {
	pl, err := o.plan.read(o.other)
	if err != nil {
		return err
	}
	if err := cmp.Or(o.lab.readFile(), o.other.check()); err != nil {
		return err
	}
	if err := o.lab.readMeter(o.meter); err != nil {
		return err
	}
	if err := cmp.Or(o.lab.check(), o.lab.absolute()); err != nil {
		return err
	}
	o.lab.condition(&pl.Design)
	x := &execution{p: p, plan: pl, run: newRun(pl, &o.lab), attach: o.attach, reportPath: o.report}
	if err := x.with(ctx, o.other); err != nil {
		return err
	}
	x.until = o.plan.until
	x.kept = o.prove && p.json // its document comes last, with the proofs
	err = x.whole(ctx)
	if !o.prove || x.doc == nil || ctx.Err() != nil {
		return err
	}
	return errors.Join(err, x.proved(ctx, o.other.codeFile))
}

// newID is an id of now, for what makes a lab without being a run.
func newID() string { return store.NewID(time.Now(), uint16(rand.Uint32())) }

// newRun is the head of a run of a plan on a lab, which begins now.
func newRun(pl *plan.Plan, on *labOptions) record.Run {
	now := time.Now()
	run := record.Run{ID: store.NewID(now, uint16(rand.Uint32())), Started: now.UTC(),
		Status: record.RunRunning, Command: commandLine(os.Args, pl.Design.Method.Seed),
		Version: ownVersion(), BinaryHash: binaryHash(), Kernel: probe.KernelRelease(), Design: pl.Design}
	on.describe(&run)
	return run
}

// execution is one campaign from the opened store to the printed result; run and resume share it.
type execution struct {
	p      *program
	plan   *plan.Plan
	run    record.Run
	attach string
	// connects to the other machine; nil = the lab is made here
	peer       func(ctx context.Context) (*lab.Lab, error)
	reportPath string
	before     *record.Run // as it was stored, of a run that is resumed
	force      bool        // resume it although what it stands on has changed
	until      time.Time   // when the whole command ends, see endTime; zero: when it is done
	kept       bool        // the result is for the caller, who finds it in doc: it is not printed

	doc *analysis.Document // of the run, once it has ended

	guard *guard // of changes that are tried, nil: none

	store    *store.Store
	keeper   *store.Keeper // of the trials
	began    bool          // the run's head is stored
	journal  *journal.Journal
	sink     progress.Sink
	campaign *trial.Campaign
	outcome  trial.Outcome
	report   *outFile
	answers  *bufio.Reader // of the user; one, because it reads ahead
}

// whole opens everything that could fail late, runs, puts back, and reports.
func (x *execution) whole(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, x.shut()) }()
	if err := x.open(ctx); err != nil {
		return err
	}
	done, err := x.done(ctx)
	if err != nil {
		return err
	}
	labs, err := x.labs(ctx)
	if err != nil {
		return err
	}
	x.sink = x.p.sink()
	runErr := x.campaignOver(ctx, labs, done)
	if refused, ok := errors.AsType[*refusedError](runErr); ok { // nothing has been measured
		return errors.Join(dirty(x.undo(ctx)), x.sink.Close(), refused)
	}
	return x.end(ctx, runErr, x.undo(ctx))
}

// end stores how a run ended and shows its result. Nothing of it is cut short by the first signal.
func (x *execution) end(ctx context.Context, runErr, undoErr error) error {
	status, reason := record.RunDone, ""
	gone := errors.Is(runErr, trial.ErrMachineGone)
	switch {
	// A signal that came after the last trial has interrupted nothing.
	case runErr != nil && errors.Is(context.Cause(ctx), ErrInterrupted):
		status, reason = record.RunInterrupted, "by a signal"
	case gone:
		status, reason = record.RunInterrupted, runErr.Error()
		first := "start chokepoint peer there again, then: "
		switch {
		case x.run.Machines != nil:
			first = "once it can be reached again: "
		case (otherEnd{peer: x.run.Peer}).thirdParty():
			first = "start iperf3 -s there again, then: "
		}
		runErr = check.WithHint(fmt.Errorf("run %s is interrupted: %w", x.run.ID, runErr), first+
			"chokepoint resume "+x.run.ID)
		if x.outcome.Trials == x.outcome.Failed { // nothing was measured
			runErr = &exitError{codeFailed, runErr}
		}
	case runErr != nil:
		status, reason = record.RunFailed, runErr.Error()
	}
	after := context.WithoutCancel(ctx)
	if x.began {
		waiting, stop := x.p.untilHard(after)
		lost := x.keeper.Settle(waiting, settleTime)
		if lost != nil {
			status, reason, runErr = record.RunFailed, lost.Error(), errors.Join(runErr, lost)
		}
		ended := time.Now().UTC()
		unended := store.Patiently(waiting, settleTime,
			func() error { return x.store.EndRun(after, x.run.ID, status, reason, ended) })
		undoErr = errors.Join(undoErr, unended)
		if lost == nil && unended == nil {
			x.keeper.Release()
		}
		stop()
	}
	x.tell(record.Event{Event: "run-ended", Run: x.run.ID, Status: status, Text: reason})
	undoErr = errors.Join(undoErr, x.sink.Close())
	if !x.began {
		return errors.Join(dirty(undoErr), runErr)
	}
	if runErr != nil && !gone {
		runErr = check.WithHint(runErr, "chokepoint resume "+x.run.ID+" goes on with it")
	}
	x.run.Status, x.run.Reason = status, reason
	shown := x.present(after)
	if gone && exitCode(shown) == codeFailed {
		shown = nil // its last trial failed of that
	}
	return errors.Join(dirty(undoErr), runErr, shown)
}

// endTime is what taking the lab down and writing the report takes, behind the last trial.
const endTime = 3 * time.Second

// labs are where the campaign runs.
func (x *execution) labs(ctx context.Context) (trial.Labs, error) {
	switch {
	case x.peer != nil:
		return &lab.Peers{Up: x.peer}, nil
	case x.run.Machines != nil:
		m := *x.run.Machines
		if err := x.p.showCommands(m, x.run.Meter); err != nil {
			return nil, err
		}
		remote := lab.Remote{ID: x.run.ID + "-machines", Machines: m, Dir: labsDir(x.p.dirs),
			Journal: x.journal, Parts: registry.LabParts(), Program: x.p.agentProgram}
		if m.Client.At+m.Server.At == "" { // nothing is sent
			return &lab.Peers{Up: remote.Reach}, nil
		}
		return &lab.Peers{Up: remote.Up}, nil
	}
	labs := &lab.Locals{Owner: x.run.ID, Dir: labsDir(x.p.dirs), Journal: x.journal, Queues: x.run.Queues,
		Driver: x.run.Driver, Parts: registry.LabParts()}
	if x.store != nil {
		labs.Keep = filepath.Dir(x.p.dirs.reportFile(x.run.ID))
	}
	var err error
	if x.attach != "" {
		i, err := lab.Standing(labs.Dir, x.attach)
		if err == nil {
			labs.Attached, err = lab.Attach(labs.Dir, x.attach, labs.Parts, x.journal)
		}
		if err != nil {
			return nil, &exitError{codeUsage, err}
		}
		i.Describe(&x.run)
		return labs, nil
	}
	labs.Guest, err = labOptionsOf(x.run).guest(ctx, x.p)
	return labs, err
}

// dirty gives what could not be put back its exit code.
func dirty(err error) error {
	if errors.Is(err, lab.ErrDirty) {
		return &exitError{codeDirty, check.WithHint(err, "chokepoint lab restore tries again")}
	}
	return err
}

// open prepares directories, store, journal and the report's file.
func (x *execution) open(ctx context.Context) (err error) {
	d := x.p.dirs
	create := createOutFile
	if x.reportPath == "" {
		create, x.reportPath = createReport, d.reportFile(x.run.ID)
	}
	needed := []string{d.Data, d.State, d.Runtime}
	if dir := filepath.Dir(x.reportPath); strings.HasPrefix(dir, d.Data) { // one of our own
		needed = append(needed, dir)
	}
	if err := prepare(needed...); err != nil {
		return err
	}
	// First of all, so that of two that begin at once one sees the other.
	if x.journal, err = journal.Create(journalDir(d), x.run.ID, labsDir(d)); err != nil {
		return err
	}
	if err := x.refuseLeftovers(); err != nil {
		return err
	}
	if x.report, err = create(x.reportPath); err != nil {
		return err
	}
	if x.store, err = store.Open(ctx, d.storeFile()); err != nil {
		return err
	}
	x.keeper = &store.Keeper{Store: x.store, Run: x.run.ID, Waits: x.waits}
	return nil
}

// refuseLeftovers tells of a killed run whose changes were not undone, and refuses to measure in the lab
// that has them.
func (x *execution) refuseLeftovers() error {
	stale, living, err := journal.FindStale(journalDir(x.p.dirs), nil)
	if err != nil && x.attach != "" && journal.Concerns(err, x.attach) {
		return dirty(fmt.Errorf("attach to lab %s: %w: it may have been changed: %w", x.attach, lab.ErrDirty,
			err))
	}
	if err != nil {
		x.p.note("%v", err)
	}
	if i := slices.IndexFunc(living, func(run string) bool { return run != x.run.ID }); i >= 0 {
		text := owner(living[i]) + " is going on on this machine, too: each of the two measures the " +
			"other's load"
		x.p.note("%s; wait until it has ended", text)
		x.run.Caveats = append(x.run.Caveats, record.Caveat{Kind: "another-run", Text: text})
	}
	var refused error
	for _, s := range stale {
		if x.attach != "" && slices.ContainsFunc(s.Entries,
			func(e journal.Entry) bool { return e.Lab == x.attach }) {
			refused = check.WithHint(fmt.Errorf("attach to lab %s: %s was killed and has left "+
				"changes there", x.attach, owner(s.Owner)), "chokepoint lab restore puts them back")
		}
		end := s.Remove // nothing was changed by it, or all is put back
		if len(s.Entries) > 0 {
			x.p.note("%s was killed and has left %s; chokepoint lab restore clears it away", owner(s.Owner),
				unit.Count(len(s.Entries), "change"))
			end = s.Release
		}
		if err := end(); err != nil {
			return err
		}
	}
	if refused != nil {
		return &exitError{codeUsage, refused}
	}
	return nil
}

// owner names who has a journal: a run by its id, or another command that makes labs, whose id begins with
// its name.
func owner(id string) string {
	word, _, _ := strings.Cut(id, "-")
	if slices.Contains([]string{"doctor", "check", "plan", "tune"}, word) {
		return "another chokepoint (" + id + ")"
	}
	return "run " + id
}

func journalDir(d dirs) string { return filepath.Join(d.State, "journal") }

func labsDir(d dirs) string { return filepath.Join(d.Runtime, "labs") }

func (x *execution) tell(e record.Event) {
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	x.sink.Event(e)
}

// campaignOver brings the labs up, stores the run's head and runs all rows.
func (x *execution) campaignOver(ctx context.Context, labs trial.Labs, done []record.Trial) error {
	x.campaign = x.newCampaign(labs)
	c := x.campaign
	c.Store, c.Sink, c.Ask, c.Done, c.Learnt = x.keeper, x.tell, x.ask, done, x.learnt
	c.LearntAfter = x.learntAfter
	if !x.until.IsZero() {
		c.Until = x.until.Add(-endTime)
	}
	if x.guard != nil {
		x.guard.Store, c.Store, c.Unfit = x.keeper, x.guard, x.guard.out
	}
	x.began = x.before != nil
	data, err := json.Marshal(x.run.Design)
	if err != nil {
		return fmt.Errorf("encode design: %w", err)
	}
	x.tell(record.Event{Event: "run-started", Run: x.run.ID, Text: x.run.Design.Name, Data: data})
	if err := c.Prepare(ctx); err != nil {
		return err
	}
	e, err := ahead(c, data)
	if err != nil {
		return err
	}
	x.tell(e)
	if x.before != nil {
		if err := x.goOn(ctx); err != nil {
			return err
		}
	} else if err := x.begin(ctx); err != nil {
		return err
	}
	x.began = true
	x.outcome, err = c.Execute(ctx)
	return err
}

// ahead tells what is to be done, once it is known what cannot be done here; and the design, where that is
// another now than the one that was told.
func ahead(c *trial.Campaign, told []byte) (record.Event, error) {
	data, err := json.Marshal(c.Run.Design)
	if err != nil {
		return record.Event{}, fmt.Errorf("encode design: %w", err)
	}
	if bytes.Equal(data, told) {
		data = nil
	}
	total, left, takes := c.Ahead()
	text := unit.Count(left, "trial")
	if left < total {
		text = fmt.Sprintf("%d of %s left", left, unit.Count(total, "trial"))
	}
	if left > 0 {
		text += ", about " + unit.Seconds(takes.Round(time.Second))
	}
	return record.Event{Event: "phase", Run: c.Run.ID, Phase: "plan", Text: text, Total: total, Left: takes,
		Data: data}, nil
}

func (x *execution) newCampaign(labs trial.Labs) *trial.Campaign {
	return &trial.Campaign{Run: x.run, Plan: x.plan, Labs: labs, Engines: node.Engines(),
		Prober: proberOf(x.run.Design.Measure), Hopper: node.Hopper(), Probes: node.Probes(),
		Install: x.installer()}
}

// try brings up the labs of the plan and says which cells cannot be run there. No trial is made.
func (x *execution) try(ctx context.Context) (skipped []record.Skipped, err error) {
	err = x.p.withJournal(x.run.ID, func(j *journal.Journal) error {
		x.journal = j
		labs, err := x.labs(ctx)
		if err != nil {
			return err
		}
		c := x.newCampaign(labs)
		err = c.Prepare(ctx)
		skipped = c.Run.Skipped
		return errors.Join(err, dirty(c.Close(context.WithoutCancel(ctx))))
	})
	return skipped, err
}

// proberOf is the latency probe that a design asks for; a design of an older version names none.
func proberOf(m record.Measure) traffic.Prober {
	for _, l := range node.Probers() {
		if l.Name() == m.Probe {
			return l
		}
	}
	return node.Prober()
}

// ask prompts a human and waits for Enter.
func (x *execution) ask(ctx context.Context, s record.Step) error {
	if x.p.In == nil {
		return fmt.Errorf("step %q needs a human", s.Prompt)
	}
	fmt.Fprintf(x.p.Err, "\n%s, then press Enter ", strings.TrimRight(check.Plain(s.Prompt), ". "))
	if x.answers == nil {
		x.answers = bufio.NewReader(x.p.In)
	}
	_, err := within(ctx, func() (string, error) { return x.answers.ReadString('\n') })
	if errors.Is(err, io.EOF) {
		return check.WithHint(fmt.Errorf("step %q: no one is there to press Enter", s.Prompt),
			"run it from a terminal, or take the steps out of the plan")
	}
	return err
}

// undo puts the labs back, on a context of its own: a second Ctrl-C gives up waiting.
func (x *execution) undo(ctx context.Context) error {
	if x.campaign == nil {
		return nil
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- x.campaign.Close(after) }()
	select {
	case err := <-ended:
		return err
	case <-x.p.hard:
		cancel()
		return fmt.Errorf("%w: stopped waiting while lab %s was taken down", lab.ErrDirty, x.run.ID)
	}
}

// present derives the document, writes the report and prints the result.
func (x *execution) present(ctx context.Context) error {
	run, lost := x.store.Find(ctx, x.run.ID)
	if lost != nil { // what is in memory must do
		run = x.campaign.Run
	}
	run.Status, run.Reason = x.run.Status, x.run.Reason // whether they could be stored or not
	run.Design.Catalogue = x.plan.Design.Catalogue
	doc, err := derive(run, x.keeper.Count(ctx), x.keeper.Trials(ctx))
	if err != nil {
		return errors.Join(lost, err)
	}
	if lost == nil {
		lost = proofsOf(ctx, x.store, run, doc) // of a run that was resumed
	}
	x.doc = doc
	place := ""
	html, err := report.HTML(doc)
	if err == nil {
		err = x.report.commit(html)
	}
	if x.kept {
		return errors.Join(lost, err, outcome(doc))
	}
	if err == nil {
		place = "\nReport: " + x.reportPath + "\n"
	}
	return errors.Join(lost, err, x.p.coloured(doc, x.p.laidOut(doc, report.Text)+place), outcome(doc))
}

// waits tells of trials that wait for the store.
func (x *execution) waits(n int, why error) {
	text := "the store has all trials again"
	if n > 0 {
		text = fmt.Sprintf("%s in memory, the store does not take them: %v", unit.Count(n, "trial"), why)
	}
	x.tell(record.Event{Event: "warning", Run: x.run.ID, Text: text})
}

// shut closes what open opened. Nothing here loses a result.
func (x *execution) shut() error {
	defer clearRuntime(x.p.dirs)
	var err error
	if x.report != nil {
		err = errors.Join(err, x.report.abort())
	}
	if x.store != nil {
		err = errors.Join(err, x.store.Close())
	}
	if x.journal != nil {
		if closeErr := x.journal.Close(); closeErr != nil {
			err = errors.Join(err, dirty(fmt.Errorf("%w: %w", lab.ErrDirty, closeErr)))
		}
	}
	return err
}

// ownVersion is the program's version as runs keep it.
func ownVersion() string { return strings.TrimPrefix(readVersion().String(), "chokepoint ") }

// source is a version without the system that it was built for, which is the last word.
func source(version string) string {
	return strings.TrimRight(version[:strings.LastIndexByte(version, ' ')+1], " ")
}

// binaryHash identifies the program, so that resume can tell another build.
func binaryHash() string {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
