package store

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// sampleBed is a testbed in the middle of a job.
func sampleBed(name string) Bed {
	return Bed{
		Name:    name,
		Host:    "lab2.example.net",
		Version: "v1.2.3",
		Lab:     "lab.yaml",
		Plans:   []string{"quick", "night"},
		Schedules: []BedSchedule{{
			Name:  "nightly",
			Cron:  "0 2 * * *",
			Plans: []string{"night"},
			Next:  sampleStart.Add(24 * time.Hour),
			By:    sampleStart.Add(26 * time.Hour),
		}},
		Job: &BedJob{ID: "schedule-nightly-1", Why: "schedule nightly", Plans: []string{"night"},
			Status: BedRunning, Step: "measure", Run: "r1", Trials: 2, Total: 12,
			Started: sampleStart, Ready: sampleStart.Add(time.Hour)},
		Alarms: []BedAlarm{{At: sampleStart, Job: "j0", Kind: "slower", Text: "a < b \x00"}},
		Seen:   sampleStart,
	}
}

// The last report of each testbed counts, and a removed one is gone with its requests.
func testBeds(t *testing.T, s *Store) {
	ctx := t.Context()
	none, err := s.Beds(ctx)
	requests, err2 := s.BedRequests(ctx, "lab-2")
	if err != nil || err2 != nil || len(none)+len(requests) > 0 {
		t.Errorf("before any report: got %v, %v, %v, %v", none, requests, err, err2)
	}

	first, second := sampleBed("lab-2"), sampleBed("lab-1")
	must(t, s.SetBed(ctx, first))
	must(t, s.SetBed(ctx, second))
	first.Job, first.Seen = nil, sampleStart.Add(time.Minute)
	must(t, s.SetBed(ctx, first))
	got, err := s.Beds(ctx)
	must(t, err)
	if d := cmp.Diff(got, []Bed{second, first}); d != "" {
		t.Errorf("testbeds differ (-got +want):\n%s", d)
	}

	_, err = s.AskBed(ctx, BedRequest{Bed: "lab-2", Kind: AskStart, Plan: "quick", Asked: sampleStart})
	must(t, err)
	must(t, s.RemoveBed(ctx, "lab-2"))
	requests, err = s.BedRequests(ctx, "lab-2")
	must(t, err)
	if len(requests) > 0 {
		t.Errorf("of a removed testbed: got %v", requests)
	}

	_, err = s.Bed(ctx, "lab-2")
	unknown, ok := errors.AsType[*UnknownBedError](err)
	if !ok || !strings.Contains(unknown.Hint(), "lab-1") {
		t.Errorf("a removed testbed: got %v", err)
	}

	for _, bad := range []string{"", "Lab", "../x", "a b", "-", strings.Repeat("a", 65)} {
		if err := s.SetBed(ctx, sampleBed(bad)); err == nil || check.HintOf(err) == "" {
			t.Errorf("name %q: got %v, want an error with a hint", bad, err)
		}
	}
}

// Two hosts do not share a name, unless one of them has been gone for long.
func testBedElsewhere(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.SetBed(ctx, sampleBed("lab-1")))
	other := sampleBed("lab-1")
	other.Host = "elsewhere"
	other.Seen = sampleStart.Add(takenFor - time.Second)
	if _, ok := errors.AsType[*BedTakenError](s.SetBed(ctx, other)); !ok {
		t.Error("another host takes the name at once")
	}

	other.Seen = sampleStart.Add(takenFor + time.Second)
	must(t, s.SetBed(ctx, other))
	ahead := other.Seen.Add(1000 * time.Hour)
	_, err := s.db.ExecContext(ctx, `UPDATE beds SET host = 'ahead', seen_ns = $1`, ahead.UnixNano())
	must(t, err)
	must(t, s.SetBed(ctx, other)) // the other clock was wrong
	b, err := s.Bed(ctx, "lab-1")
	if err != nil || b.Host != "elsewhere" {
		t.Errorf("got host %q, %v", b.Host, err)
	}
}

// A row that cannot be read is shown as such, and hides no other one.
func testBedUnreadable(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.SetBed(ctx, sampleBed("lab-1")))
	long := `"` + strings.Repeat("x", maxRequestBody) + `"`
	insert := func(name, body string) {
		_, err := s.db.ExecContext(ctx, `INSERT INTO beds (name, host, seen_ns, body) VALUES ($1, 'h', $2, $3)`,
			name, sampleStart.UnixNano(), body)
		must(t, err)
	}
	insert("../x", `{}`)
	insert("lab-0", `{"name": 1}`)
	insert("lab-2", `{"name": "lab-1"}`)
	beds, err := s.Beds(ctx)
	must(t, err)
	if len(beds) != 3 || beds[0].Name != "lab-0" || beds[0].Host != "h" || !beds[0].Seen.Equal(sampleStart) ||
		!strings.Contains(beds[0].Silent(sampleStart), "cannot be read") ||
		beds[1].Failure != "" || beds[2].Name != "lab-2" {
		t.Errorf("got %+v", beds)
	}

	ask := func(id, body string) error {
		_, err := s.db.ExecContext(ctx, `INSERT INTO bed_requests (id, bed, asked_ns, body, answered_ns, refused,
			job) VALUES ($1, 'lab-1', 1, $2, 0, '', '')`, id, body)
		return err
	}
	must(t, ask("1", `{"kind": 1}`))
	must(t, ask("2", `{"kind": "start", "plan": "quick", "by": "`+strings.Repeat(`a\n`, maxBy)+`"}`))
	if err := ask("3", long); (err != nil) != s.server {
		t.Errorf("a long request: got %v", err)
	}

	requests, err := s.BedRequests(ctx, "lab-1")
	must(t, err)
	for _, r := range requests {
		if (r.ID == "2") != (r.Kind == AskStart) || !r.Answered.IsZero() || len(r.By) > maxBy ||
			strings.Contains(r.By, "\n") {
			t.Errorf("got %+v", r)
		}
	}

	big := sampleBed("lab-1")
	big.Lab = strings.Repeat("x", maxBedBody)
	if err := s.SetBed(ctx, big); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a long report: got %v", err)
	}
}

// A request is answered once.
func testBedRequests(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.SetBed(ctx, sampleBed("lab-1")))
	start, err := s.AskBed(ctx, BedRequest{Bed: "lab-1", Kind: AskStart, Plan: "quick", By: "alice\x1b\x00",
		Asked: sampleStart})
	must(t, err)
	cancel, err := s.AskBed(ctx, BedRequest{Bed: "lab-1", Kind: AskCancel, Job: "schedule-nightly-1",
		By: "bob", Asked: sampleStart.Add(time.Second)})
	must(t, err)
	answered := sampleStart.Add(time.Minute)
	must(t, s.AnswerBedRequest(ctx, start.ID, "request-1", "", answered))
	must(t, s.AnswerBedRequest(ctx, start.ID, "request-2", "no", answered.Add(time.Hour)))
	got, err := s.BedRequests(ctx, "lab-1")
	must(t, err)
	start.Job, start.Answered = "request-1", answered
	if d := cmp.Diff(got, []BedRequest{cancel, start}); d != "" {
		t.Errorf("requests differ (-got +want):\n%s", d)
	}

	if !ValidID(start.ID) || strings.ContainsAny(start.By, "\x1b\x00") {
		t.Errorf("got id %q, by %q", start.ID, start.By)
	}
}

// A request for later waits for its time, and can be cancelled until then, even if no other fits.
func testBedRequestsAhead(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.SetBed(ctx, sampleBed("lab-1")))
	ask := func(at time.Time) BedRequest {
		return BedRequest{Bed: "lab-1", Kind: AskStart, Plan: "quick", At: at, Asked: sampleStart}
	}
	at := sampleStart.Add(time.Hour)
	var first BedRequest
	for range maxOpenRequests {
		r, err := s.AskBed(ctx, ask(at))
		must(t, err)
		first = r
	}

	cancel := BedRequest{Bed: "lab-1", Kind: AskCancel, Job: first.ID, By: "bob", Asked: sampleStart}
	gone, err := s.AskBed(ctx, cancel)
	must(t, err)
	looks := func(when string, answered time.Time) {
		t.Helper()
		got, err := s.BedRequests(ctx, "lab-1")
		must(t, err)
		i := slices.IndexFunc(got, func(r BedRequest) bool { return r.ID == first.ID })
		if len(got) != maxOpenRequests+1 || !got[i].At.Equal(at) || !got[i].Answered.Equal(answered) ||
			got[i].Refused != beforeItsTime {
			t.Errorf("%s: got %+v", when, got[i])
		}
	}
	looks("before the answer", sampleStart)
	must(t, s.AnswerBedRequest(ctx, gone.ID, first.ID, "", sampleStart.Add(time.Minute)))
	looks("after the answer", sampleStart.Add(time.Minute))
	if _, err := s.AskBed(ctx, cancel); err == nil {
		t.Error("it can be cancelled twice")
	}

	for _, ahead := range []time.Duration{0, -time.Second, maxAhead + 1} {
		_, err := s.AskBed(ctx, ask(sampleStart.Add(ahead)))
		if _, refused := errors.AsType[*BedRefusedError](err); !refused {
			t.Errorf("%v ahead: got %v", ahead, err)
		}
	}
}

func testBedRequestsRefused(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.SetBed(ctx, sampleBed("lab-1")))
	for want, r := range map[string]BedRequest{
		"no such testbed":   {Bed: "lab-3", Kind: AskStart, Plan: "quick"},
		`no plan "../x"`:    {Bed: "lab-1", Kind: AskStart, Plan: "../x"},
		`no job "other"`:    {Bed: "lab-1", Kind: AskCancel, Job: "other"},
		`"flash" is no`:     {Bed: "lab-1", Kind: "flash"},
		"longer than 100 b": {Bed: "lab-1", Kind: AskStart, Plan: "quick", By: strings.Repeat("x", 101)},
	} {
		if _, err := s.AskBed(ctx, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}

	for i := range maxOpenRequests + 1 {
		asked := sampleStart.Add(time.Duration(i) * time.Second)
		_, err := s.AskBed(ctx, BedRequest{Bed: "lab-1", Kind: AskStart, Plan: "quick", Asked: asked})
		if full := i == maxOpenRequests; (err != nil) != full {
			t.Errorf("request %d: got %v", i, err)
		}
	}
}

func TestSilent(t *testing.T) {
	nightly, triggered := sampleBed("lab-1"), sampleBed("lab-2")
	triggered.Schedules = nil
	for _, tt := range []struct {
		bed   Bed
		after time.Duration
		want  string
	}{
		{nightly, 25 * time.Hour, ""},
		{nightly, 27 * time.Hour, "schedule nightly"},
		{triggered, 30 * time.Minute, ""},
		{triggered, 2 * time.Hour, "not reported"},
	} {
		got := tt.bed.Silent(sampleStart.Add(tt.after))
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s after %v: got %q, want %q", tt.bed.Name, tt.after, got, tt.want)
		}
	}
}
