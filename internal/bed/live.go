package bed

import (
	"context"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// enter notes that a job runs.
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

func (b *Service) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note("job %s: ended", b.live.ID)
	b.live = nil
}

// job returns the job that runs, or nil.
func (b *Service) job() *store.BedJob {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live
}

// change changes the job that runs.
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

// cancellable sets the function that cancels the job that runs. A request that came before calls it at once.
func (b *Service) cancellable(cancel context.CancelCauseFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel = cancel
	if cancel != nil && b.live != nil && b.asked == b.live.ID {
		cancel(errCancelled)
	}
}

// sink takes the events of a run.
type sink struct{ *Service }

// Event notes the progress of a run.
func (s sink) Event(e record.Event) {
	switch e.Event {
	case progress.Warning:
		s.note("run %s: %s", e.Run, e.Text)
	case progress.RunEnded:
		s.note("run %s: %s", e.Run, strings.TrimSpace(e.Status+" "+e.Text))
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
