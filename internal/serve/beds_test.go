package serve

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// workingBed is a testbed in the middle of a job.
func workingBed(name string) store.Bed {
	now := time.Now().UTC().Truncate(time.Second)
	return store.Bed{
		Name:    name,
		Host:    "lab2.example.net",
		Version: "v1.2.3",
		Lab:     "board.yaml",
		Plans:   []string{"quick", "night"},
		Schedules: []store.BedSchedule{{
			Name:  "nightly",
			Cron:  "0 2 * * *",
			Plans: []string{"night"},
			Next:  now.Add(24 * time.Hour),
			By:    now.Add(26 * time.Hour),
		}},
		Triggers: []store.BedTrigger{{Name: "images", Kind: "url", Plans: []string{"night"}, Seen: "24.10.3",
			Checked: now, Failure: "status 502"}},
		Job: &store.BedJob{ID: "job-7", Why: "schedule nightly", Plans: []string{"night"}, Step: "measure",
			Status: store.BedRunning, Run: labtest.Samples["good"].ID, Trials: 2, Total: 12,
			Started: now.Add(-time.Minute), Ready: now.Add(time.Hour)},
		Waiting: []store.BedJob{
			{ID: "job-8", Why: "request", Plans: []string{"quick"}, Status: store.BedWaiting},
		},
		Ended: []store.BedJob{
			{ID: "job-6", Why: "trigger images", Status: store.BedFailed, Reason: "no power"},
		},
		Alarms: []store.BedAlarm{{At: now.Add(-time.Hour), Job: "job-5", Kind: "slower", Firmware: "24.10.2",
			Text: "wireguard, down: −4 %", Unsent: "the mail server is away"}},
		Started: now.Add(-time.Hour),
		Seen:    now,
	}
}

// addBeds stores what testbeds report.
func addBeds(t *testing.T, s *Server, beds ...store.Bed) {
	t.Helper()
	change(t, s, func(st *store.Store) error {
		for _, b := range beds {
			if err := st.SetBed(t.Context(), b); err != nil {
				return err
			}
		}
		return nil
	})
	s.forgetBeds(t.Context())
}

// silentBed is a testbed whose last schedule has not ended any job.
func silentBed(name string) store.Bed {
	b := workingBed(name)
	b.Schedules[0].By = time.Now().Add(-time.Hour)
	b.Job, b.Waiting, b.Alarms = nil, nil, nil
	return b
}

// TestBedPages: pages and data show what testbeds have reported, and a silent one as an alarm.
func TestBedPages(t *testing.T) {
	s, _ := serverOf(t, "good")
	for path, want := range map[string]string{"/beds": "No testbed has reported yet",
		"/alarms": "0 alarms", "/api/v1/beds": `"beds": []`} {
		if body := text(t, s, path, http.StatusOK); !strings.Contains(body, want) {
			t.Errorf("%s without testbeds: got no %q in\n%s", path, want, shown(body))
		}
	}

	addBeds(t, s, workingBed("lab-1"), silentBed("lab-2"))
	for path, want := range map[string][]string{
		"/beds": {"2 testbeds", `id="bed-lab-1"`, "Lab board.yaml on host lab2.example.net", "0 2 * * *",
			`<progress aria-label="lab-1" value="2" max="12">`,
			"schedule nightly · measure · 2 of 12 trials · ready about ", "status 502", "no power",
			"silent</b>: no job of schedule nightly has succeeded by ",
			`<a href="/runs/` + labtest.Samples["good"].ID},
		"/alarms": {"1 alarm, the newest first; 1 testbed silent", "lab-2</b>: no job of schedule nightly has succeeded",
			"wireguard, down: −4 %", `<a href="/beds#bed-lab-1">`, "not yet: the mail server is away", `class="tone-bad">slower<`},
		"/api/v1/beds": {`"format": "chokepoint-beds/1"`, `"silent": "no job of schedule nightly`, `"total": 12`},
		"/metrics": {`chokepoint_bed_silent{testbed="lab-1"} 0`, `chokepoint_bed_silent{testbed="lab-2"} 1`,
			`chokepoint_bed_report_timestamp_seconds{testbed="lab-1"} `},
		"/api/v1/beds/lab-1/requests": {`"format": "chokepoint-bed-requests/1"`},
	} {
		body := text(t, s, path, http.StatusOK)
		for _, w := range want {
			if !strings.Contains(body, w) {
				t.Errorf("%s: got no %q in\n%s", path, w, shown(body))
			}
		}

		if strings.Contains(body, "<form") || strings.Contains(body, "/login") {
			t.Errorf("%s: someone can act without a token:\n%s", path, shown(body))
		}
	}

	text(t, s, "/api/v1/beds/nobody/requests", http.StatusNotFound)
}

// TestUnreadableBed: a testbed or a request that cannot be read hides nothing else.
func TestUnreadableBed(t *testing.T) {
	s, _ := serverOf(t)
	addBeds(t, s, workingBed("lab-1"))
	db, err := sql.Open("sqlite", s.app.Dirs.StoreFile())
	if err == nil {
		_, err = db.ExecContext(t.Context(), `INSERT INTO beds VALUES ('lab-2', 'planted-host', 1, '{"name": 1}');
			INSERT INTO bed_requests VALUES ('r', 'lab-1', 1, '[]', 0, '', '')`)
		err = errors.Join(err, db.Close())
	}

	if err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]string{
		"/beds":                       "On host planted-host.",
		"/alarms":                     "its last report cannot be read",
		"/metrics":                    `chokepoint_bed_silent{testbed="lab-2"} 1`,
		"/api/v1/beds/lab-1/requests": `"unreadable"`,
	} {
		contains(t, text(t, s, path, http.StatusOK), want)
	}
}

// TestManyBeds: testbeds and alarms come in parts.
func TestManyBeds(t *testing.T) {
	s, _ := serverOf(t)
	var beds []store.Bed
	for i := range pageLength + 1 {
		beds = append(beds, workingBed(fmt.Sprintf("lab-%02d", i)))
	}

	addBeds(t, s, beds...)
	for path, want := range map[string]int{"/beds": pageLength, "/beds?page=2": 1, "/alarms?page=2": 1} {
		body := text(t, s, path, http.StatusOK)
		n := strings.Count(body, "data-progress=")
		if strings.HasPrefix(path, "/alarms") {
			n = strings.Count(body, `<a href="/beds#bed-`)
		}

		if n != want {
			t.Errorf("%s: got %d testbeds, want %d", path, n, want)
		}
	}

	text(t, s, "/beds?page=3", http.StatusNotFound)
}

// TestHostileBed: no text of a testbed is markup on a page, in an event or in the exposition.
func TestHostileBed(t *testing.T) {
	s, _ := serverWithToken(t)
	b := workingBed("lab-1")
	b.Host, b.Lab, b.Version, b.Plans = hostile, hostile, hostile, []string{hostile}
	b.Schedules[0].Name, b.Triggers[0].Seen, b.Job.Why, b.Job.Run = hostile, hostile, hostile, hostile
	b.Waiting[0].ID, b.Ended[0].Reason, b.Alarms[0].Text = hostile, hostile, hostile
	b.Schedules[0].By = time.Now().Add(-time.Hour)
	addBeds(t, s, b)
	cookie := signedIn(t, s)
	for _, path := range []string{"/beds", "/alarms", "/login"} {
		answer := get(t, s, path, func(r *http.Request) { r.AddCookie(cookie) })
		body := bodyOf(t, answer)
		for _, bad := range []string{"<script>alert", "' onload='", "\x1b", `href="/runs/"`} {
			if strings.Contains(body, bad) {
				t.Errorf("%s: got %q in\n%s", path, bad, shown(body))
			}
		}
	}

	list, err := s.allBeds(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if list.event == "" || strings.ContainsAny(list.event, "\n\r<\x1b") {
		t.Errorf("got the event %q", list.event)
	}
}

// serve runs the server on a socket of its own until stop is called, and returns its address.
func serve(t *testing.T, s *Server) (address string, stop func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	return "http://" + ln.Addr().String(), func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// follow opens the events of a server.
func follow(t *testing.T, address string) (next func() news, ended func() bool) {
	t.Helper()
	answer, err := http.Get(address + eventsPath)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { answer.Body.Close() })
	if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("got %s, %s", answer.Status, kind)
	}

	lines := bufio.NewScanner(answer.Body)
	next = func() (n news) {
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if ok {
				if err := json.Unmarshal([]byte(data), &n); err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
		t.Fatalf("the events ended: %v", lines.Err())
		return n
	}
	return next, func() bool {
		for lines.Scan() {
		}
		return lines.Err() == nil
	}
}

// TestEvents: each client sees the progress that a testbed reports, and what else has changed; the server
// ends the events when it ends.
func TestEvents(t *testing.T) {
	t.Parallel()
	s, _ := serverOf(t, "good")
	b := workingBed("lab-1")
	addBeds(t, s, b)
	address, stop := serve(t, s)
	next, ended := follow(t, address)
	other, _ := follow(t, address)
	first := next()
	if len(first.Beds) != 1 || first.Beds[0].Done != 2 || first.Beds[0].Total != 12 {
		t.Errorf("got %+v", first)
	}

	if second := other(); second.State != first.State {
		t.Errorf("another client got %+v", second)
	}

	page := text(t, s, "/beds", http.StatusOK)
	if !strings.Contains(page, `data-live="`+first.State+`"`) {
		t.Errorf("the page does not have state %s", first.State)
	}

	b.Job.Trials, b.Job.Step, b.Seen = 3, "push", b.Seen.Add(time.Second)
	change(t, s, func(st *store.Store) error { return st.SetBed(t.Context(), b) })
	moved := next()
	if b := moved.Beds[0]; b.Done != 3 || moved.State != first.State || !strings.Contains(b.Text, "push") {
		t.Errorf("after a trial: got %+v", moved)
	}

	b.Job = nil
	change(t, s, func(st *store.Store) error { return st.SetBed(t.Context(), b) })
	if over := next(); over.State == first.State || over.Beds[0].Total != 0 ||
		!strings.HasPrefix(over.Beds[0].Text, "idle") {
		t.Errorf("after the job: got %+v", over)
	}

	stop()
	if !ended() {
		t.Error("the events were cut, want an end")
	}
}

// TestEventBounds: clients of events, and those that send slowly, keep no one else from reading.
func TestEventBounds(t *testing.T) {
	s, _ := serverOf(t)
	for range maxLive {
		s.live <- struct{}{}
	}

	for range maxPosts {
		s.posts <- struct{}{}
	}

	text(t, s, eventsPath, http.StatusServiceUnavailable)
	text(t, s, "/", http.StatusOK)
	<-s.live
	r := httptest.NewRequest(http.MethodHead, "http://localhost"+eventsPath, nil)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != http.StatusOK || w.Body.Len() > 0 {
		t.Errorf("HEAD: got %d, %q", w.Code, w.Body)
	}
}

// TestShareOfAnAddress: one address of another machine cannot have all places for requests of a kind.
func TestShareOfAnAddress(t *testing.T) {
	s, _ := serverOf(t)
	for _, tt := range []struct {
		path   string
		places chan struct{}
		most   int
	}{{"/devices", s.active, maxFrom}, {eventsPath, s.live, maxLiveFrom}} {
		for address, want := range map[string]int{
			"192.0.2.1:1":       http.StatusServiceUnavailable,
			"[2001:db8::1:2]:1": http.StatusServiceUnavailable,
			"127.0.0.1:1":       http.StatusOK,
			"[::1]:1":           http.StatusOK,
		} {
			r := httptest.NewRequest(http.MethodHead, tt.path, nil)
			r.RemoteAddr = address
			share := taken{tt.places, source(r)}
			for range tt.most {
				if !s.take(share, 1, tt.most) {
					t.Errorf("%s from %s: refused", tt.path, address)
				}
			}

			if got := answer(s, r); got != want {
				t.Errorf("%s, one more from %s: got %d, want %d", tt.path, address, got, want)
			}

			r.RemoteAddr = "198.51.100.1:1"
			if got := answer(s, r); got != http.StatusOK {
				t.Errorf("%s from another address than %s: got %d", tt.path, address, got)
			}

			for range tt.most {
				s.take(share, -1, tt.most)
			}
		}
	}

	if len(s.from) > 0 {
		t.Errorf("addresses without requests are kept: %v", s.from)
	}
}

func answer(s *Server, r *http.Request) int {
	w := httptest.NewRecorder()
	r.Host = "localhost"
	s.ServeHTTP(w, r)
	return w.Code
}

// TestSlowBodies: clients that send no body keep no one from acting, and are cut.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	s, _ := serverWithToken(t)
	addBeds(t, s, workingBed("lab-1"))
	address, stop := serve(t, s)
	var slow net.Conn
	for range maxPosts {
		c, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
		if err != nil {
			t.Fatal(err)
		}

		defer c.Close()
		fmt.Fprint(c, "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"+
			"Expect: 100-continue\r\n\r\n")
		line, err := bufio.NewReader(c).ReadString('\n') // the server waits for the body
		if err != nil || !strings.Contains(line, "100 Continue") {
			t.Fatalf("got %q, %v", line, err)
		}

		slow = c
	}

	r, err := http.NewRequest(http.MethodPost, address+"/api/v1/beds/lab-1/requests",
		strings.NewReader(`{"kind": "start", "plan": "quick"}`))
	if err != nil {
		t.Fatal(err)
	}

	bearer(token)(r)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}

	answer.Body.Close()
	if answer.StatusCode != http.StatusAccepted {
		t.Errorf("got %s", answer.Status)
	}

	_ = slow.SetReadDeadline(time.Now().Add(readTime / 2))
	rest, err := io.ReadAll(slow)
	if err != nil || !strings.Contains(string(rest), "400 Bad Request") {
		t.Errorf("a slow client: got %.100q, %v", rest, err)
	}

	stop()
}

// TestAsk: with the token, programs and signed-in browsers start, schedule and cancel through the store.
func TestAsk(t *testing.T) {
	s, notes := serverWithToken(t)
	addBeds(t, s, workingBed("lab-1"))
	cookie := signedIn(t, s)
	page := bodyOf(t, get(t, s, "/beds", func(r *http.Request) { r.AddCookie(cookie) }))
	for _, want := range []string{`<form action="/beds/lab-1/start" method="post">`, `<option value="night"`,
		`<form action="/beds/lab-1/cancel" method="post">`, `<option value="job-8"`} {
		if !strings.Contains(page, want) {
			t.Errorf("got no %s in\n%s", want, shown(page))
		}
	}

	at := time.Now().UTC().Add(3 * time.Hour).Truncate(time.Minute)
	for _, form := range []struct{ path, fields string }{
		{"/beds/lab-1/start", "plan=quick"},
		{"/beds/lab-1/start", "plan=night&at=" + at.Format(startForm)},
		{"/beds/lab-1/cancel", "job=job-8"},
	} {
		answer := post(t, s, form.path, form.fields+"&"+keyIn(t, page), fromPage(cookie))
		if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != "/beds#bed-lab-1" {
			t.Errorf("%s %s: got %s", form.path, form.fields, answer.Status)
		}
	}

	const path = "/api/v1/beds/lab-1/requests"
	answer := post(t, s, path, `{"kind": "cancel", "job": "job-7"}`, bearer(token))
	accepted := bodyOf(t, answer)
	if answer.StatusCode != http.StatusAccepted || !strings.Contains(accepted, `"id": "`) {
		t.Errorf("%s: got %s, %s", path, answer.Status, accepted)
	}

	requests, err := s.app.Dirs.BedRequests(t.Context(), "lab-1")
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, q := range requests {
		got = append(got, strings.TrimSpace(q.Kind+" "+q.Plan+q.Job+" "+moment(q.At)))
		if q.By != "serve, from 192.0.2.1" {
			t.Errorf("asked by %q", q.By)
		}
	}

	want := []string{"start quick", "start night " + moment(at), "cancel job-8", "cancel job-7"}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got the requests %q, want %q", got, want)
	}

	if len(*notes) != len(want)+1 {
		t.Errorf("got the notes %q, want one of the session and one of each request", *notes)
	}

	page = bodyOf(t, get(t, s, "/beds", func(r *http.Request) { r.AddCookie(cookie) }))
	later := regexp.MustCompile(`<option value="([^"]+)">night at ` + moment(at)).FindStringSubmatch(page)
	if later == nil {
		t.Fatalf("the page does not show the request for later:\n%s", shown(page))
	}

	post(t, s, "/beds/lab-1/cancel", "job="+later[1]+"&"+keyIn(t, page), fromPage(cookie))
	page = text(t, s, "/beds", http.StatusOK)
	contains(t, page, "refused: cancelled before its time")

	for body, code := range map[string]int{
		`{"kind": "start", "plan": "other"}`: 409, `{"kind": "cancel", "job": "job-6"}`: 409,
		`{"kind": "start", "plan": "quick", "at": "2001-01-01T00:00:00Z"}`: 409, `{"kind": "reboot"}`: 409,
		`{`: 400, `{"kind": "start", "by": "x", "x": 1}`: 400,
		`{"kind": "` + strings.Repeat("a", maxBody) + `"}`: 400,
	} {
		answer := post(t, s, path, body, bearer(token))
		if answer.StatusCode != code {
			t.Errorf("%.60s: got %s, want %d", body, answer.Status, code)
		}
	}

	const start = `{"kind": "start", "plan": "quick"}`
	for path, code := range map[string]int{"/api/v1/beds/nobody/requests": 404, "/api/v1/beds/x": 405} {
		if answer := post(t, s, path, start, bearer(token)); answer.StatusCode != code {
			t.Errorf("%s: got %s, want %d", path, answer.Status, code)
		}
	}

	page = bodyOf(t, get(t, s, "/beds", func(r *http.Request) { r.AddCookie(cookie) }))
	answer = post(t, s, "/beds/lab-1/start", "plan=quick&at=tonight&"+keyIn(t, page), fromPage(cookie))
	if answer.StatusCode != http.StatusBadRequest {
		t.Errorf("a time that is none: got %s", answer.Status)
	}
}
