package bed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/serve"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Service is the service of a testbed. Its exported fields must be set before Run.
type Service struct {
	App     app.App
	Config  plan.Bed
	Changed time.Time  // time of the last change of the bed file
	On      record.Run // head of a run in the testbed's lab
	// Version returns the version of the router that the given word names.
	Version func(word string) (app.RouterVersion, error)
	// Plan reads a plan of the bed file for a version. A plan for a comparison of versions has one run of
	// each cell.
	Plan func(name string, v app.RouterVersion, compares bool) (*plan.Plan, error)

	now      func() time.Time
	maxPause time.Duration // longest pause before a failed step is tried again
	team     app.Dirs      // directories with the team's store
	engine   engine
	alarms   alarms
	attempts attempts
	started  time.Time
	turn     *os.File  // lock that keeps other testbeds of this machine from running a job
	since    time.Time // start of the schedules

	entering sync.Mutex // held while a job begins to run, and while a waiting job is cancelled

	mu       sync.Mutex
	live     *store.BedJob // the running job; nil means none
	cancel   context.CancelCauseFunc
	asked    string // id of the job that a request cancels
	triggers []store.BedTrigger
	last     store.Bed // last report
	silent   bool      // the last report could not be stored
}

// Intervals at which the service acts.
const (
	lookEach    = 10 * time.Second // for requests, due schedules and reports
	lookBusy    = 30 * time.Second // while a job runs, because looking takes CPU time
	recoverEach = 10 * time.Minute
	deliverEach = time.Minute
	resendEach  = 10 * time.Minute
	knownJobs   = 500 // number of jobs to search for the last job of a schedule
)

// Dir returns the directory of a testbed.
func Dir(d app.Dirs, name string) string { return filepath.Join(d.State, "beds", name) }

// Run runs the service until ctx ends. It first continues the jobs that were cut short. It returns an error
// if this testbed's service is already running.
func (b *Service) Run(ctx context.Context) error {
	b.now, b.maxPause, b.started = time.Now, time.Hour, time.Now()
	return b.serve(ctx)
}

// Next returns the next time of each schedule.
func (b *Service) Next(now time.Time) (next []time.Time) {
	for _, s := range b.Config.Schedules {
		c, _ := parseCron(s.Cron) // no error, because the expression was checked when the bed file was read
		next = append(next, c.Next(now))
	}
	return next
}

func (b *Service) serve(ctx context.Context) (err error) {
	dir := Dir(b.App.Dirs, b.Config.Name)
	if err := app.Prepare(dir); err != nil {
		return err
	}

	lock, err := lockDir(dir, b.Config.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	first, err := lock.Stat() // the service creates the file at its first start and never writes to it
	if err != nil {
		return fmt.Errorf("lock testbed %s: %w", b.Config.Name, err)
	}

	b.since = b.Changed
	if first.ModTime().After(b.since) {
		b.since = first.ModTime()
	}

	asked := ctx
	ctx, stop := context.WithCancelCause(asked)
	defer stop(nil)
	claim := &store.Claim{Place: b.Config.Database, Name: "bed " + b.Config.Name}
	hold := func(ctx context.Context) error {
		if !store.OnServer(b.Config.Database) {
			return nil // the lock of the directory is sufficient
		}

		held, err := claim.Hold(ctx)
		if !held && err == nil {
			stop(errElsewhere)
			err = errElsewhere
		}
		return err
	}
	if err := hold(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claim.Close()) }()

	b.team = b.App.Dirs
	b.App.Dirs = b.team.Recording()
	b.App.Events = func() progress.Sink { return sink{b} }
	b.alarms = alarms{file: filepath.Join(dir, "alarms.json"), how: b.Config.Alarm, bed: b.Config.Name}
	b.attempts.file = filepath.Join(dir, "attempt.json")
	var listener net.Listener
	if b.Config.Metrics != "" {
		var lc net.ListenConfig
		if listener, err = lc.Listen(ctx, "tcp", b.Config.Metrics); err != nil {
			return app.Hinted("choose another port by metrics: in the bed file", "listen at %s: %v",
				b.Config.Metrics, check.Underlying(err))
		}
	}

	database := cmp.Or(b.Config.Database, filepath.Join(dir, "jobs.db"))
	lost := func(err error) { stop(fmt.Errorf("database of jobs: %s", check.Plain(err.Error()))) }
	b.engine, err = openTransact(ctx, b.Config.Name, database, b.note, lost,
		func(s steps, j Job) (Result, error) { return b.work(ctx, s, j) })
	if err != nil {
		if listener != nil {
			err = errors.Join(err, listener.Close())
		}
		return err
	}

	b.note("testbed %s: %s, %s", b.Config.Name, unit.Count(len(b.Config.Schedules), "schedule"),
		unit.Count(len(b.Config.Triggers), "trigger"))
	err = b.loops(ctx, dir, listener, hold)
	if asked.Err() == nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return err
}

// errElsewhere means that the service of this testbed already runs on another machine.
var errElsewhere = app.Hinted("stop that one, or give this one another name in its bed file",
	"chokepoint bed already runs for this name and database on another machine")

// loops runs the parts of the service until ctx ends. hold checks that no other machine executes the jobs.
func (b *Service) loops(ctx context.Context, dir string, listener net.Listener,
	hold func(context.Context) error) error {
	var all sync.WaitGroup
	each := func(every time.Duration, f func(context.Context) error) {
		all.Go(func() {
			for {
				if err := f(ctx); err != nil && ctx.Err() == nil {
					b.note("%v", err)
				}

				if host.Pause(ctx, every) != nil {
					return
				}
			}
		})
	}
	for _, t := range b.Config.Triggers {
		b.triggers = append(b.triggers, store.BedTrigger{Name: t.Name, Kind: t.Kind(), Plans: t.Plans})
	}

	for i, t := range b.Config.Triggers {
		watched := &trigger{BedTrigger: t, images: filepath.Join(dir, "images", t.Name)}
		each(t.Every, func(ctx context.Context) error { return b.look(ctx, i, watched) })
	}

	each(lookEach, b.attend)
	each(lookEach, func(ctx context.Context) error {
		_ = hold(ctx) // ends ctx if another machine has the jobs; the engine reports a lost database
		return nil
	})
	each(recoverEach, func(context.Context) error { return b.engine.recover() })
	each(deliverEach, b.alarms.deliver)
	each(resendEach, func(ctx context.Context) error {
		if b.job() != nil { // a running job sends the runs itself
			return nil
		}

		_, err := b.push(ctx)
		return err
	})
	if listener != nil {
		all.Go(func() {
			if err := serve.NewMetrics(&b.App, b.families).Serve(ctx, listener); err != nil {
				b.note("%v", err)
			}
		})
	}

	<-ctx.Done()
	err := b.engine.close() // ends the calls that wait for the database
	all.Wait()
	return err
}

// families returns the last report as metrics. The report is in memory, so a request hardly disturbs a
// running measurement.
func (b *Service) families() []report.Family {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last.Name == "" { // the service is starting
		return nil
	}
	return serve.BedFamilies(b.last, b.now())
}

// lockDir locks the directory of a testbed for this process.
func lockDir(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock testbed %s: %w", name, err)
	}

	err = tryLock(f)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = app.Hinted("stop that one, or give this one another name in its bed file",
			"testbed %s: chokepoint bed already runs for it", name)
	}

	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return f, nil
}

// tryLock locks a file for this process. It returns unix.EWOULDBLOCK if another process has locked the file.
func tryLock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

func (b *Service) note(format string, args ...any) {
	if b.App.Note != nil {
		b.App.Note(format, args...)
	}
}

// look checks a trigger and starts a job for a new version. It does nothing while a job runs, because the
// check takes CPU time from the measurement.
func (b *Service) look(ctx context.Context, i int, t *trigger) error {
	if b.job() != nil {
		return nil
	}

	v, err := t.check(ctx)
	b.mu.Lock()
	s := &b.triggers[i]
	before := s.Failure
	s.Checked, s.Failure = b.now().UTC(), ""
	if err != nil {
		s.Failure = check.Plain(err.Error())
	} else {
		s.Seen = v.name
	}
	b.mu.Unlock()
	if err != nil && s.Failure == before { // noted before
		return nil
	}

	if err != nil || v.name == "" {
		return err
	}

	j := Job{
		ID:      fmt.Sprintf("trigger-%s-%.12x", t.Name, sha256.Sum256([]byte(v.id))),
		Why:     "trigger " + t.Name + ": " + v.name,
		Trigger: t.Name,
		Plans:   t.Plans,
		Note:    t.Kind() + " " + v.name,
	}
	switch {
	case !b.installs():
	case b.On.Machines == nil:
		j.Version = cmp.Or(v.file, v.name)
	default:
		j.Version = v.name
	}

	if err := b.replace(j); err != nil {
		return err
	}
	return b.clear(t.images)
}

// replace starts a job of a trigger. The new job replaces a job of the same trigger that is still waiting.
func (b *Service) replace(j Job) error {
	b.entering.Lock()
	defer b.entering.Unlock()
	_, found, err := b.engine.job(j.ID)
	if err != nil || found {
		return err
	}

	all, err := b.engine.jobs(knownJobs)
	for _, p := range all {
		if err == nil && p.status == store.BedWaiting && p.Trigger == j.Trigger {
			b.note("job %s: a newer version replaces it", p.ID)
			err = b.engine.cancel(p.ID)
		}
	}

	if err != nil {
		return err
	}
	return b.engine.start(j)
}

// clear removes the images of a trigger, except the newest image and those that the bed file or an unfinished
// job names.
func (b *Service) clear(images string) error {
	entries, err := os.ReadDir(images)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(entries) < 2:
		return nil
	case err != nil:
		return err
	}

	all, err := b.engine.jobs(knownJobs)
	if err != nil {
		return err
	}

	keep := []string{b.Config.Firmware, b.Config.Good, b.Config.Canary}
	for _, p := range all {
		if p.status == store.BedWaiting || p.status == store.BedRunning {
			keep = append(keep, p.Version)
		}
	}

	var newest fs.FileInfo
	for _, e := range entries {
		info, failed := e.Info()
		if err = errors.Join(err, failed); failed == nil &&
			(newest == nil || info.ModTime().After(newest.ModTime())) {
			newest = info
		}
	}

	for _, e := range entries {
		file := filepath.Join(images, e.Name())
		if e.Name() != newest.Name() && !slices.Contains(keep, file) {
			err = errors.Join(err, os.Remove(file))
		}
	}
	return err
}

// installs reports whether the lab can install a version.
func (b *Service) installs() bool {
	return canBoot(b.Config.Lab) && (b.On.Machines == nil || b.On.Machines.Installs())
}

// attend starts due jobs, answers requests and reports the state of the testbed.
func (b *Service) attend(ctx context.Context) error {
	now := b.now()
	b.mu.Lock()
	early := b.live != nil && b.last.Job != nil && now.Sub(b.last.Seen) < lookBusy
	b.mu.Unlock()
	if early {
		return nil
	}

	all, err := b.engine.jobs(knownJobs)
	if err != nil {
		return err
	}

	report := b.report(all, now)
	for i, s := range b.Config.Schedules {
		c, _ := parseCron(s.Cron) // no error, because the expression was checked when the bed file was read
		newest, done := lastOf(s.Name, all)
		due := tick(c, newest, b.since, now)
		if !due.IsZero() {
			err := b.engine.start(Job{
				ID:       fmt.Sprintf("schedule-%s-%d", s.Name, due.Unix()),
				Why:      "schedule " + s.Name,
				Schedule: s.Name,
				At:       due.UTC(),
				Plans:    s.Plans,
			})
			if err != nil {
				return err
			}
		}

		from := done
		if from.Before(b.since) {
			from = b.since
		}

		report.Schedules[i].Next = c.Next(now).UTC()
		report.Schedules[i].By = c.Next(from).Add(s.Grace).UTC()
	}

	err = b.exchange(ctx, report)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = report
	if (err != nil) == b.silent {
		return nil // noted before
	}

	b.silent = err != nil
	return err
}

// lastOf returns the time of the newest job of a schedule, and the time of the newest one that is done.
func lastOf(schedule string, all []jobState) (newest, done time.Time) {
	for _, p := range all {
		if p.Schedule != schedule {
			continue
		}

		if p.At.After(newest) {
			newest = p.At
		}

		if p.status == store.BedDone && p.At.After(done) {
			done = p.At
		}
	}
	return newest, done
}

// report returns the state of the testbed, except the times of its schedules.
func (b *Service) report(all []jobState, now time.Time) store.Bed {
	name, _ := os.Hostname()
	r := store.Bed{
		Name:    b.Config.Name,
		Host:    name,
		Version: app.RunVersion(),
		Lab:     filepath.Base(b.Config.Lab),
		Plans:   planNames(b.Config),
		Started: b.started.UTC(),
		Seen:    now.UTC(),
	}
	for _, s := range b.Config.Schedules {
		r.Schedules = append(r.Schedules, store.BedSchedule{Name: s.Name, Cron: s.Cron, Plans: s.Plans})
	}

	b.mu.Lock()
	r.Triggers = slices.Clone(b.triggers)
	if b.live != nil {
		r.Job = new(*b.live)
	}
	b.mu.Unlock()

	for _, p := range all {
		j := store.BedJob{
			ID:       p.ID,
			Why:      p.Why,
			Plans:    p.Plans,
			Firmware: strings.TrimPrefix(filepath.Base(p.Version), "."), // filepath.Base("") is "."
			Status:   p.status,
			Reason:   cmp.Or(p.failed, p.result.Reason),
			Runs:     p.result.Runs,
			Started:  p.result.Started,
			Ended:    p.result.Ended,
		}
		if n := len(j.Runs); n > 0 {
			j.Run = j.Runs[n-1]
		}

		switch {
		case p.status == store.BedWaiting:
			r.Waiting = slices.Insert(r.Waiting, 0, j) // all starts with the newest job
		case p.status != store.BedRunning && len(r.Ended) < store.MaxBedItems:
			r.Ended = append(r.Ended, j)
		}
	}

	newest, err := b.alarms.newest(store.MaxBedItems)
	if err != nil {
		b.note("%v", err)
	}

	r.Alarms = newest
	return r
}

// exchange stores the report and answers the requests to the testbed.
func (b *Service) exchange(ctx context.Context, report store.Bed) (err error) {
	st, err := b.team.OpenToRecord(ctx)
	if err != nil {
		return fmt.Errorf("report testbed %s: %w", b.Config.Name, err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := st.SetBed(ctx, report); err != nil {
		return err
	}

	requests, err := st.BedRequests(ctx, b.Config.Name)
	for _, r := range slices.Backward(requests) {
		if err == nil && r.Answered.IsZero() {
			err = b.answer(ctx, st, r)
		}
	}
	return err
}

// answer carries out a request, and stores the answer.
func (b *Service) answer(ctx context.Context, st *store.Store, r store.BedRequest) error {
	if r.Kind == store.AskStart && r.At.After(b.now()) {
		return nil // the request is for a later time
	}

	job, refused := r.Job, ""
	switch {
	case !store.ValidID(r.ID):
		refused = "the request has no valid id"
	case r.Kind == store.AskStart && slices.Contains(planNames(b.Config), r.Plan):
		job = "request-" + r.ID
		why := "request of " + cmp.Or(r.By, "a user")
		err := b.engine.start(Job{ID: job, Why: why, Plans: []string{r.Plan}})
		if err != nil {
			return err
		}
	case r.Kind == store.AskStart:
		refused = "there is no such plan any more"
	case r.Kind == store.AskCancel:
		found, done, err := b.cancelJob(r.Job)
		if err != nil || found && !done {
			return err // the job is ending; a later call answers the request
		}

		if !found && app.CheckID(r.Job) != nil { // the store itself cancels future starts
			refused = "there is no such job"
		}
	default:
		refused = "this version of chokepoint does not know the request"
	}

	return st.AnswerBedRequest(ctx, r.ID, job, refused, b.now())
}

// cancelJob cancels a job. found reports whether the job exists, and done reports whether it has ended.
func (b *Service) cancelJob(id string) (found, done bool, err error) {
	b.entering.Lock()
	defer b.entering.Unlock()
	if b.cancelLive(id) {
		return true, false, nil
	}

	p, found, err := b.engine.job(id)
	switch {
	case err != nil || !found:
		return found, false, err
	case p.status == store.BedWaiting:
		return true, false, b.engine.cancel(id)
	case p.status == store.BedRunning: // the job begins as soon as entering is released
		b.mu.Lock()
		defer b.mu.Unlock()
		b.asked = id
		return true, false, nil
	}
	return true, true, nil
}

// cancelLive cancels the running job, if it has the given id.
func (b *Service) cancelLive(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live == nil || b.live.ID != id {
		return false
	}

	b.asked = id
	if b.cancel != nil {
		b.cancel(errCancelled)
	}
	return true
}
