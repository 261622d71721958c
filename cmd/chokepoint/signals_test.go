package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/app"
)

func TestInterrupts(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			ctx, hard, release := interrupts(context.Background())
			defer release()
			send(t, sig)
			waitFor(t, ctx.Done(), "the first signal to cancel")
			cause := context.Cause(ctx)
			if !errors.Is(cause, app.ErrInterrupted) {
				t.Errorf("cause: got %v, want %v", cause, app.ErrInterrupted)
			}

			send(t, sig) // at once: the same request
			select {
			case <-hard:
				t.Fatal("the first request already stops the waiting")
			case <-time.After(2 * sameRequest):
			}

			send(t, sig)
			waitFor(t, hard, "the second signal to stop the waiting")
		})
	}
}

func TestABrokenPipeIsNoInterrupt(t *testing.T) {
	ctx, hard, release := interrupts(context.Background())
	defer release()
	send(t, syscall.SIGPIPE)
	send(t, syscall.SIGTERM)
	waitFor(t, ctx.Done(), "the second signal to cancel")
	select {
	case <-hard:
		t.Error("hard: got closed by the second signal, want the first not to count")
	case <-time.After(100 * time.Millisecond):
	}

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}

	err = write(w, "result\n")
	got := exitCode(err)
	if got != codeError {
		t.Errorf("exit code of a write nobody reads: got %d, want %d", got, codeError)
	}

	var message bytes.Buffer
	if printError(&message, err, codeError, false); message.Len() > 0 {
		t.Errorf("message: got %q, want none", message.String())
	}
}

func TestInterruptsReleasedWithoutASignal(t *testing.T) {
	ctx, hard, release := interrupts(context.Background())
	release()
	cause := context.Cause(ctx)
	if !errors.Is(cause, context.Canceled) || errors.Is(cause, app.ErrInterrupted) {
		t.Errorf("cause: got %v, want %v", cause, context.Canceled)
	}

	select {
	case <-hard:
		t.Error("hard: got closed, want open")
	default:
	}
}

func send(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(syscall.Getpid(), sig); err != nil {
		t.Fatalf("send %v: %v", sig, err)
	}
}

func waitFor(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatalf("waited 5 s for %s", what)
	}
}
