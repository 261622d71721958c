package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/app"
)

// sameRequest is the time within which a second signal belongs to the first request: timeout(1) and others
// signal both the process and its group.
const sameRequest = 50 * time.Millisecond

// interrupts turns signals into two requests. The first cancels ctx with the cause app.ErrInterrupted: stop,
// undo, keep what is finished. The second closes hard: stop waiting and report what remains. Every later one
// has its ordinary effect and ends the process. release gives the signals back. A broken pipe is only an
// error of the write, because the lab must still be undone when the reader of the output has left.
func interrupts(parent context.Context) (ctx context.Context, hard <-chan struct{}, release func()) {
	signals := make(chan os.Signal, 2)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		// Whoever started this with nohup, or in a script's background, wants the signal ignored.
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}

	// Taking the signal and not looking at it keeps it from ending the process; ignoring it would be
	// inherited by every child.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(parent)
	closed := make(chan struct{})
	quit := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer signal.Stop(signals)
		select {
		case <-signals:
			cancel(app.ErrInterrupted)
		case <-quit:
			return
		}

		for first := time.Now(); ; {
			select {
			case <-signals:
				if time.Since(first) < sameRequest {
					continue
				}

				close(closed)
			case <-quit:
			}
			return
		}
	}()
	return ctx, closed, func() {
		close(quit)
		<-done
		signal.Stop(broken)
		cancel(nil)
	}
}
