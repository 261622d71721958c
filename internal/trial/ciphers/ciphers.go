// Package ciphers is the node side of measuring ciphers without a program for it: with Go's libraries, and
// with the kernel's own crypto. Each measurement has a process of its own.
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

// Verbs of the node sides.
var (
	VerbGo     = host.Verb(host.FamilyCipher, "go")
	VerbKernel = host.Verb(host.FamilyCipher, "kernel")
)

// Request holds what to measure.
type Request struct {
	Algorithm string `json:"algorithm"`
	Operation string `json:"operation"`
	Block     int    `json:"block_bytes"` // input of each operation, 0 if none
	Threads   int    `json:"threads"`
	Ns        int64  `json:"ns"` // how long
}

// Done reports how many operations were done, and how long they took.
type Done struct {
	Count int64 `json:"count"`
	Ns    int64 `json:"ns"`
}

// Limits on a request.
const (
	maxBlock   = 1 << 20
	maxThreads = 1024
	maxTime    = time.Minute
)

// check refuses requests that take too much memory or time.
func (q Request) check() error {
	if q.Block < 0 || q.Block > maxBlock || q.Threads < 1 || q.Threads > maxThreads ||
		q.Ns <= 0 || time.Duration(q.Ns) > maxTime {
		return fmt.Errorf("measure %s: %d bytes, %d threads, %s: out of bounds", q.Algorithm, q.Block,
			q.Threads, time.Duration(q.Ns))
	}
	return nil
}

// worker repeats an operation on its own data. Its result is the last output, nil if that is meaningless. One
// goroutine uses it.
type worker struct {
	do     func() error
	result func() []byte
	close  func()
}

// Handlers returns the verbs, each to be served in a process of its own.
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

// measure starts all workers together, and stops them when the time is up.
func measure(ctx context.Context, q Request, hire func(Request) (worker, error)) (Done, error) {
	workers := make([]worker, q.Threads)
	for i := range workers {
		w, err := hire(q)
		if err == nil && w.close != nil {
			defer w.close()
		}

		if err == nil {
			err = w.do() // the first operation is not measured
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
			n := int64(0)
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
