package bed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/history"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/lab/labgrid"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// listed is an engine that only keeps a list of jobs, the newest first.
type listed struct{ all []jobState }

func (l *listed) start(j Job) error {
	if !slices.ContainsFunc(l.all, func(s jobState) bool { return s.ID == j.ID }) {
		l.all = slices.Insert(l.all, 0, jobState{Job: j, status: store.BedWaiting})
	}
	return nil
}

func (l *listed) jobs(int) ([]jobState, error) { return slices.Clone(l.all), nil }

func (l *listed) job(id string) (j jobState, found bool, err error) {
	for _, j := range l.all {
		if j.ID == id {
			return j, true, nil
		}
	}
	return j, false, nil
}

func (l *listed) cancel(id string) error {
	l.set(id, store.BedCancelled)
	return nil
}

func (l *listed) set(id, status string) {
	for i := range l.all {
		if l.all[i].ID == id {
			l.all[i].status = status
		}
	}
}

func (l *listed) recover() error { return nil }
func (l *listed) close() error   { return nil }

// service returns a testbed with a clock of its own, at noon.
func service(t *testing.T) (b *Service, l *listed, now *time.Time) {
	t.Helper()
	dir := t.TempDir()
	noon := time.Date(2026, 11, 10, 12, 0, 0, 0, time.Local)
	l = &listed{}
	b = &Service{
		App: app.App{Dirs: app.Dirs{Data: dir, State: dir}, Note: t.Logf},
		Config: plan.Bed{
			Name:  "lab-1",
			Lab:   "local",
			Plans: []plan.BedPlan{{Name: "night", Plan: "quick"}},
			Schedules: []plan.BedSchedule{{
				Name:  "nightly",
				Cron:  "0 2 * * *",
				Plans: []string{"night"},
				Grace: time.Hour,
			}},
		},
		engine: l,
		since:  noon,
		alarms: alarms{file: filepath.Join(dir, "alarms.json")},
	}
	b.team = b.App.Dirs
	b.attempts.file = filepath.Join(dir, "attempt.json")
	b.now = func() time.Time { return noon }
	return b, l, &noon
}

// attended lets the service look, and returns what the store then has of it.
func attended(t *testing.T, b *Service) (store.Bed, []store.BedRequest) {
	t.Helper()
	if err := b.attend(t.Context()); err != nil {
		t.Fatal(err)
	}

	st := openStore(t, b)
	bed, err := st.Bed(t.Context(), "lab-1")
	if err != nil {
		t.Fatal(err)
	}

	requests, err := st.BedRequests(t.Context(), "lab-1")
	if err != nil {
		t.Fatal(err)
	}
	return bed, requests
}

func openStore(t *testing.T, b *Service) *store.Store {
	t.Helper()
	st, err := b.team.OpenToRecord(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// A schedule starts one job for each of its times; without one that is done in time, the testbed is silent.
func TestScheduled(t *testing.T) {
	b, l, now := service(t)
	bed, _ := attended(t, b)
	night := time.Date(2026, 11, 11, 2, 0, 0, 0, time.Local)
	if s := bed.Schedules[0]; len(l.all) > 0 || !s.Next.Equal(night) || !s.By.Equal(night.Add(time.Hour)) {
		t.Errorf("at noon: got jobs %v, schedule %+v", l.all, s)
	}

	*now = night.Add(time.Minute)
	attended(t, b)
	attended(t, b)
	bed, _ = attended(t, b)
	if len(l.all) != 1 || l.all[0].Schedule != "nightly" || !l.all[0].At.Equal(night) ||
		len(bed.Waiting) != 1 {
		t.Errorf("at two: got jobs %+v, waiting %v", l.all, bed.Waiting)
	}

	l.set(l.all[0].ID, store.BedFailed)
	*now = night.Add(2 * time.Hour)
	if bed, _ = attended(t, b); bed.Silent(*now) == "" {
		t.Error("after a failed job: got a testbed that is not silent")
	}

	l.set(l.all[0].ID, store.BedDone)
	bed, _ = attended(t, b)
	if bed.Silent(*now) != "" || !bed.Schedules[0].By.Equal(night.Add(25*time.Hour)) {
		t.Errorf("after a job that is done: got %s, %+v", bed.Silent(*now), bed.Schedules[0])
	}

	text := string(report.Exposition(b.families()))
	for _, want := range []string{`chokepoint_bed_silent{testbed="lab-1"} 0`, `schedule="nightly"`} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics: got %s, want %s", text, want)
		}
	}
}

// A step that fails is tried three times. An hour without labgrid's coordinator does not count.
func TestTried(t *testing.T) {
	b, _, _ := service(t)
	failed, gone := errors.New("failed"), fmt.Errorf("reserve: %w", labgrid.ErrNoCoordinator)
	hour := slices.Repeat([]error{gone}, 360)
	for name, tt := range map[string]struct {
		errs []error
		want int // calls
		fail bool
	}{
		"works":          {[]error{failed, failed, nil}, 3, false},
		"fails":          {[]error{failed, failed, failed, nil}, 3, true},
		"stays":          {[]error{app.ErrUsage, nil}, 1, true},
		"no coordinator": {append(hour, failed, gone, failed, nil), 364, false},
	} {
		n := 0
		o, err := b.tried(t.Context(), func() (outcome, error) {
			n++
			return outcome{}, tt.errs[n-1]
		})
		if err != nil || n != tt.want || (o.Failure != "") != tt.fail {
			t.Errorf("%s: got %+v, %v after %d calls, want %d", name, o, err, n, tt.want)
		}
	}
}

// Of two testbeds of one machine, the second waits until the job of the first has ended.
func TestAlone(t *testing.T) {
	first, _, _ := service(t)
	second, _, _ := service(t)
	second.App.Dirs = first.App.Dirs
	first.enter(Job{ID: "one"})
	second.enter(Job{ID: "two"})
	for range 2 { // each step asks
		if err := first.alone(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if err := second.alone(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("during a job of the first: got %v, want to wait", err)
	}

	first.passTurn() // as during the pause before a step is tried again
	if err := second.alone(t.Context()); err != nil {
		t.Errorf("in a pause of the first: got %v", err)
	}

	second.passTurn()
	first.leave(t.Context(), store.BedDone)
	if err := second.alone(t.Context()); err != nil {
		t.Errorf("after the job of the first: got %v", err)
	}

	second.leave(t.Context(), store.BedDone)
}

// A request is done and answered; one that cancels is answered when the job has ended.
func TestRequests(t *testing.T) {
	b, l, now := service(t)
	attended(t, b)
	ask := func(r store.BedRequest) {
		t.Helper()
		r.Bed, r.By, r.Asked = "lab-1", "alice", *now
		if _, err := openStore(t, b).AskBed(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		*now = now.Add(time.Minute)
	}
	ask(store.BedRequest{Kind: store.AskStart, Plan: "night"})
	_, requests := attended(t, b)
	if len(l.all) != 1 || requests[0].Job != l.all[0].ID || requests[0].Answered.IsZero() ||
		requests[0].Refused != "" {
		t.Fatalf("start: got jobs %v, requests %+v", l.all, requests)
	}

	id := l.all[0].ID
	attended(t, b) // reports the job, so that it can be cancelled
	l.set(id, store.BedRunning)
	b.enter(l.all[0].Job)
	ask(store.BedRequest{Kind: store.AskCancel, Job: id})
	attended(t, b)
	o, err := b.stoppable(t.Context(), func(ctx context.Context) (outcome, error) {
		<-ctx.Done()
		return outcome{}, ctx.Err()
	})
	if err != nil || !o.Cancelled {
		t.Errorf("cancel: got %+v, %v", o, err)
	}

	_, requests = attended(t, b)
	if !requests[0].Answered.IsZero() {
		t.Errorf("cancel: answered while the job runs: %+v", requests[0])
	}

	b.leave(t.Context(), store.BedDone)
	l.set(id, store.BedCancelled)
	if _, requests = attended(t, b); requests[0].Answered.IsZero() || requests[0].Refused != "" {
		t.Errorf("cancel: got %+v, want an answer", requests[0])
	}

	ask(store.BedRequest{Kind: store.AskStart, Plan: "night", At: now.Add(time.Hour)})
	if _, requests = attended(t, b); len(l.all) != 1 || !requests[0].Answered.IsZero() {
		t.Errorf("before its time: got jobs %v, %+v", l.all, requests[0])
	}

	*now = now.Add(time.Hour)
	if _, requests = attended(t, b); len(l.all) != 2 || requests[0].Answered.IsZero() {
		t.Errorf("at its time: got jobs %v, %+v", l.all, requests[0])
	}
}

// A job that begins to run while it is cancelled is cancelled as a running one, so that its last steps are
// done.
func TestCancelAtBeginning(t *testing.T) {
	b, l, _ := service(t)
	l.all = []jobState{{Job: Job{ID: "a"}, status: store.BedRunning}}
	found, done, err := b.cancelJob("a")
	if !found || done || err != nil || l.all[0].status != store.BedRunning {
		t.Errorf("got %v, %v, %v, job %+v", found, done, err, l.all[0])
	}

	b.enter(l.all[0].Job)
	o, err := b.stoppable(t.Context(), func(ctx context.Context) (outcome, error) {
		return outcome{}, ctx.Err()
	})
	if err != nil || !o.Cancelled {
		t.Errorf("got %+v, %v, want a cancelled job", o, err)
	}

	l.set("a", store.BedWaiting) // as a slow database says
	if _, done, err := b.cancelJob("a"); done || err != nil || l.all[0].status != store.BedWaiting {
		t.Errorf("a job that runs here: got %v, %v, job %+v", done, err, l.all[0])
	}

	if found, _, err := b.cancelJob("b"); found || err != nil {
		t.Errorf("an unknown job: got %v, %v", found, err)
	}
}

// A server with ever new images fills neither the disk nor the queue.
func TestFlood(t *testing.T) {
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n++
		fmt.Fprint(w, "image ", n)
	}))
	defer s.Close()
	b, l, _ := service(t)
	b.Config.Lab = "vm"
	x := &trigger{images: t.TempDir(), BedTrigger: plan.BedTrigger{Name: "x", URL: s.URL + "/f.bin",
		AllowPrivate: true, Plans: []string{"night"}}}
	b.triggers = []store.BedTrigger{{}}
	write(t, filepath.Join(x.images, ".download-1"), "half", 0o600)
	for range 3 {
		if err := b.look(t.Context(), 0, x); err != nil {
			t.Fatal(err)
		}
	}

	if len(l.all) != 3 || l.all[0].status != store.BedWaiting || l.all[1].status != store.BedCancelled ||
		l.all[2].status != store.BedCancelled {
		t.Errorf("got jobs %+v, want that the newest one waits", l.all)
	}

	left, err := os.ReadDir(x.images)
	if err != nil || len(left) != 1 || left[0].Name() != filepath.Base(l.all[0].Version) {
		t.Errorf("got files %v, %v, want that of the newest job", left, err)
	}

	b.enter(l.all[0].Job)
	if err := b.look(t.Context(), 0, x); err != nil || n != 3 {
		t.Errorf("while a job runs: got %d downloads, %v, want none", n-3, err)
	}

	if limit, err := room(x.images); err != nil || limit > maxImage {
		t.Errorf("got room for %d bytes, %v", limit, err)
	}
}

// A lab file with either way to install firmware can measure versions.
func TestInstalls(t *testing.T) {
	b, _, _ := service(t)
	b.Config.Lab = "lab.yaml"
	for _, tt := range []struct {
		m    record.Machines
		want bool
	}{{record.Machines{}, false}, {record.Machines{Firmware: &[]string{"flash"}}, true},
		{record.Machines{Flash: &record.Flash{}}, true}} {
		if b.On.Machines = &tt.m; b.installs() != tt.want {
			t.Errorf("%+v: got %v", tt.m, !tt.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	different := comparison.Comparison{Verdict: statistics.Different}
	for want, c := range map[string]*analysis.RunComparison{
		"":     {Comparisons: []comparison.Comparison{{Verdict: statistics.SameWithin}}},
		faster: {Comparisons: []comparison.Comparison{different}},
		slower: {Comparisons: []comparison.Comparison{different}, Regressions: []analysis.Regression{{}}},
	} {
		if got, _ := verdict(c, nil); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}

	for want, x := range map[string]history.Change{
		"":         {Status: history.Proposed, Better: history.Worse},
		slower:     {Status: history.Confirmed, Better: history.Worse},
		faster:     {Status: history.Confirmed, Better: history.Better},
		bedChanged: {Status: history.Confirmed, Better: history.Worse, Testbed: history.TestbedChanged},
	} {
		if got := kindOf(x); got != want {
			t.Errorf("%+v: got %q, want %q", x, got, want)
		}
	}
}

// The unit and a shell of its user have one state directory, so that each sees which runs of the other
// are alive.
func TestUnitState(t *testing.T) {
	unit, err := os.ReadFile("../../dist/files/chokepoint-bed@.service")
	if err != nil {
		t.Fatal(err)
	}

	if want := fmt.Sprintf("TimeoutStopSec=%.0f\n", (stopTime + 80*time.Second).Seconds()); !strings.Contains(
		string(unit), want) {
		t.Errorf("got no %s in the unit", want)
	}

	_, line, _ := strings.Cut(string(unit), "\nEnvironment=")
	line, _, _ = strings.Cut(line, "\n")
	set := map[string]string{}
	for _, word := range strings.Fields(line) {
		name, value, _ := strings.Cut(word, "=")
		set[name] = value
	}

	of := app.FindDirs(func(name string) string { return set[name] }, os.Getuid())
	shell := app.FindDirs(func(string) string { return "" }, os.Getuid())
	if len(set) == 0 || of.State != shell.State {
		t.Errorf("%s: got state %s, want %s", line, of.State, shell.State)
	}
}
