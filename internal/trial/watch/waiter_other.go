//go:build !linux

package watch

import (
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// waiter sleeps until a given time or until it is woken.
type waiter struct{ woken chan struct{} }

func newWaiter() (*waiter, error) { return &waiter{make(chan struct{}, 1)}, nil }

func (w *waiter) until(at int64) {
	t := time.NewTimer(time.Duration(at - host.Monotonic()))
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.woken:
	}
}

func (w *waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

func (w *waiter) Close() error { return nil }

func makeRoom() {}

func lockThread() (release func()) { return func() {} }

func threadID() int { return 0 }

// threadTime returns 0, because the CPU time of a thread is unavailable on this system.
func threadTime() int64 { return 0 }
