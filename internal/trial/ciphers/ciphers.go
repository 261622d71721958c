// Package ciphers measures ciphers on a node without running another program, with Go's libraries or the
// kernel's crypto API. Each measurement runs in its own process.
package ciphers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Verbs that request a measurement with one of the libraries.
var (
	VerbGo     = host.Verb(host.FamilyCipher, "go")
	VerbKernel = host.Verb(host.FamilyCipher, "kernel")
)

// Request describes a measurement.
type Request struct {
	Algorithm string `json:"algorithm"`
	Operation string `json:"operation"`
	Block     int    `json:"block_bytes"` // bytes per operation; 0 for key operations
	Threads   int    `json:"threads"`
	Ns        int64  `json:"ns"` // duration of the measurement in ns
}

// Done holds the number of operations that were executed, and their total duration.
type Done struct {
	Count int64 `json:"count"`
	Ns    int64 `json:"ns"`
}

// Limits of a request.
const (
	maxBlock   = 1 << 20
	maxThreads = 1024
	maxTime    = time.Minute
)

// check rejects requests that would take too much memory or time.
func (q Request) check() error {
	if q.Block < 0 || q.Block > maxBlock || q.Threads < 1 || q.Threads > maxThreads ||
		q.Ns <= 0 || time.Duration(q.Ns) > maxTime {
		return fmt.Errorf("measure %s: %d bytes, %d threads, %s: out of bounds", q.Algorithm, q.Block,
			q.Threads, time.Duration(q.Ns))
	}
	return nil
}

// worker executes an operation repeatedly on its own data. The function result returns the last output, or
// nil if the output has no meaning. Only one goroutine uses a worker.
type worker struct {
	do     func() error
	result func() []byte
	close  func()
}

// Handlers returns the handlers of the verbs. Each request must be served in its own process.
func Handlers() map[string]host.Handler {
	return map[string]host.Handler{VerbGo: serve(goWorker), VerbKernel: serve(kernelWorker)}
}

func serve(hire func(Request) (worker, error)) host.Handler {
	return host.Answering(func(ctx context.Context, q Request) (Done, error) {
		if err := q.check(); err != nil {
			return Done{}, err
		}
		return measure(ctx, q, hire)
	})
}

// measure starts all workers at once, and stops them when the duration has passed.
func measure(ctx context.Context, q Request, hire func(Request) (worker, error)) (Done, error) {
	workers := make([]worker, q.Threads)
	for i := range workers {
		w, err := hire(q)
		if err == nil && w.close != nil {
			defer w.close()
		}

		if err == nil {
			err = w.do() // first operation, not measured
		}

		if err != nil {
			return Done{}, err
		}

		workers[i] = w
	}

	var stop atomic.Bool
	counts := make([]int64, q.Threads)
	errs := make([]error, q.Threads)
	var all sync.WaitGroup
	start := host.Monotonic()
	for i, w := range workers {
		all.Go(func() {
			var n int64
			for !stop.Load() && errs[i] == nil {
				errs[i] = w.do()
				n++
			}

			counts[i] = n
		})
	}

	paused := host.Pause(ctx, time.Duration(q.Ns))
	stop.Store(true)
	all.Wait()
	d := Done{Ns: host.Monotonic() - start}
	for _, n := range counts {
		d.Count += n
	}

	return d, errors.Join(append(errs, paused)...)
}
