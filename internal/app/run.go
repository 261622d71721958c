package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/labgrid"
	"github.com/chokepoint-lab/chokepoint/internal/lab/ssh"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/trial/meter"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// settleTime is the maximum time to wait for a locked store at the start and end of a run.
const settleTime = 2 * time.Minute

// undoTime is the time limit for taking down a local lab, which normally takes 20 ms.
const undoTime = 20 * time.Second

// RunOptions configure Run.
type RunOptions struct {
	Attach string    // name of a lab made by "lab up"; if "", the run makes a lab of its own
	Peer   Peer      // other machine; the zero value means that the lab needs none
	Report string    // path of the HTML report; "" means the run's directory
	Until  time.Time // time by which the whole command must end; zero means no limit
}

// Result is the result of a run.
type Result struct {
	Document *analysis.Document
	Report   string // path of the report; "" if it could not be written
	// Outcome is an ErrFailed for failed trials or an ErrThreshold for missed thresholds, or nil.
	Outcome error
}

// Run executes a plan as the run that head describes (see NewRun), stores each trial, and writes the report.
// If ctx is cancelled with the cause ErrInterrupted, Run stops the load. It always restores the lab. If
// anything was stored, it returns a result even if it fails. If another run has the same name, the error is
// an ErrUsage.
func (a *App) Run(ctx context.Context, pl *plan.Plan, head record.Run, o RunOptions) (*Result, error) {
	if err := a.Dirs.free(ctx, head.Name); err != nil {
		return nil, err
	}

	x, err := a.execution(ctx, pl, head, o)
	if err != nil {
		return nil, err
	}
	return x.whole(ctx)
}

// Skips returns the plan and marks the cells that cannot run in its labs as skipped. It brings the labs up,
// but runs no trial.
func (a *App) Skips(ctx context.Context, pl *plan.Plan, head record.Run, o RunOptions) (*plan.Plan, error) {
	x, err := a.execution(ctx, pl, head, o)
	if err != nil {
		return nil, err
	}

	skipped, err := x.try(ctx)
	tried := pl.WithSeed(pl.Design.Method.Seed)
	d := &tried.Design
	d.Skipped = append(slices.Clone(d.Skipped), skipped...)
	d.Cells = slices.DeleteFunc(slices.Clone(d.Cells), func(c record.Factors) bool {
		return slices.ContainsFunc(skipped, func(s record.Skipped) bool { return s.Factors.Key() == c.Key() })
	})
	return tried, err
}

// CanMeasure returns an ErrFailed if all cells of a plan are skipped. Run returns the same error.
func CanMeasure(pl *plan.Plan) error {
	if len(pl.Cells()) > 0 {
		return nil
	}
	return Mark(ErrFailed, fmt.Errorf("nothing can be measured: %w", whyNothing(pl.Skipped())))
}

// execution executes one campaign for Run or Resume, from opening the store to the result.
type execution struct {
	*App
	plan   *plan.Plan
	run    record.Run
	attach string
	// peer connects to the other machine. If it is nil, the lab is on this machine.
	peer       func(ctx context.Context) (*lab.Lab, error)
	reportPath string
	before     *record.Run // stored head, if the run is resumed
	force      bool        // resume the run even if conditions have changed
	until      time.Time   // time by which the whole command must end, including endTime; zero means no limit

	held  *labgrid.Held // the place of the machines; nil means none
	guard *guard        // stops changes that do harm; nil means that none are tried

	store    *store.Store
	alive    io.Closer     // shows other processes that the run is being recorded
	keeper   *store.Keeper // stores the trials
	opened   time.Time     // start time of this execution
	began    bool          // the head of the run is stored
	journal  *journal.Journal
	sink     progress.Sink
	campaign *trial.Campaign
	outcome  trial.Outcome
	report   *userfile.File
	result   *Result // set when the run has ended
}

// whole executes the campaign. It first opens everything that may fail, so that no result is lost. It then
// runs the campaign, restores the lab, and reports.
func (x *execution) whole(ctx context.Context) (result *Result, err error) {
	defer Closing(&err, x.shut)
	if err := x.open(ctx); err != nil {
		return nil, err
	}

	done, err := x.done(ctx)
	if err != nil {
		return nil, err
	}

	if err := x.hold(ctx); err != nil {
		return nil, err
	}

	labs, err := x.labs(ctx)
	if err != nil {
		return nil, err
	}

	x.sink = x.events()
	runErr := x.campaignOver(ctx, labs, done)
	if errors.Is(runErr, errRefused) { // before anything was measured
		return nil, errors.Join(Dirty(x.undo(ctx)), x.sink.Close(), runErr)
	}

	undone := x.undo(ctx)
	err = x.end(ctx, runErr, errors.Join(undone, x.releasePlace(ctx)))
	return x.result, err
}

// end stores the status of the run and presents its result. The first signal does not interrupt it.
func (x *execution) end(ctx context.Context, runErr, undoErr error) error {
	status := record.RunDone
	reason := ""
	gone := errors.Is(runErr, trial.ErrMachineGone)
	switch {
	// After the last trial, a signal has nothing left to interrupt.
	case runErr != nil && errors.Is(context.Cause(ctx), ErrInterrupted):
		status = record.RunInterrupted
		reason = "by a signal"
	case gone:
		status, reason = record.RunInterrupted, runErr.Error()
		first := "start chokepoint peer there again, then: "
		switch {
		case x.run.Machines != nil:
			first = "once it can be reached again: "
		case (Peer{At: x.run.Peer}).ThirdParty():
			first = "start iperf3 -s there again, then: "
		}

		runErr = Hinted(first+
			"chokepoint resume "+x.run.ID, "run %s is interrupted: %w", x.run.ID, runErr)
		if x.outcome.Trials == x.outcome.Failed { // all trials failed, so nothing was measured
			runErr = Mark(ErrFailed, runErr)
		}
	case runErr != nil:
		status, reason = record.RunFailed, runErr.Error()
	}

	after := context.WithoutCancel(ctx)
	if x.began {
		waiting, stop := x.unhurried(after)
		x.noteOthers(waiting)
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

	x.emit(record.Event{Event: "run-ended", Status: status, Text: reason})
	undoErr = errors.Join(undoErr, x.sink.Close())
	if !x.began {
		return errors.Join(Dirty(undoErr), runErr)
	}

	if runErr != nil && !gone {
		runErr = check.WithHint(runErr, "chokepoint resume "+x.run.ID+" continues it")
	}

	x.run.Status, x.run.Reason = status, reason
	lost := x.present(after)
	if gone && x.result != nil && !errors.Is(x.result.Outcome, ErrThreshold) {
		x.result.Outcome = nil // the last trial failed because the machine was lost
	}

	return errors.Join(Dirty(undoErr), runErr, lost)
}

// endTime is the time reserved for taking the lab down and writing the report after the last trial.
const endTime = 3 * time.Second

// labs returns the labs of the campaign.
func (x *execution) labs(ctx context.Context) (trial.Labs, error) {
	switch {
	case x.peer != nil:
		return &lab.Peers{Up: x.peer}, nil
	case x.run.Machines != nil:
		m := *x.run.Machines
		remote := x.Remote(x.run.ID+"-machines", m, x.journal)
		if m.Client.At+m.Server.At == "" { // not needed, because the plan sends nothing
			return &lab.Peers{Up: remote.Reach}, nil
		}

		return &lab.Peers{Up: remote.Up}, nil
	}

	labs := &lab.Locals{Local: lab.Local{
		ID:      x.run.ID,
		Dir:     x.Dirs.Labs(),
		Journal: x.journal,
		Queues:  x.run.Queues,
		Driver:  x.run.Driver,
		Parts:   registry.LabParts(),
	}}
	if x.store != nil {
		labs.Keep = x.Dirs.runDir(x.run.ID)
	}

	var err error
	if x.attach != "" {
		i, err := lab.Standing(labs.Dir, x.attach)
		if err == nil {
			labs.Attached, err = lab.Attach(labs.Dir, x.attach, labs.Parts, x.journal)
		}

		if err != nil {
			return nil, Mark(ErrUsage, err)
		}

		i.Describe(&x.run)
		return labs, nil
	}

	labs.Guest, err = x.Guest(ctx, x.run)
	return labs, err
}

// open creates the directories, the journal and the report file, and opens the store.
func (x *execution) open(ctx context.Context) (err error) {
	x.opened = time.Now()
	d := x.Dirs
	if err := Prepare(d.Data, d.State, d.Runtime); err != nil {
		return err
	}

	// Create the journal first: if two runs start at the same time, at least one of them then sees the
	// journal of the other.
	if x.journal, err = journal.Create(d.Journals(), x.run.ID, d.Labs()); err != nil {
		return err
	}

	path, create, err := d.Place(x.run.ID, x.reportPath, reportName)
	if err != nil {
		return err
	}

	x.reportPath = path

	if err := x.refuseLeftovers(); err != nil {
		return err
	}

	if x.report, err = create(x.reportPath); err != nil {
		return err
	}

	if x.store, err = d.OpenOwn(ctx); err != nil {
		return err
	}

	if x.alive, err = x.store.Record(x.run.ID); err != nil {
		return err
	}

	x.keeper = &store.Keeper{Store: x.store, Run: x.run.ID, Waits: x.waits}
	return nil
}

// refuseLeftovers tells the user about killed runs whose changes were not undone. It returns an error if such
// changes affect the lab.
func (x *execution) refuseLeftovers() error {
	stale, living, err := journal.FindStale(x.Dirs.Journals(), nil)
	if err != nil && x.attach != "" { // a damaged journal may belong to any lab
		return Dirty(fmt.Errorf("attach to lab %s: %w: it may have been changed: %w", x.attach, lab.ErrDirty,
			err))
	}

	if err != nil {
		x.note("%v", err)
	}

	i := slices.IndexFunc(living, func(run string) bool { return run != x.run.ID })
	if i >= 0 {
		x.note("%s is active on this machine, too; wait until it has ended", owner(living[i]))
		x.run.Caveats = append(x.run.Caveats, anotherRun(owner(living[i])))
	}

	var refused error
	for _, s := range stale {
		if x.attach != "" && slices.ContainsFunc(s.Entries,
			func(e journal.Entry) bool { return e.Lab == x.attach }) {
			refused = Usage("chokepoint lab restore puts them back",
				"attach to lab %s: %s was killed and has left changes there", x.attach, owner(s.Owner))
		}

		end := s.Remove // remove the journal, because there are no changes to undo
		if len(s.Entries) > 0 {
			x.note("%s was killed and has left %s; chokepoint lab restore clears it away", owner(s.Owner),
				unit.Count(len(s.Entries), "change"))
			end = s.Release
		}

		if err := end(); err != nil {
			return err
		}
	}

	return refused
}

// anotherRun returns a caveat for a run that shared this machine with another run.
func anotherRun(name string) record.Caveat {
	return record.Caveat{
		Kind: "another-run",
		Text: name + " was active on this machine, too: each of the two measured the other's load",
	}
}

// noteOthers adds a caveat if another run started on this machine during the run. The other run has had the
// same caveat since its start. An error is only shown to the user, because the run itself is good.
func (x *execution) noteOthers(ctx context.Context) {
	var heads []store.Head
	err := store.Patiently(ctx, settleTime, func() (err error) {
		heads, err = x.store.Runs(ctx)
		return err
	})
	i := slices.IndexFunc(heads, func(h store.Head) bool {
		return h.Started.After(x.opened) && h.ID != x.run.ID && h.Lab != record.LabImported
	})
	if i >= 0 {
		err = errors.Join(err, x.learnt(ctx, nil, []record.Caveat{anotherRun("run " + heads[i].ID)}))
	}

	if err != nil {
		x.note("it is not stored whether another run began during this one: %v", err)
	}
}

// owner describes the owner of a journal, which is a run or another command that makes labs. The ids of such
// a command start with the command's name.
func owner(id string) string {
	word, _, _ := strings.Cut(id, "-")
	if slices.Contains([]string{"doctor", "check", "plan", "tune"}, word) {
		return "another chokepoint (" + id + ")"
	}
	return "run " + id
}

func (x *execution) emit(e record.Event) {
	e.Run = x.run.ID
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}

	x.sink.Event(e)
}

// campaignOver runs all rows of the campaign in the labs, after bringing the labs up and storing the head of
// the run.
func (x *execution) campaignOver(ctx context.Context, labs trial.Labs, done []record.Trial) error {
	x.campaign = x.newCampaign(labs)
	c := x.campaign
	c.Store = x.keeper
	c.Sink = x.emit
	c.Ask = x.ask
	c.Done = done
	c.Learnt = x.learnt
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

	x.emit(record.Event{Event: "run-started", Text: x.run.Design.Name, Data: data})
	if err := c.Prepare(ctx); err != nil {
		return err
	}

	e, err := ahead(c, data)
	if err != nil {
		return err
	}

	x.emit(e)
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

// ahead returns an event that announces the remaining trials. It is called as soon as it is known which cells
// cannot run. The event contains the design, unless the same design was sent before.
func ahead(c *trial.Campaign, sent []byte) (record.Event, error) {
	data, err := json.Marshal(c.Run.Design)
	if err != nil {
		return record.Event{}, fmt.Errorf("encode design: %w", err)
	}

	if bytes.Equal(data, sent) {
		data = nil
	}

	total, left, takes := c.Ahead()
	text := unit.Count(left, "trial")
	if left < total {
		text = fmt.Sprintf("%d of %s left", left, unit.Count(total, "trial"))
	}

	if left > 0 {
		text += ", about " + about(takes)
	}

	return record.Event{
		Event: "phase",
		Phase: "plan",
		Text:  text,
		Total: total,
		Left:  takes,
		Data:  data,
	}, nil
}

func (x *execution) newCampaign(labs trial.Labs) *trial.Campaign {
	return &trial.Campaign{
		Run:        x.run,
		Plan:       x.plan,
		Labs:       labs,
		Engines:    node.Engines(),
		Prober:     proberOf(x.run.Design.Measure),
		Hopper:     node.Hopper(),
		Probes:     node.Probes(),
		Install:    x.installer(),
		NewInterim: func(run *record.Run) trial.Interim { return analysis.NewInterim(run) },
		Brief:      analysis.Brief,
	}
}

// try brings up the labs of the plan and returns the cells that cannot run in them. It runs no trial.
func (x *execution) try(ctx context.Context) (skipped []record.Skipped, err error) {
	err = x.WithJournal(x.run.ID, func(j *journal.Journal) error {
		x.journal = j
		if err := x.hold(ctx); err != nil {
			return err
		}

		labs, err := x.labs(ctx)
		if err == nil {
			c := x.newCampaign(labs)
			err = c.Prepare(ctx)
			skipped = c.Run.Skipped
			err = errors.Join(err, Dirty(c.Close(context.WithoutCancel(ctx))))
		}

		_, unreleased := x.release(ctx, x.held)
		return errors.Join(err, unreleased)
	})
	return skipped, err
}

// proberOf returns the latency prober that a design uses.
func proberOf(m record.Measure) traffic.Prober {
	for _, l := range node.Probers() {
		if l.Name() == m.Probe {
			return l
		}
	}
	return node.Prober()
}

// ask asks the user to take a step of the plan.
func (x *execution) ask(ctx context.Context, s record.Step) error {
	if x.Ask == nil {
		return fmt.Errorf("step %q needs a human", s.Prompt)
	}
	return x.Ask(ctx, s)
}

// undo restores the labs, even if ctx has been cancelled. A second Ctrl-C ends the wait.
func (x *execution) undo(ctx context.Context) error {
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- x.campaign.Close(after) }()
	select {
	case err := <-ended:
		return err
	case <-x.Hurry:
		cancel()
		return fmt.Errorf("%w: stopped waiting while lab %s was taken down", lab.ErrDirty, x.run.ID)
	}
}

// present derives the document and writes the report.
func (x *execution) present(ctx context.Context) error {
	run, lost := x.store.Find(ctx, x.run.ID)
	if lost != nil { // use the trials in memory instead
		run = x.campaign.Run
	}

	run.Status, run.Reason = x.run.Status, x.run.Reason // show the status even if it could not be stored
	run.Design.Catalogue = x.plan.Design.Catalogue
	doc, err := Derive(run, x.keeper.Count(ctx), x.keeper.Trials(ctx))
	if err != nil {
		return errors.Join(lost, err)
	}

	if lost == nil {
		lost = proofsOf(ctx, x.store, run, doc) // a resumed run may already have experiments
	}

	if lost == nil {
		lost = store.Patiently(ctx, settleTime, func() error { return summarise(ctx, x.store, doc) })
	}

	x.result = &Result{Document: doc, Outcome: outcome(doc)}
	html, err := report.HTML(doc)
	if err == nil {
		err = x.report.Commit(html)
	}

	if err == nil {
		x.result.Report = x.reportPath
	}

	return errors.Join(lost, err)
}

// waits sends a warning that n trials are waiting in memory for the store, or that none are waiting any more.
func (x *execution) waits(n int, why error) {
	text := "the store has all trials again"
	if n > 0 {
		text = fmt.Sprintf("%s in memory, the store does not take them: %v", unit.Count(n, "trial"), why)
	}

	x.emit(record.Event{Event: "warning", Text: text})
}

// shut closes everything that open has opened. Its errors do not affect the result.
func (x *execution) shut() error {
	defer x.Dirs.ClearRuntime()
	var err error
	if x.report != nil {
		err = errors.Join(err, x.report.Abort())
	}

	if !x.began {
		_ = os.Remove(x.Dirs.runDir(x.run.ID)) // fails if the directory contains files
	}

	if x.store != nil {
		err = errors.Join(err, x.store.Close())
	}

	if x.alive != nil {
		err = errors.Join(err, x.alive.Close())
	}

	// Unless the run has ended normally, its place is still acquired.
	_, unreleased := x.release(context.Background(), x.held)
	err = errors.Join(err, unreleased)
	if x.journal != nil {
		if closeErr := x.journal.Close(); closeErr != nil {
			err = errors.Join(err, Dirty(fmt.Errorf("%w: %w", lab.ErrDirty, closeErr)))
		}
	}

	return err
}

// ShowCommands tells the user what a lab file makes this machine do, before it happens: the programs that the
// machines and the power meter run here, and the settings that a plan may change. The user must see this,
// because a lab file is, in effect, a program.
func (a *App) ShowCommands(m record.Machines, power *record.Meter) error {
	var uses []string
	if m.SSHConfig != "" {
		commands, err := ssh.ConfigCommands(m.SSHConfig)
		if err != nil {
			return err
		}

		for _, line := range commands {
			uses = append(uses, "runs here, by "+m.SSHConfig+": "+line)
		}
	}

	if m.Place != nil {
		uses = append(uses, placeUses(*m.Place)...)
	}

	if m.Flash != nil {
		uses = append(uses, "runs here, to install a firmware: labgrid-client "+
			strings.Join(m.Flash.Commands, "; labgrid-client "))
	}

	if m.Firmware != nil {
		uses = append(uses, "runs here, to install a firmware: "+strings.Join(*m.Firmware, " ")+" LEVEL")
	}

	if power != nil {
		uses = append(uses, meter.Uses(*power))
	}

	if m.AllowSysctl != nil {
		uses = append(uses, "lets a plan set on each machine: "+strings.Join(*m.AllowSysctl, ", "))
	}

	for _, use := range uses {
		if use != "" {
			a.note("this lab %s", use)
		}
	}

	return nil
}
