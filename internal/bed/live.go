package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// enter records that a job is running.
func (b *Service) enter(j Job) {
	b.entering.Lock()
	defer b.entering.Unlock()
	b.note("job %s: %s", j.ID, j.Why)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live = &store.BedJob{
		ID:       j.ID,
		Why:      j.Why,
		Plans:    j.Plans,
		Firmware: j.Version,
		Status:   store.BedRunning,
	}
}

// leave notes how a job ended or, if ctx has ended, that the job was interrupted. Other testbeds of this
// machine can then execute their jobs.
func (b *Service) leave(ctx context.Context, status string) {
	b.passTurn()
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		status = "interrupted; it continues when the service runs again"
	}

	b.note("job %s: %s", b.live.ID, status)
	b.live = nil
}

// passTurn lets other testbeds of this machine execute jobs. held reports whether this testbed had the turn.
func (b *Service) passTurn() (held bool) {
	if b.turn == nil {
		return false
	}

	_ = b.turn.Close() // the error is ignored, because nothing was written
	b.turn = nil
	return true
}

// alone waits until no other testbed of this machine executes a job. It then keeps other testbeds waiting
// until passTurn is called.
func (b *Service) alone(ctx context.Context) error {
	if b.turn != nil {
		return nil
	}

	path := Dir(b.App.Dirs, ".turn") // no testbed can have this name
	err := app.Prepare(filepath.Dir(path))
	if err != nil {
		return err
	}

	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("wait for other testbeds of this machine: %w", err)
	}

	step := b.job().Step
	err = tryLock(f)
	if errors.Is(err, unix.EWOULDBLOCK) {
		b.note("%s: waiting for another testbed of this machine", step)
		b.stepping("waiting for another testbed of this machine")
	}

	for errors.Is(err, unix.EWOULDBLOCK) {
		if err := host.Pause(ctx, otherBedLook); err != nil {
			return errors.Join(err, f.Close())
		}

		err = tryLock(f)
	}

	if err != nil {
		return errors.Join(fmt.Errorf("wait for other testbeds of this machine: %w", err), f.Close())
	}

	b.stepping(step)
	b.turn = f
	return nil
}

const otherBedLook = time.Second

// job returns the running job, or nil if there is none.
func (b *Service) job() *store.BedJob {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live
}

// change calls f with the running job, if there is one.
func (b *Service) change(f func(*store.BedJob)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live != nil {
		f(b.live)
	}
}

func (b *Service) began(at time.Time) { b.change(func(j *store.BedJob) { j.Started = at }) }

func (b *Service) stepping(name string) { b.change(func(j *store.BedJob) { j.Step = name }) }

func (b *Service) measuring(run string) {
	b.change(func(j *store.BedJob) { j.Run, j.Trials, j.Total, j.Ready = run, 0, 0, time.Time{} })
}

// cancellable sets the function that cancels the running job. If a request to cancel the job came earlier,
// cancellable calls the function at once.
func (b *Service) cancellable(cancel context.CancelCauseFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel = cancel
	if cancel != nil && b.live != nil && b.asked == b.live.ID {
		cancel(errCancelled)
	}
}

// sink receives the events of a run.
type sink struct{ *Service }

// Event records the progress of a run.
func (s sink) Event(e record.Event) {
	switch e.Event {
	case progress.Warning:
		s.note("run %s: %s", e.Run, e.Text)
	case progress.RunEnded:
		s.note("run %s: %s", e.Run, strings.TrimSuffix(e.Status+": "+e.Text, ": "))
	case progress.TrialEnded:
		if err := s.attempts.end(); err != nil {
			s.note("%v", err)
		}
	}

	s.change(func(j *store.BedJob) {
		j.Run = e.Run
		if e.Total > 0 {
			j.Total = e.Total
		}

		if e.Event == progress.TrialEnded {
			j.Trials = e.Index + 1
		}

		if e.Left > 0 {
			j.Ready = time.Now().Add(e.Left).UTC()
		}
	})
}

// Close ends the events of a run.
func (s sink) Close() error { return nil }
