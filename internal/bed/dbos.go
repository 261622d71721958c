package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // for the testbed's own file

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

const (
	// jobsVersion is the version of the workflow. Jobs of another version are not continued, so the version
	// must change only if the steps of a job change.
	jobsVersion  = "jobs-1"
	workflowName = "job"
	queueName    = "jobs"
	lookForJobs  = time.Second
	startTime    = 2 * time.Minute // time limit for reaching the database
	// stopTime is the time limit for restoring the router and for finishing an installation of firmware,
	// which takes up to 30 minutes. TimeoutStopSec of the systemd unit is longer.
	stopTime = 32 * time.Minute
)

// transact is an engine that uses DBOS Transact. Its database is a file or a schema of a PostgreSQL database.
type transact struct {
	ctx     dbos.Context
	queue   dbos.Queue
	mu      sync.Mutex
	running map[string]bool // jobs that are running in this process
}

// openTransact opens the engine of a testbed and continues its jobs. database is a URL or the path of a file.
// The function work executes a job. ctx limits only the time to open the engine. The engine calls lost if it
// cannot continue a job; another engine then continues the job.
func openTransact(ctx context.Context, bed, database string, note func(string, ...any), lost func(error),
	work func(steps, Job) (Result, error)) (*transact, error) {
	for _, v := range os.Environ() { // they would replace the name and version, or connect to a service
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "DBOS_") {
			if err := os.Unsetenv(name); err != nil {
				return nil, err
			}
		}
	}

	config := dbos.Config{
		AppName:                "chokepoint-" + bed,
		DatabaseURL:            database,
		DatabaseSchema:         "bed_" + strings.ReplaceAll(bed, "-", "_"),
		ApplicationVersion:     jobsVersion,
		ExecutorID:             bed,
		SystemDBStartupTimeout: startTime,
		Logger: slog.New(slog.NewTextHandler(noted(note), &slog.HandlerOptions{
			Level: slog.LevelWarn,
		})),
	}
	if !store.OnServer(database) {
		config.DatabaseURL = "sqlite:" + (&url.URL{Path: database}).EscapedPath()
	}

	t := &transact{running: map[string]bool{}}
	var err error
	if t.ctx, err = dbos.NewContext(context.WithoutCancel(ctx), config); err != nil {
		return nil, openError(database, err)
	}

	run := func(c dbos.Context, j Job) (Result, error) {
		defer t.begin(j.ID)()
		return work(recorded{c, lost}, j)
	}
	dbos.RegisterWorkflow(t.ctx, run, dbos.WithWorkflowName(workflowName),
		dbos.WithMaxRecoveryAttempts(math.MaxInt32))
	t.queue, err = dbos.RegisterQueue(t.ctx, queueName, dbos.WithWorkerConcurrency(1),
		dbos.WithQueueBasePollingInterval(lookForJobs),
		dbos.WithQueueOnConflict(dbos.QueueConflictAlwaysUpdate))
	if err == nil {
		err = dbos.Launch(t.ctx)
	}

	if err != nil {
		return nil, errors.Join(openError(database, err), t.close())
	}

	return t, nil
}

// openError returns an error for a database that cannot be opened. The error contains the database's URL
// without the password.
func openError(database string, err error) error {
	text := strings.ReplaceAll(err.Error(), database, store.Shown(database))
	return fmt.Errorf("open the database of jobs %s: %s", store.Shown(database), check.Plain(text))
}

// noted passes each line written to it to a function that notes the line.
type noted func(format string, args ...any)

func (n noted) Write(line []byte) (int, error) {
	n("jobs: %s", check.Plain(strings.TrimSpace(string(line))))
	return len(line), nil
}

// begin records that a job runs in this process, until end is called.
func (t *transact) begin(id string) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[id] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.running, id)
	}
}

// recorded implements steps, and records the results in the database.
type recorded struct {
	ctx  dbos.Context
	lost func(error)
}

func (r recorded) do(name string, f func(context.Context) (string, error)) (string, error) {
	result, err := dbos.RunAsStep(r.ctx, func(ctx context.Context) (string, error) {
		result, err := f(ctx)
		if err != nil {
			<-ctx.Done() // wait until the engine closes, because a result returned now would be recorded
		}
		return result, err
	}, dbos.WithStepName(name))
	if err != nil { // the engine repeats the step after most errors, but not after all
		r.lost(err)
		<-r.ctx.Done() // a job that ended now would be recorded as failed
	}
	return result, err
}

func (t *transact) start(j Job) error {
	if _, found, err := t.job(j.ID); err != nil || found {
		return err
	}

	_, err := dbos.Enqueue[Result](t.ctx, queueName, workflowName, j, dbos.WithEnqueueWorkflowID(j.ID),
		dbos.WithEnqueueApplicationVersion(jobsVersion))
	return err
}

func (t *transact) job(id string) (j jobState, found bool, err error) {
	list, err := dbos.ListWorkflows(t.ctx, dbos.WithFilterWorkflowIDs(id))
	if err != nil || len(list) == 0 {
		return j, false, err
	}

	j, err = stateOf(list[0])
	return j, true, err
}

func (t *transact) jobs(n int) (list []jobState, err error) {
	found, err := dbos.ListWorkflows(t.ctx, dbos.WithFilterLimit(n), dbos.WithFilterSortDesc(),
		dbos.WithFilterName(workflowName))
	for _, w := range found {
		if err == nil {
			var p jobState
			p, err = stateOf(w)
			list = append(list, p)
		}
	}
	return list, err
}

func stateOf(w dbos.WorkflowStatus) (p jobState, err error) {
	if err = decode(w.Input, &p.Job); err == nil && w.Output != nil {
		err = decode(w.Output, &p.result)
	}

	p.added = w.CreatedAt
	switch w.Status {
	case dbos.WorkflowStatusEnqueued, dbos.WorkflowStatusDelayed:
		p.status = store.BedWaiting
	case dbos.WorkflowStatusPending:
		p.status = store.BedRunning
	case dbos.WorkflowStatusCancelled:
		p.status = store.BedCancelled
	case dbos.WorkflowStatusSuccess:
		p.status = p.result.Status
	default:
		p.status = store.BedFailed
		p.failed = "the job could not be continued"
		if w.Error != nil {
			p.failed = check.Plain(w.Error.Error())
		}
	}

	if err != nil {
		err = fmt.Errorf("read job %s: %w", w.ID, err)
	}

	return p, err
}

// decode decodes a value in a list of workflows. The value is JSON text.
func decode(from, into any) error {
	text, ok := from.(string)
	if !ok {
		return fmt.Errorf("got %T, want JSON", from)
	}
	return json.Unmarshal([]byte(text), into)
}

func (t *transact) cancel(id string) error { return dbos.CancelWorkflow(t.ctx, id) }

func (t *transact) recover() error {
	found, err := dbos.ListWorkflows(t.ctx, dbos.WithFilterStatus(dbos.WorkflowStatusPending),
		dbos.WithFilterLoadInput(false), dbos.WithFilterLoadOutput(false))
	for _, w := range found {
		t.mu.Lock()
		here := t.running[w.ID]
		t.mu.Unlock()
		if !here && time.Since(w.UpdatedAt) > startTime { // a recent job may be about to run
			_, failed := dbos.ResumeWorkflow[Result](t.ctx, w.ID, dbos.WithResumeQueue(queueName))
			err = errors.Join(err, failed)
		}
	}
	return err
}

func (t *transact) close() error { return dbos.Shutdown(t.ctx, stopTime) }
