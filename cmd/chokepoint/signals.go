package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/app"
)

// sameRequest is the time within which a second signal counts as part of the first request. timeout(1) and
// other programs signal both the process and its group.
const sameRequest = 50 * time.Millisecond

// interrupts converts signals to two requests. The first request is to stop, undo changes and keep finished
// trials: it cancels ctx with the cause app.ErrInterrupted. The second request is to stop waiting and report
// what could not be undone: it closes hard. Further signals have their default effect and end the process.
// release restores the default handling. SIGPIPE has no effect other than a write error, because the lab must
// be undone even if the reader of the output has gone.
func interrupts(parent context.Context) (ctx context.Context, hard <-chan struct{}, release func()) {
	signals := make(chan os.Signal, 2)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		// A signal stays ignored if it was ignored at the start, by nohup or in a script's background job.
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}

	// Receive the signal and discard it, so that it does not end the process. Child processes would inherit
	// an ignored signal.
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
