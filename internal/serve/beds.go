package serve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

const (
	eventsPath   = "/events"
	pollEvery    = 2 * time.Second  // interval between two readings of the testbeds
	aliveEvery   = 15 * time.Second // interval of keep-alives for proxies while there is no news
	sendTime     = 10 * time.Second // limit for a client to receive an event
	maxShownAsks = 5                // number of answered requests on the page of a testbed
)

// bed is a testbed as the API lists it.
type bed struct {
	store.Bed
	// Silent is the reason for an alarm, such as an overdue report or job. It is absent if there is no alarm.
	Silent string `json:"silent,omitempty"`
}

// bedList holds the testbeds as they were at one moment.
type bedList struct {
	Format string `json:"format"`
	Beds   []bed  `json:"beds"`

	state string // hash of what the pages show of the testbeds, except their progress
	event string // the news, as JSON
}

// bedCache keeps the list of testbeds for a short time, so that one query of the store serves all clients.
type bedCache struct {
	turn chan struct{} // held while list and at are in use
	list bedList
	at   time.Time
}

// allBeds returns the testbeds as they were at most pollEvery ago.
func (s *Server) allBeds(ctx context.Context) (list bedList, err error) {
	c := &s.beds
	err = inTurn(ctx, c.turn, func() error {
		now := time.Now()
		if now.Sub(c.at) < pollEvery {
			list = c.list
			return nil
		}

		all, err := s.app.Dirs.Beds(ctx)
		if err != nil {
			return err
		}

		list = bedList{Format: "chokepoint-beds/1", Beds: []bed{}}
		for _, b := range all {
			list.Beds = append(list.Beds, bed{b, b.Silent(now)})
		}

		if err := list.sum(); err != nil {
			return err
		}

		c.list, c.at = list, now
		return nil
	})
	return list, err
}

// forgetBeds empties the cache, so that the next reader sees a change at once.
func (s *Server) forgetBeds(ctx context.Context) {
	_ = inTurn(ctx, s.beds.turn, func() error { // if this fails, readers see the change pollEvery later
		s.beds.at = time.Time{}
		return nil
	})
}

// sum sets the state and the event of the list.
func (l *bedList) sum() error {
	state := sha256.New()
	n := news{Beds: []bedNews{}}
	for _, b := range l.Beds {
		p := b.progress()
		n.Beds = append(n.Beds, bedNews{p.Name, check.Plain(p.Text), p.Done, p.Total})
		b.Seen = time.Time{}
		b.Triggers = slices.Clone(b.Triggers)
		for i := range b.Triggers {
			b.Triggers[i].Checked = time.Time{}
		}

		if b.Job != nil {
			job := *b.Job
			job.Step, job.Trials, job.Total, job.Ready = "", 0, 0, time.Time{}
			b.Job = &job
		}

		if err := json.NewEncoder(state).Encode(b); err != nil {
			return err
		}
	}

	l.state = fmt.Sprintf("%.16x", state.Sum(nil))
	n.State = l.state
	event, err := json.Marshal(n)
	l.event = string(event)
	return err
}

// moment formats a time of a testbed. It returns "" for the zero time.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04 UTC")
}

// progress describes what a testbed is doing.
func (b bed) progress() report.Progress {
	p := report.Progress{Name: b.Name, Text: "idle"}
	if j := b.Job; j != nil {
		p.Done, p.Total = min(j.Trials, j.Total), j.Total
		parts := []string{j.Why}
		if j.Step != "" {
			parts = append(parts, j.Step)
		}

		if j.Total > 0 {
			parts = append(parts, fmt.Sprintf("%d of %s", j.Trials, unit.Count(j.Total, "trial")))
		} else if j.Trials > 0 {
			parts = append(parts, unit.Count(j.Trials, "trial"))
		}

		if !j.Ready.IsZero() {
			parts = append(parts, "ready about "+moment(j.Ready))
		}

		p.Text = strings.Join(parts, " · ")
	}

	if b.Failure != "" {
		p.Text = "unknown"
	}

	p.Text += ", reported " + b.Seen.UTC().Format("2006-01-02 15:04:05 UTC")
	return p
}

// news is the content of an event: the progress of the testbeds, and the state of everything else on their
// pages.
type news struct {
	State string    `json:"state"`
	Beds  []bedNews `json:"beds"`
}

type bedNews struct {
	Name  string `json:"name"`
	Text  string `json:"text"`
	Done  int    `json:"done"`
	Total int    `json:"total"`
}

// events sends an event at once and whenever the testbeds change, until the client leaves or the server ends.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	list, err := s.allBeds(ctx)
	if err != nil {
		s.fail(w, r, err)
		return
	}

	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx would buffer the events
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}

	control := http.NewResponseController(w)
	send := func(text string) error {
		err := control.SetWriteDeadline(time.Now().Add(sendTime))
		if err == nil {
			_, err = w.Write([]byte(text))
		}

		return errors.Join(err, control.Flush())
	}
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	var sent string
	var at time.Time
	for {
		switch {
		case list.event != sent:
			err = send("data: " + list.event + "\n\n")
			sent, at = list.event, time.Now()
		case time.Since(at) >= aliveEvery:
			err = send(":\n\n")
			at = time.Now()
		}

		if err != nil { // the client has left
			return
		}

		select {
		case <-ctx.Done():
			return
		case <-s.ending:
			return
		case <-poll.C:
		}

		if list, err = s.allBeds(ctx); err != nil { // the browser will ask again
			s.noteOnce(err.Error())
			return
		}
	}
}

func (s *Server) bedsData(r *http.Request) ([]byte, error) {
	list, err := s.allBeds(r.Context())
	if err != nil {
		return nil, err
	}
	return indented(list)
}

// requestList holds the requests to a testbed.
type requestList struct {
	Format   string             `json:"format"`
	Requests []store.BedRequest `json:"requests"` // newest first
}

func (s *Server) requestsData(r *http.Request) ([]byte, error) {
	b, err := s.bed(r)
	if err != nil {
		return nil, err
	}

	l := requestList{Format: "chokepoint-bed-requests/1"}
	if l.Requests, err = s.app.Dirs.BedRequests(r.Context(), b.Name); err != nil {
		return nil, err
	}

	return indented(l)
}

// bed returns the testbed that the path of a request names.
func (s *Server) bed(r *http.Request) (bed, error) {
	list, err := s.allBeds(r.Context())
	if err != nil {
		return bed{}, err
	}

	i := slices.IndexFunc(list.Beds, func(b bed) bool { return b.Name == r.PathValue("bed") })
	if i < 0 {
		return bed{}, notFound("testbed")
	}

	return list.Beds[i], nil
}

// ask stores a request to the testbed that the path of an HTTP request names.
func (s *Server) ask(r *http.Request, q store.BedRequest) (store.BedRequest, error) {
	b, err := s.bed(r)
	if err != nil {
		return q, err
	}

	q.Bed = b.Name
	q.By = "serve, from " + source(r).Addr().String()
	q.Asked = time.Now().UTC()
	q, err = s.app.Dirs.AskBed(r.Context(), q)
	if errors.Is(err, app.ErrUsage) {
		text := err.Error()
		if hint := check.HintOf(err); hint != "" {
			text += "; " + hint
		}
		return q, failure{http.StatusConflict, text}
	}

	if err != nil {
		return q, err
	}

	s.forgetBeds(r.Context())
	s.note("testbed %s was asked to %s %s, %s", q.Bed, q.Kind, cmp.Or(q.Plan, q.Job), q.By)
	return q, nil
}

// startForm is the layout of times in forms: UTC without seconds.
const startForm = "2006-01-02T15:04"

// askForm stores the request that a form describes.
func (s *Server) askForm(_ http.ResponseWriter, r *http.Request) (to string, err error) {
	q := store.BedRequest{
		Kind: r.PathValue("kind"),
		Plan: r.PostFormValue("plan"),
		Job:  r.PostFormValue("job"),
	}
	if at := r.PostFormValue("at"); at != "" {
		if q.At, err = time.Parse(startForm, at); err != nil {
			return "", badRequest("write the time as " + startForm)
		}
	}

	if q, err = s.ask(r, q); err != nil {
		return "", err
	}

	return "/beds#bed-" + q.Bed, nil
}

// askData stores the request of a program. The body of the HTTP request is a store.BedRequest.
func (s *Server) askData(w http.ResponseWriter, r *http.Request) {
	err := s.gate.bearer(r)
	var q store.BedRequest
	if err == nil {
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if d.Decode(&q) != nil {
			err = badRequest(`send JSON, such as {"kind": "start", "plan": "quick"}`)
		}
	}

	if err == nil {
		q, err = s.ask(r, store.BedRequest{Kind: q.Kind, Plan: q.Plan, Job: q.Job, At: q.At})
	}

	var content []byte
	if err == nil {
		content, err = indented(q)
	}

	if err == errWrongToken {
		s.noteWrongToken(r)
	}

	if err != nil {
		s.fail(w, r, err)
		return
	}

	send(w, http.StatusAccepted, "application/json", content)
}

func (s *Server) bedsPage(r *http.Request) ([]byte, error) {
	q := r.URL.Query()
	l, err := partOf(q)
	if err != nil {
		return nil, err
	}

	list, err := s.allBeds(r.Context())
	if err != nil {
		return nil, err
	}

	p := report.ServedPage{
		Links:   links("/beds"),
		Title:   "Testbeds",
		Lead:    unit.Count(len(list.Beds), "testbed") + ", as last reported.",
		Live:    list.state,
		Refresh: reloadAfter,
	}
	var key []report.Field
	if s.gate != nil {
		of, signed := s.gate.session(r)
		text := "Sign in to start and cancel jobs"
		if signed {
			key = of.key()
			text = "Sign out"
		}

		p.More = append(p.More, report.Link{Href: "/login", Text: text})
	}

	if len(list.Beds) == 0 {
		p.Alerts = []report.Item{{Text: "No testbed has reported yet. chokepoint bed runs one."}}
	}

	for _, b := range list.Beds {
		if !l.add() {
			continue
		}

		section, err := s.bedSection(r.Context(), b, key)
		if err != nil {
			return nil, err
		}

		p.Sections = append(p.Sections, section)
	}

	if err := l.end(); err != nil {
		return nil, err
	}

	p.More = append(p.More, l.links("/beds", q, "Testbeds before", "More testbeds")...)
	p.More = append(p.More, report.Link{Href: "/api/v1/beds", Text: "JSON"})
	return p.HTML()
}

// bedSection shows a testbed. With the key of a session, it also shows the forms for the testbed's actions.
func (s *Server) bedSection(ctx context.Context, b bed, key []report.Field) (report.Section, error) {
	section := report.Section{
		ID:    "bed-" + b.Name,
		Title: b.Name,
		Lead:  fmt.Sprintf("Lab %s on host %s, chokepoint %s.", b.Lab, b.Host, b.Version),
	}
	if b.Failure != "" {
		section.Lead = "On host " + b.Host + "."
	}

	if b.Silent != "" {
		silent := report.Item{Kind: "silent", Text: b.Silent, Tone: report.Bad}
		section.Blocks = append(section.Blocks, report.List{Items: []report.Item{silent}})
	}

	section.Blocks = append(section.Blocks, b.progress())
	requests, err := s.app.Dirs.BedRequests(ctx, b.Name)
	if err != nil {
		return section, err
	}

	jobs := slices.Clone(b.Waiting)
	if b.Job != nil {
		jobs = slices.Insert(jobs, 0, *b.Job)
	}

	if key != nil {
		section.Blocks = append(section.Blocks, b.forms(jobs, requests, key)...)
	}

	for _, t := range []report.Table{b.scheduleTable(), b.triggerTable(), b.requestTable(requests),
		b.jobTable(append(jobs, b.Ended...))} {
		if len(t.Rows) > 0 {
			section.Blocks = append(section.Blocks, t)
		}
	}

	return section, nil
}

// forms returns the form that starts a plan, and the form that cancels a job or a scheduled start.
func (b bed) forms(jobs []store.BedJob, requests []store.BedRequest,
	key []report.Field) (forms []report.Block) {
	var plans, open []report.Option
	for _, plan := range b.Plans {
		plans = append(plans, report.Option{Value: plan, Text: plan})
	}

	for _, j := range jobs {
		open = append(open, report.Option{Value: j.ID, Text: j.Why + " · " + j.ID})
	}

	for _, x := range requests {
		if x.Kind == store.AskStart && x.Answered.IsZero() && !x.At.IsZero() {
			open = append(open, report.Option{Value: x.ID, Text: x.Plan + " at " + moment(x.At)})
		}
	}

	if len(plans) > 0 {
		forms = append(forms, report.Form{
			Action: "/beds/" + b.Name + "/" + store.AskStart,
			Button: "Start",
			Post:   true,
			Hidden: key,
			Fields: []report.Field{
				{Name: "plan", Label: "Plan", Options: plans},
				{Name: "at", Label: "At (UTC; empty: now)", Type: "datetime-local"},
			},
		})
	}

	if len(open) > 0 {
		forms = append(forms, report.Form{
			Action: "/beds/" + b.Name + "/" + store.AskCancel,
			Button: "Cancel",
			Post:   true,
			Hidden: key,
			Fields: []report.Field{{Name: "job", Label: "Job", Options: open}},
		})
	}

	return forms
}

// table returns an empty table about a testbed.
func (b bed) table(name, caption string, heads ...string) report.Table {
	t := report.Table{ID: b.Name + "-" + name, Caption: caption, Cards: true}
	times := []string{"Next", "A job has to end by", "Last check", "Asked", "Started", "Ended", "When"}
	for _, head := range heads {
		t.Columns = append(t.Columns, report.Column{Head: head, Keep: slices.Contains(times, head)})
	}
	return t
}

func (b bed) scheduleTable() report.Table {
	t := b.table("schedules", "Schedules", "Schedule", "Cron", "Plans", "Next", "A job has to end by")
	for _, x := range b.Schedules {
		by := cell(moment(x.By))
		if time.Now().After(x.By) && !x.By.IsZero() {
			by.Tone = report.Bad
		}

		addRow(&t, cell(x.Name), cell(x.Cron), cell(strings.Join(x.Plans, ", ")), cell(moment(x.Next)), by)
	}
	return t
}

func (b bed) triggerTable() report.Table {
	t := b.table("triggers", "Triggers", "Trigger", "Kind", "Plans", "Newest version", "Last check")
	for _, x := range b.Triggers {
		checked := cell(moment(x.Checked))
		if x.Failure != "" {
			checked.Sub = x.Failure
			checked.Tone = report.Doubt
		}

		addRow(&t, cell(x.Name), cell(x.Kind), cell(strings.Join(x.Plans, ", ")), cell(x.Seen), checked)
	}
	return t
}

// requestTable shows the unanswered requests, and the newest answered ones.
func (b bed) requestTable(requests []store.BedRequest) report.Table {
	t := b.table("requests", "Requests", "Request", "Asked", "By", "Answer")
	answered := 0
	for _, x := range requests {
		what := cell(x.Kind + " " + cmp.Or(x.Plan, x.Job))
		if !x.At.IsZero() {
			what.Sub = "at " + moment(x.At)
		}

		answer := cell("waiting")
		switch {
		case x.Answered.IsZero():
		case answered == maxShownAsks:
			continue
		case x.Refused != "":
			answer = cell("refused: " + x.Refused)
			answer.Tone = report.Doubt
			answered++
		default:
			answer = cell("accepted: job " + x.Job)
			answered++
		}

		addRow(&t, what, cell(moment(x.Asked)), cell(x.By), answer)
	}
	return t
}

func (b bed) jobTable(jobs []store.BedJob) report.Table {
	t := b.table("jobs", "Jobs", "Job", "Why", "Plans", "Firmware", "Status", "Run", "Started", "Ended")
	for _, j := range jobs {
		status := cell(j.Status)
		status.Sub = j.Reason
		if j.Status == store.BedFailed {
			status.Tone = report.Bad
		}

		addRow(&t, cell(j.ID), cell(j.Why), cell(strings.Join(j.Plans, ", ")), cell(j.Firmware), status,
			runCell(j.Run), cell(moment(j.Started)), cell(moment(j.Ended)))
	}
	return t
}

// runCell links to a run. The testbed may not have sent the run yet.
func runCell(id string) report.TableCell {
	c := cell(app.ShownID(id))
	if store.ValidID(id) {
		c.Href = "/runs/" + id
	}
	return c
}

func addRow(t *report.Table, cells ...report.TableCell) {
	t.Rows = append(t.Rows, report.TableRow{Cells: cells})
}

func (s *Server) alarmsPage(r *http.Request) ([]byte, error) {
	q := r.URL.Query()
	l, err := partOf(q)
	if err != nil {
		return nil, err
	}

	list, err := s.allBeds(r.Context())
	if err != nil {
		return nil, err
	}

	type alarm struct {
		store.BedAlarm
		bed string
	}
	var all []alarm
	p := report.ServedPage{
		Links:   links("/alarms"),
		Title:   "Alarms",
		Live:    list.state,
		Refresh: reloadAfter,
	}
	for _, b := range list.Beds {
		if b.Silent != "" {
			p.Alerts = append(p.Alerts, report.Item{Kind: b.Name, Text: b.Silent, Tone: report.Bad})
		}

		for _, a := range b.Alarms {
			all = append(all, alarm{a, b.Name})
		}
	}

	slices.SortStableFunc(all, func(a, b alarm) int { return b.At.Compare(a.At) })
	p.Lead = fmt.Sprintf("%s, the newest first; %s silent.", unit.Count(len(all), "alarm"),
		unit.Count(len(p.Alerts), "testbed"))
	t := bed{}.table("alarms", "", "When", "Testbed", "Kind", "Firmware", "What", "Job", "Delivered")
	for _, a := range all {
		if !l.add() {
			continue
		}

		kind, of, delivered := cell(a.Kind), cell(a.bed), cell("yes")
		kind.Tone = report.Doubt
		if a.Kind == "slower" || a.Kind == "failed" {
			kind.Tone = report.Bad
		}

		of.Href = "/beds#bed-" + a.bed
		if a.Unsent != "" {
			delivered = cell("not yet: " + a.Unsent)
			delivered.Tone = report.Doubt
		}

		addRow(&t, cell(moment(a.At)), of, kind, cell(a.Firmware), cell(a.Text), cell(a.Job), delivered)
	}

	if err := l.end(); err != nil {
		return nil, err
	}

	if len(t.Rows) > 0 {
		p.Sections = []report.Section{{ID: "alarms", Title: "Alarms of testbeds", Blocks: []report.Block{t}}}
	}

	p.More = append(l.links("/alarms", q, "Newer alarms", "Older alarms"),
		report.Link{Href: "/api/v1/beds", Text: "JSON"})
	return p.HTML()
}

// families returns the testbeds as metrics.
func (l bedList) families() (all []report.Family) {
	for _, b := range l.Beds {
		all = append(all, BedFamilies(b.Bed, time.Now())...)
	}
	return all
}
