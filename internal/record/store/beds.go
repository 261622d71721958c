package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Bed describes a testbed, as its service (chokepoint bed) last reported it. All times are by the clock of
// the testbed.
type Bed struct {
	Name      string        `json:"name"`
	Host      string        `json:"host"`
	Version   string        `json:"version"` // version of chokepoint
	Lab       string        `json:"lab"`
	Plans     []string      `json:"plans,omitempty"` // plans that a request may start
	Schedules []BedSchedule `json:"schedules,omitempty"`
	Triggers  []BedTrigger  `json:"triggers,omitempty"`
	Job       *BedJob       `json:"job,omitempty"`     // nil if none runs
	Waiting   []BedJob      `json:"waiting,omitempty"` // next job first
	Ended     []BedJob      `json:"ended,omitempty"`   // newest first, at most MaxBedItems
	Alarms    []BedAlarm    `json:"alarms,omitempty"`  // newest first, at most MaxBedItems
	Started   time.Time     `json:"started"`           // when the service started
	Seen      time.Time     `json:"seen"`              // when it sent this report
	Failure   string        `json:"failure,omitempty"` // why the report cannot be read
}

// Bounds of the JSON of one row in bytes.
const (
	maxBedBody     = 1 << 20
	maxRequestBody = 16 << 10
)

// errBedBody is the reason why a row is not read.
var errBedBody = errors.New("it is too long")

// MaxBedItems is the maximum number of ended jobs, and also of alarms, that a testbed reports.
const MaxBedItems = 20

// BedSchedule describes a schedule of a testbed.
type BedSchedule struct {
	Name  string    `json:"name"`
	Cron  string    `json:"cron"`
	Plans []string  `json:"plans"`
	Next  time.Time `json:"next"`
	// By is the time by which a job of this schedule must have succeeded. After that time, the testbed counts
	// as silent.
	By time.Time `json:"by"`
}

// BedTrigger describes a trigger of a testbed.
type BedTrigger struct {
	Name    string    `json:"name"`
	Kind    string    `json:"kind"` // directory, url, git or command
	Plans   []string  `json:"plans"`
	Seen    string    `json:"seen,omitempty"`    // newest version that the trigger found
	Checked time.Time `json:"checked,omitzero"`  // time of the last check; zero before the first
	Failure string    `json:"failure,omitempty"` // why the last check failed
}

// BedJob describes a job of a testbed. It consists of the runs of the plans of one schedule, trigger or
// request.
type BedJob struct {
	ID       string    `json:"id"`
	Why      string    `json:"why"` // origin, such as "schedule nightly"
	Plans    []string  `json:"plans"`
	Firmware string    `json:"firmware,omitempty"` // version to measure; "" means the installed one
	Status   string    `json:"status"`
	Reason   string    `json:"reason,omitempty"` // why the job failed or was cancelled
	Step     string    `json:"step,omitempty"`   // current step of a running job, such as "measure"
	Run      string    `json:"run,omitempty"`    // run that is being recorded, or the last run
	Runs     []string  `json:"runs,omitempty"`   // all runs, in order
	Trials   int       `json:"trials,omitempty"` // number of ended trials of Run
	Total    int       `json:"total,omitempty"`  // number of all trials of Run; 0 means unknown
	Ready    time.Time `json:"ready,omitzero"`   // when Run will probably end; zero means unknown
	Started  time.Time `json:"started,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
}

// Statuses of a job.
const (
	BedWaiting   = "waiting"
	BedRunning   = "running"
	BedDone      = "done"
	BedFailed    = "failed"
	BedCancelled = "cancelled"
)

// BedAlarm describes an alarm of a testbed.
type BedAlarm struct {
	At       time.Time `json:"at"`
	Job      string    `json:"job"`
	Kind     string    `json:"kind"` // slower, faster, bed or failed
	Firmware string    `json:"firmware,omitempty"`
	Text     string    `json:"text"`
	Unsent   string    `json:"unsent,omitempty"` // why it has not been delivered yet
}

// A testbed without schedules counts as silent once its last report is older than quiet.
const quiet = time.Hour

// Silent returns why a testbed counts as silent, or "" if it does not. A testbed is silent if its last report
// cannot be read, or if it should have reported or completed a job but did not.
func (b Bed) Silent(now time.Time) string {
	if b.Failure != "" {
		return "its last report cannot be read: " + b.Failure
	}

	for _, s := range b.Schedules {
		if !s.By.IsZero() && now.After(s.By) {
			return fmt.Sprintf("no job of schedule %s has succeeded by %s", s.Name,
				s.By.UTC().Format("2006-01-02 15:04 UTC"))
		}
	}

	if len(b.Schedules) == 0 && now.Sub(b.Seen) > quiet {
		return "it has not reported since " + b.Seen.UTC().Format("2006-01-02 15:04 UTC")
	}

	return ""
}

// CheckBedName returns an error if name cannot be the name of a testbed.
func CheckBedName(name string) error {
	if ValidID(name) {
		return nil
	}
	return check.Hinted("up to 64 small letters, digits and hyphens, such as lab-2",
		"testbed %q: this is no name", name)
}

// BedTakenError is returned if a service on another host has reported a testbed with the same name.
type BedTakenError struct{ Name, Path string }

func (e *BedTakenError) Error() string {
	return fmt.Sprintf("report testbed %s to %s: the service on another host has this name", e.Name, e.Path)
}

// Hint explains how to resolve the conflict.
func (e *BedTakenError) Hint() string {
	return "give each testbed a name of its own; if that host is gone, wait ten minutes"
}

// After a report, the testbed's name belongs to the host that sent the report, for the time takenFor.
const takenFor = 10 * time.Minute

// SetBed stores a testbed's report in place of its last one. It returns a *BedTakenError if another host has
// reported a testbed of this name within the last ten minutes. The clocks of both hosts matter: a report
// dated more than ten minutes in the future does not hold the name.
func (s *Store) SetBed(ctx context.Context, b Bed) error {
	if err := CheckBedName(b.Name); err != nil {
		return err
	}

	body, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("store testbed %s: %v", b.Name, err)
	}

	if len(body) > maxBedBody {
		return fmt.Errorf("store testbed %s: its report has %d bytes, more than %d", b.Name, len(body),
			maxBedBody)
	}

	err = s.inTx(ctx, func(tx *sql.Tx) error {
		if !s.server {
			if _, err := tx.ExecContext(ctx, schemaOfBeds); err != nil {
				return err
			}
		}

		done, err := tx.ExecContext(ctx, `INSERT INTO beds (name, host, seen_ns, body) VALUES ($1, $2, $3, $4)
			ON CONFLICT (name) DO UPDATE
			SET host = excluded.host, seen_ns = excluded.seen_ns, body = excluded.body
			WHERE beds.host = excluded.host OR beds.seen_ns NOT BETWEEN $5 AND $6`, b.Name,
			storable(b.Host), b.Seen.UnixNano(), string(body), b.Seen.Add(-takenFor).UnixNano(),
			b.Seen.Add(takenFor).UnixNano())
		if err != nil {
			return err
		}

		n, err := done.RowsAffected()
		if err == nil && n == 0 {
			err = &BedTakenError{b.Name, s.path}
		}
		return err
	})
	return s.storing("testbed "+b.Name, err)
}

// Beds lists the testbeds, sorted by name. If a report cannot be read, only Name, Host, Seen and Failure are
// set.
func (s *Store) Beds(ctx context.Context) ([]Bed, error) {
	any, err := s.hasTable(ctx, s.db, "beds")
	if err != nil || !any {
		return nil, err
	}

	beds, err := listOf(ctx, s, "testbeds", func(r *sql.Rows) (b Bed, err error) {
		var name, host string
		var seen int64
		var body []byte
		if err = r.Scan(&name, &host, &seen, &body); err != nil {
			return b, err
		}

		if err := readBody(body, &b); err != nil {
			b = Bed{Host: host, Seen: time.Unix(0, seen).UTC(), Failure: err.Error()}
		} else {
			b.Failure = ""
		}

		b.Name = name
		return b, nil
	}, `SELECT name, substr(host, 1, 255), seen_ns, CASE WHEN octet_length(body) <= $1 THEN body END
		FROM beds ORDER BY name`, maxBedBody)
	return slices.DeleteFunc(beds, func(b Bed) bool { return !ValidID(b.Name) }), err
}

// readBody decodes the JSON of a row. For a row that is too long, body is nil.
func readBody(body []byte, v any) error {
	if body == nil {
		return errBedBody
	}
	return json.Unmarshal(body, v)
}

// UnknownBedError is returned for a testbed that has never reported.
type UnknownBedError struct {
	Name  string
	Known []string
}

func (e *UnknownBedError) Error() string {
	return fmt.Sprintf("find testbed %q: no such testbed", e.Name)
}

// Hint lists the testbeds.
func (e *UnknownBedError) Hint() string {
	if len(e.Known) == 0 {
		return "no testbed has reported here yet; see chokepoint bed --help"
	}
	return "the testbeds here are " + strings.Join(e.Known, ", ")
}

// Bed returns a testbed, or an *UnknownBedError.
func (s *Store) Bed(ctx context.Context, name string) (Bed, error) {
	beds, err := s.Beds(ctx)
	if err != nil {
		return Bed{}, err
	}

	unknown := &UnknownBedError{Name: name}
	for _, b := range beds {
		if b.Name == name {
			return b, nil
		}
		unknown.Known = append(unknown.Known, b.Name)
	}

	return Bed{}, unknown
}

// RemoveBed deletes a testbed and its requests from the list. It keeps the testbed's runs. If the service
// still runs, its next report adds the testbed again.
func (s *Store) RemoveBed(ctx context.Context, name string) error {
	if _, err := s.Bed(ctx, name); err != nil {
		return err
	}

	_, err := s.db.ExecContext(ctx, `DELETE FROM beds WHERE name = $1`, name)
	if err != nil {
		return fmt.Errorf("delete testbed %s from %s: %w", name, s.path, advise(err))
	}
	return nil
}

// BedRequest is a request of a user to a testbed.
type BedRequest struct {
	ID    string    `json:"id"` // set by AskBed
	Bed   string    `json:"bed"`
	Kind  string    `json:"kind"`           // AskStart or AskCancel
	Plan  string    `json:"plan,omitempty"` // plan to start
	Job   string    `json:"job,omitempty"`  // job or request to cancel; in the answer, the started job
	At    time.Time `json:"at,omitzero"`    // when to start the plan; zero means now
	By    string    `json:"by"`             // user who asks, at most 100 bytes
	Asked time.Time `json:"asked"`
	// Answered is zero until the testbed has answered.
	Answered time.Time `json:"answered,omitzero"`
	Refused  string    `json:"refused,omitempty"` // why the testbed refused; "" if it accepted
}

// Kinds of requests.
const (
	AskStart  = "start"  // run a plan of the testbed, now or at At
	AskCancel = "cancel" // end a job that runs or waits
)

// Bounds of requests.
const (
	maxOpenRequests  = 20 // unanswered requests of one testbed
	maxRequestsShown = 50
	maxBy            = 100 // bytes
)

// AskBed stores a request and returns it with its id. The testbed answers the request when it next looks.
// AskBed returns an *UnknownBedError if the testbed is unknown. It returns another error if the testbed does
// not have the plan or job, or if too many requests are unanswered.
func (s *Store) AskBed(ctx context.Context, r BedRequest) (BedRequest, error) {
	bed, err := s.Bed(ctx, r.Bed)
	if err != nil {
		return r, err
	}

	r.By = check.Plain(storable(r.By))
	waiting, err := s.scheduled(ctx, r)
	if err != nil {
		return r, err
	}

	if err := r.check(bed, waiting); err != nil {
		return r, err
	}

	bound := maxOpenRequests
	if waiting {
		bound *= 2 // also allow one cancellation for each waiting request
	}

	r.ID = NewID(r.Asked, uint16(rand.Uint32()))
	r.Answered, r.Refused = time.Time{}, ""
	body, err := json.Marshal(r)
	if err != nil {
		return r, fmt.Errorf("ask testbed %s: %v", r.Bed, err)
	}

	done, err := s.db.ExecContext(ctx, `INSERT INTO bed_requests
		(id, bed, asked_ns, body, answered_ns, refused, job)
		SELECT $1, $2, $3, $4, 0, '', '' WHERE $5 >
			(SELECT count(*) FROM bed_requests WHERE bed = $2 AND answered_ns = 0)`, r.ID, r.Bed,
		r.Asked.UnixNano(), string(body), bound)
	if err != nil {
		return r, fmt.Errorf("ask testbed %s in %s: %w", r.Bed, s.path, advise(err))
	}

	if n, err := done.RowsAffected(); err == nil && n == 0 {
		return r, &BedRefusedError{r.Bed, "it has not answered " + unit.Count(bound, "request"),
			"check that chokepoint bed runs on " + bed.Host}
	}

	return r, nil
}

// BedRefusedError is returned for a request that a testbed cannot fulfil.
type BedRefusedError struct{ Bed, Why, hint string }

func (e *BedRefusedError) Error() string { return fmt.Sprintf("ask testbed %s: %s", e.Bed, e.Why) }

// Hint explains what to ask instead.
func (e *BedRefusedError) Hint() string { return e.hint }

// maxAhead is how far ahead a plan can be scheduled.
const maxAhead = 366 * 24 * time.Hour

// scheduled reports whether r cancels a request that waits for its time.
func (s *Store) scheduled(ctx context.Context, r BedRequest) (bool, error) {
	if r.Kind != AskCancel {
		return false, nil
	}

	requests, err := s.BedRequests(ctx, r.Bed)
	return slices.ContainsFunc(requests, func(q BedRequest) bool {
		return q.ID == r.Job && q.waits()
	}), err
}

// check returns a *BedRefusedError for a request that the testbed cannot fulfil. waiting is the result of
// scheduled.
func (r BedRequest) check(b Bed, waiting bool) error {
	refuse := func(hint, format string, args ...any) error {
		return &BedRefusedError{b.Name, fmt.Sprintf(format, args...), hint}
	}
	if len(r.By) > maxBy {
		return refuse("", "the name of the user is longer than %d bytes", maxBy)
	}

	switch r.Kind {
	case AskStart:
		if !slices.Contains(b.Plans, r.Plan) {
			return refuse("its plans are "+strings.Join(b.Plans, ", "), "it has no plan %q", r.Plan)
		}

		if ahead := r.At.Sub(r.Asked); !r.At.IsZero() && (ahead <= 0 || ahead > maxAhead) {
			return refuse("give a time within the next year", "it cannot start a plan at %s",
				r.At.UTC().Format("2006-01-02 15:04 UTC"))
		}
	case AskCancel:
		jobs := slices.Clone(b.Waiting)
		if b.Job != nil {
			jobs = append(jobs, *b.Job)
		}

		if !waiting && !slices.ContainsFunc(jobs, func(j BedJob) bool { return j.ID == r.Job }) {
			return refuse("", "no job %q runs or waits there", r.Job)
		}
	default:
		return refuse("", "%q is no request", r.Kind)
	}

	return nil
}

// BedRequests lists the requests to a testbed, newest first. If there are more than fifty, it omits the
// oldest answered ones. A request that cannot be read has an unknown kind, so the testbed refuses it. A
// waiting request counts as answered if another request cancels it before its time.
func (s *Store) BedRequests(ctx context.Context, bed string) ([]BedRequest, error) {
	any, err := s.hasTable(ctx, s.db, "bed_requests")
	if err != nil || !any {
		return nil, err
	}

	list, err := listOf(ctx, s, "requests of testbed "+bed, func(r *sql.Rows) (q BedRequest, err error) {
		var body []byte
		var asked, answered int64
		var id, refused, job string
		if err = r.Scan(&id, &asked, &body, &answered, &refused, &job); err != nil {
			return q, err
		}

		if readBody(body, &q) != nil {
			q = BedRequest{Kind: "unreadable", Asked: time.Unix(0, asked).UTC()}
		}

		q.ID, q.Bed, q.Refused = id, bed, refused
		q.Job = cmp.Or(job, q.Job)
		q.By = shownBy(q.By)
		q.Answered = time.Time{}
		if answered != 0 {
			q.Answered = time.Unix(0, answered).UTC()
		}
		return q, nil
	}, `SELECT id, asked_ns, CASE WHEN octet_length(body) <= $3 THEN body END, answered_ns,
		substr(refused, 1, 1000), substr(job, 1, 100) FROM bed_requests WHERE bed = $1
		ORDER BY answered_ns = 0 DESC, asked_ns DESC, id DESC LIMIT $2`, bed, maxRequestsShown, maxRequestBody)
	for _, c := range list {
		if c.Kind != AskCancel || !c.Answered.IsZero() {
			continue
		}

		for i, q := range list {
			if q.ID == c.Job && q.waits() && c.Asked.Before(q.At) {
				list[i].Answered, list[i].Refused = c.Asked, beforeItsTime
			}
		}
	}

	slices.SortStableFunc(list, func(a, b BedRequest) int { return b.Asked.Compare(a.Asked) })
	return list, err
}

// beforeItsTime is the answer to a request that was scheduled for later but cancelled before its time.
const beforeItsTime = "cancelled before its time"

// waits reports whether a request waits for its time.
func (r BedRequest) waits() bool { return r.Kind == AskStart && !r.At.IsZero() && r.Answered.IsZero() }

// shownBy formats the name of a user as one line of limited length.
func shownBy(by string) string {
	by = strings.Join(strings.Fields(check.Plain(by)), " ")
	return strings.ToValidUTF8(by[:min(len(by), maxBy)], "")
}

// AnswerBedRequest stores a testbed's answer: the job that was started or cancelled, or why the testbed
// refused. If this job is a waiting request to the same testbed, that request is answered too. A second
// answer to a request changes nothing.
func (s *Store) AnswerBedRequest(ctx context.Context, id, job, refused string, when time.Time) error {
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE bed_requests SET answered_ns = $1, refused = $2, job = $3
			WHERE id = $4 AND answered_ns = 0`, when.UnixNano(), storable(refused), storable(job), id)
		if err != nil {
			return err
		}

		_, err = tx.ExecContext(ctx, `UPDATE bed_requests SET answered_ns = $1, refused = $2
			WHERE id = $3 AND answered_ns = 0 AND bed = (SELECT bed FROM bed_requests WHERE id = $4)`,
			when.UnixNano(), beforeItsTime, storable(job), id)
		return err
	})
	if err != nil {
		return fmt.Errorf("answer request %s in %s: %w", id, s.path, advise(err))
	}
	return nil
}
