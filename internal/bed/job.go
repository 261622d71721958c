package bed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/labgrid"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Job is the work that a schedule, a trigger or a request starts.
type Job struct {
	ID       string    `json:"id"`
	Why      string    `json:"why"`
	Schedule string    `json:"schedule,omitempty"`
	At       time.Time `json:"at,omitzero"` // scheduled time
	Trigger  string    `json:"trigger,omitempty"`
	Plans    []string  `json:"plans"`
	Version  string    `json:"version,omitempty"` // version that a trigger found, if the lab can install it
	Note     string    `json:"note,omitempty"`    // description of what a trigger found
}

// Result is the result of a job.
type Result struct {
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Runs    []string  `json:"runs"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
}

// drawn holds the start time and the tasks of a job. They are determined only once, so that each attempt
// measures the same tasks.
type drawn struct {
	Started time.Time `json:"started"`
	Tasks   []task    `json:"tasks"`
}

// task is one run of a plan or, if Against is set, a comparison of two versions.
type task struct {
	Plan    string `json:"plan"`
	Version string `json:"version,omitempty"`
	Against string `json:"against,omitempty"` // version that is known to be good
	ID      string `json:"id"`                // id of the run, or of the comparison's series of runs
	Seed    uint64 `json:"seed"`
}

// outcome is the result of a step.
type outcome struct {
	Failure   string   `json:"failure,omitempty"`
	Cancelled bool     `json:"cancelled,omitempty"`
	Runs      []string `json:"runs,omitempty"`
	Kind      string   `json:"kind,omitempty"` // kind of the alarm that a comparison raises
	Text      string   `json:"text,omitempty"` // result of a comparison
}

// errCancelled is the cause of the context of a cancelled job.
var errCancelled = app.Mark(app.ErrInterrupted, errors.New("the job was cancelled"))

// work executes a job in steps: draw, reserve, measure, push, judge, release and end. If the process is
// killed, work is executed again, so it must always request the same steps in the same order. ctx ends with
// the service.
func (b *Service) work(ctx context.Context, s steps, j Job) (r Result, err error) {
	b.enter(j)
	defer func() { b.leave(ctx, cmp.Or(r.Status, store.BedFailed)) }()
	do := func(name string, f func(ctx context.Context) (outcome, error)) (outcome, error) {
		return step(s, name, func(stepCtx context.Context) (outcome, error) {
			b.stepping(name)
			if ctx.Err() != nil {
				return outcome{}, ctx.Err()
			}

			if err := b.attempts.begin(j.ID, name); err != nil {
				return outcome{Failure: err.Error()}, nil
			}

			o, err := f(ctx)
			err = errors.Join(err, b.attempts.end())
			if stopped := cmp.Or(ctx.Err(), stepCtx.Err()); stopped != nil || err == nil {
				return o, stopped
			}

			return outcome{Failure: err.Error()}, nil
		})
	}
	d, err := step(s, "draw", func(context.Context) (drawn, error) { return b.draw(j), nil })
	if err != nil {
		return r, err
	}

	b.began(d.Started)
	r.Started = d.Started
	failed, err := do("reserve", func(ctx context.Context) (outcome, error) {
		return b.stoppable(ctx, b.reserve)
	})
	if err != nil {
		return r, err
	}

	var found []outcome
	for i, t := range d.Tasks {
		if failed.Failure != "" || failed.Cancelled {
			break
		}

		o, err := do(fmt.Sprintf("measure %d", i+1), func(ctx context.Context) (outcome, error) {
			return b.stoppable(ctx, func(ctx context.Context) (outcome, error) {
				return b.measure(ctx, j, t)
			})
		})
		if err != nil {
			return r, err
		}

		r.Runs = append(r.Runs, o.Runs...)
		found = append(found, o)
		failed = o
	}

	for _, last := range []struct {
		name string
		do   func(context.Context) (outcome, error)
	}{
		{"push", b.push},
		{"judge", func(ctx context.Context) (outcome, error) {
			return outcome{}, b.judge(ctx, j, failed, found)
		}},
		{"release", b.release},
	} {
		o, err := do(last.name, last.do)
		if err != nil {
			return r, err
		}

		if failed.Failure == "" && !failed.Cancelled {
			failed = o
		}
	}

	r.Ended, err = step(s, "end", func(context.Context) (time.Time, error) { return b.now().UTC(), nil })
	r.Status = store.BedDone
	switch {
	case failed.Cancelled:
		r.Status, r.Reason = store.BedCancelled, "by a request"
	case failed.Failure != "":
		r.Status, r.Reason = store.BedFailed, failed.Failure
	}

	return r, err
}

// draw draws the ids, the seeds and the order of a job's tasks.
func (b *Service) draw(j Job) drawn {
	d := drawn{Started: b.now().UTC()}
	compares := j.Version != "" && b.Config.Good != ""
	for _, p := range j.Plans {
		if compares {
			d.Tasks = append(d.Tasks, task{Plan: p, Version: j.Version, Against: b.Config.Good})
			continue
		}

		own := []task{{Plan: p, Version: cmp.Or(j.Version, b.Config.Firmware)}}
		if b.Config.Canary != "" {
			own = append(own, task{Plan: p, Version: b.Config.Canary})
		}

		rand.Shuffle(len(own), func(x, y int) { own[x], own[y] = own[y], own[x] })
		d.Tasks = append(d.Tasks, own...)
	}

	used := map[string]bool{}
	for i := range d.Tasks {
		t := &d.Tasks[i]
		for t.ID = app.NewID(); used[t.ID]; t.ID = app.NewID() { // ids have few random digits
		}

		used[t.ID] = true
		t.Seed = uint64(rand.Uint32())
	}

	return d
}

// Limits of waiting.
const (
	otherRunTime = 6 * time.Hour // to wait for another run or for labgrid's coordinator
	otherRunLook = 5 * time.Second
)

// tryAgain lists the pauses before a failed step is tried again.
var tryAgain = [...]time.Duration{time.Minute, 5 * time.Minute}

// reserve undoes the changes that killed runs left behind, and waits until no other run measures on this
// machine.
func (b *Service) reserve(ctx context.Context) (outcome, error) {
	return b.tried(ctx, func() (outcome, error) {
		if err := b.App.RestoreAll(ctx); err != nil {
			return outcome{}, err
		}

		for end := time.Now().Add(otherRunTime); ctx.Err() == nil; {
			living, err := journal.Living(b.App.Dirs.Journals())
			if err != nil {
				return outcome{}, err
			}

			if len(living) == 0 {
				break
			}

			if time.Now().After(end) {
				return outcome{Failure: "run " + living[0] + " measures on this machine, too"}, nil
			}

			b.stepping("reserve: waiting for run " + living[0])
			_ = host.Pause(ctx, otherRunLook)
		}
		return outcome{}, nil
	})
}

// release undoes the changes that are left. Each run has already undone its own changes.
func (b *Service) release(ctx context.Context) (outcome, error) {
	return b.tried(ctx, func() (outcome, error) { return outcome{}, b.App.RestoreAll(ctx) })
}

// tried calls f. If f fails for a reason that may pass, tried calls f up to two more times. A call that fails
// because labgrid's coordinator cannot be reached does not count until otherRunTime has passed.
func (b *Service) tried(ctx context.Context, f func() (outcome, error)) (outcome, error) {
	end, last := time.Now().Add(otherRunTime), ""
	for i := 0; ; {
		o, err := f()
		if err != nil {
			o.Failure = err.Error()
		}

		if err == nil || errors.Is(err, app.ErrUsage) || ctx.Err() != nil {
			return o, ctx.Err()
		}

		pause := lookEach
		if !errors.Is(err, labgrid.ErrNoCoordinator) || time.Now().After(end) {
			if i == len(tryAgain) {
				return o, nil
			}

			pause = tryAgain[i]
			i++
		}

		if text := fmt.Sprintf("%s; trying again in %s", o.Failure, unit.Duration(pause)); text != last {
			b.note("%s", text)
			last = text
		}

		held := b.passTurn()
		if host.Pause(ctx, min(pause, b.maxPause)) != nil || held && b.alone(ctx) != nil {
			return o, ctx.Err()
		}
	}
}

// stoppable waits until no other testbed of this machine executes a job, and then calls f. A request to
// cancel the job cancels the context of f.
func (b *Service) stoppable(ctx context.Context,
	f func(ctx context.Context) (outcome, error)) (outcome, error) {
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b.cancellable(cancel)
	defer b.cancellable(nil)
	err := b.alone(working)
	var o outcome
	if err == nil {
		o, err = f(working)
	}

	if ctx.Err() == nil && working.Err() != nil {
		o.Cancelled, o.Failure = true, ""
		return o, nil
	}
	return o, err
}

// measure executes the run of a task, or continues it.
func (b *Service) measure(ctx context.Context, j Job, t task) (outcome, error) {
	return b.tried(ctx, func() (outcome, error) { return b.measureOnce(ctx, j, t) })
}

func (b *Service) measureOnce(ctx context.Context, j Job, t task) (outcome, error) {
	if filepath.IsAbs(j.Version) {
		f, err := host.OpenTrusted(j.Version)
		if err != nil {
			return outcome{}, fmt.Errorf("boot version: %w", err)
		}

		if err := f.Close(); err != nil {
			return outcome{}, err
		}
	}

	if err := b.App.RestoreAll(ctx); err != nil {
		return outcome{}, err
	}

	if t.Against != "" {
		return b.compare(ctx, t)
	}

	o := outcome{Runs: []string{t.ID}}
	b.measuring(t.ID)
	var stored *record.Run
	err := b.App.Dirs.WithRun(ctx, t.ID, func(_ *store.Store, r record.Run) error {
		stored = &r
		return nil
	})
	switch {
	case check.Is[*store.NotFoundError](err) || errors.Is(err, store.ErrNone):
		return o, b.run(ctx, j, t)
	case err != nil || stored.Status == record.RunDone:
		return o, err
	case stored.Status == record.RunRunning:
		return o, fmt.Errorf("run %s is being measured by another program", t.ID)
	}

	result, err := b.App.Resume(ctx, t.ID, app.ResumeOptions{Force: true})
	return o, ended(result, err)
}

// run executes the run of a task from its beginning.
func (b *Service) run(ctx context.Context, j Job, t task) error {
	v, pl, err := b.versioned(t, t.Version)
	if err != nil {
		return err
	}

	head := b.App.NewRunOn(pl.WithSeed(t.Seed), b.On)
	head.ID = t.ID
	head.Image, head.OwnKernel = cmp.Or(v.Image, head.Image), cmp.Or(v.Kernel, head.OwnKernel)
	head.Notes = append(slices.Clone(head.Notes), fmt.Sprintf("testbed %s: %s", b.Config.Name, j.Why))
	if j.Note != "" {
		head.Notes = append(head.Notes, j.Note)
	}

	result, err := b.App.Run(ctx, pl.WithSeed(t.Seed), head, app.RunOptions{})
	return ended(result, err)
}

// ended returns the error of a run, or nil if the run has a result despite the error.
func ended(r *app.Result, err error) error {
	if r != nil && r.Document.Run.Status == record.RunDone {
		return nil
	}
	return err
}

// versioned returns the version that word names, and the plan of a task for this version.
func (b *Service) versioned(t task, word string) (v app.RouterVersion, pl *plan.Plan, err error) {
	if word != "" {
		v, err = b.Version(word)
	}

	if err == nil {
		pl, err = b.Plan(t.Plan, v, t.Against != "")
	}
	return v, pl, err
}

// compare compares a version with the good version, or continues the comparison.
func (b *Service) compare(ctx context.Context, t task) (o outcome, err error) {
	options := app.UpgradeOptions{On: b.On, ID: t.ID, Fresh: true}
	for _, word := range []string{t.Against, t.Version} {
		v, pl, err := b.versioned(t, word)
		if err != nil {
			return o, err
		}

		options.Versions = append(options.Versions, v)
		options.Plans = append(options.Plans, pl)
	}

	all, labels, err := b.App.Upgrade(ctx, options)
	if err != nil || len(all) == 0 || all[0] == nil {
		return o, cmp.Or(err, errors.New("no block has both versions"))
	}

	o.Kind, o.Text = verdict(all[0], labels)
	return o, nil
}

// verdict returns the text of a comparison and the kind of alarm that the comparison raises, or "" if it
// raises none.
func verdict(c *analysis.RunComparison, labels map[string]string) (kind, text string) {
	if len(c.Summary) > 0 {
		text = c.Summary[0]
	}

	for _, f := range c.OnlyA {
		text += "\n" + labels[f.Key()] + ": " + c.LossWords(f)
	}

	switch {
	case len(c.Regressions)+len(c.OnlyA) > 0:
		kind = slower
	case slices.ContainsFunc(c.Comparisons, isDifferent):
		kind = faster
	}

	return kind, text
}

// push sends the runs to the team's store. If this fails, the service sends them later.
func (b *Service) push(ctx context.Context) (outcome, error) {
	if b.App.Dirs.Team == "" {
		return outcome{}, nil
	}

	sending, stop := context.WithTimeout(ctx, pushTime)
	defer stop()
	if err := b.App.SendRecorded(sending, b.team); err != nil {
		b.note("not sent to %s: %v; trying again later", b.App.Dirs.Team, err)
	}

	return outcome{}, ctx.Err()
}

const pushTime = 10 * time.Minute
