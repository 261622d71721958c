package bed

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// once executes each step, and records nothing.
type once struct{}

func (once) do(_ string, f func(context.Context) (string, error)) (string, error) {
	return f(context.Background())
}

// A step in which the process dies again and again without a new trial fails, and alarms.
func TestAttempts(t *testing.T) {
	b, _, _ := service(t)
	b.App.Dirs.Runtime = t.TempDir()
	for range maxAttempts - 1 {
		died(t, b)
	}

	sink{b}.Event(record.Event{Event: progress.TrialEnded}) // of the last attempt
	for range maxAttempts {
		died(t, b)
	}

	r, err := b.work(t.Context(), once{}, Job{ID: "a", Plans: []string{"night"}})
	if err != nil || r.Status != store.BedFailed || !strings.Contains(r.Reason, "died in this step 5 times") {
		t.Errorf("got %+v, %v, want a failed job", r, err)
	}

	newest, err := b.alarms.newest(1)
	if err != nil || len(newest) != 1 || newest[0].Kind != jobFailed {
		t.Errorf("got alarms %+v, %v", newest, err)
	}

	// The service was stopped, and did not die.
	for range 2 * maxAttempts {
		died(t, b)
		if err := b.attempts.end(); err != nil {
			t.Fatal(err)
		}
	}
}

// died begins the first step of a job like a process that dies then.
func died(t *testing.T, b *Service) {
	t.Helper()
	b.attempts = attempts{file: filepath.Join(b.team.State, "attempt.json"), open: b.attempts.open}
	if err := b.attempts.begin("a", "reserve"); err != nil {
		t.Fatal(err)
	}
}
