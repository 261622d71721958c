package bed

import (
	"context"
	"encoding/json"
	"time"
)

// engine executes jobs durably, one at a time.
type engine interface {
	// start adds a job. If there was ever a job of this id, nothing happens.
	start(j Job) error
	// jobs returns up to n jobs, the newest first.
	jobs(n int) ([]jobState, error)
	// job returns a job, and whether there is one of this id.
	job(id string) (j jobState, found bool, err error)
	// cancel ends a job that waits.
	cancel(id string) error
	// recover executes jobs again that the database lists as running, but that do not run here.
	recover() error
	// close stops the engine. Steps that are being executed are cut short, and are executed again by the
	// next engine.
	close() error
}

// steps records the results of a job's steps.
type steps interface {
	// do returns the recorded result of the next step, or calls f and records what it returns. An error of f
	// means that the step was cut short.
	do(name string, f func(ctx context.Context) (string, error)) (string, error)
}

// step is steps.do for results of any type.
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
	status string // as in store.BedJob
	result Result // of a job that has ended
	failed string // why the job itself failed
	added  time.Time
}
