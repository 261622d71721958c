package bed

import (
	"context"
	"encoding/json"
	"time"
)

// engine executes jobs durably, one at a time.
type engine interface {
	// start adds a job. If a job with the same id has ever been added, start does nothing.
	start(j Job) error
	// jobs returns up to n jobs, newest first.
	jobs(n int) ([]jobState, error)
	// job returns the job with an id, and whether it exists.
	job(id string) (j jobState, found bool, err error)
	// cancel ends a waiting job.
	cancel(id string) error
	// recover restarts jobs that are running according to the database, but not in this process.
	recover() error
	// close stops the engine. It cuts short the steps that are being executed. The next engine executes them
	// again.
	close() error
}

// steps records the results of a job's steps.
type steps interface {
	// do returns the recorded result of the next step. If there is none, do calls f and records the result of
	// f. An error from f means that the step was cut short.
	do(name string, f func(ctx context.Context) (string, error)) (string, error)
}

// step is like steps.do, for results of any type.
func step[T any](s steps, name string, f func(ctx context.Context) (T, error)) (result T, err error) {
	text, err := s.do(name, func(ctx context.Context) (string, error) {
		result, err := f(ctx)
		if err != nil {
			return "", err
		}

		b, err := json.Marshal(result)
		return string(b), err
	})
	if err == nil {
		err = json.Unmarshal([]byte(text), &result)
	}
	return result, err
}

// jobState is a job in the engine's database.
type jobState struct {
	Job
	status string // see store.BedJob
	result Result // result, if the job has ended
	failed string // reason why the job itself failed
	added  time.Time
}
