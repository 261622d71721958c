package serve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// hostile is text that no page may take for its own markup, and no exposition for a line of its own.
const hostile = "\"><script>alert(1)</script>' onload='x ../../etc/passwd \x1b[2J\nchokepoint_x{} 1\n" +
	"# EOF # TYPE x gauge; </script>\u2028 "

// hostileRun has the text wherever a person or another machine may put it.
const hostileRun = "20260201-000000-0001"

// serverOf returns a server of some sample runs, and what it notes.
func serverOf(t *testing.T, samples ...string) (*Server, *[]string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "planted-dir")
	var notes []string
	a := &app.App{
		Dirs: app.Dirs{Data: filepath.Join(dir, "data"), State: dir, Runtime: filepath.Join(dir, "run")},
		Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) },
	}
	for _, name := range samples {
		if err := labtest.WriteSample(t.Context(), a.Dirs.StoreFile(), name); err != nil {
			t.Fatal(err)
		}
	}

	s := New(a, Options{Hosts: []string{"127.0.0.1", "Runs.Example."}})
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s, &notes
}

// change calls f with the open store of a server.
func change(t *testing.T, s *Server, f func(*store.Store) error) {
	t.Helper()
	st, err := store.Open(t.Context(), s.app.Dirs.StoreFile())
	if err == nil {
		err = errors.Join(f(st), st.Close())
	}

	if err != nil {
		t.Fatal(err)
	}
}

// addHostile stores the run hostileRun.
func addHostile(t *testing.T, s *Server) {
	sample := labtest.Samples["good"]
	sample.ID = hostileRun
	run := sample.Run()
	run.Name, run.Device, run.Lab, run.Notes = hostile, hostile, hostile, []string{hostile}
	run.Design.Name, run.Design.Description = hostile, hostile
	run.Design.Factors[0].Name = hostile
	change(t, s, func(st *store.Store) error {
		err := st.CreateRun(t.Context(), run)
		for _, trial := range sample.Trials() {
			err = errors.Join(err, st.AppendTrial(t.Context(), trial))
		}

		headline := &record.Headline{Metric: "goodput_bps", Value: 1, Cell: hostile, Grade: hostile}
		return errors.Join(err, st.EndRun(t.Context(), run.ID, record.RunDone, hostile, run.Started),
			st.SetHeadline(t.Context(), run.ID, headline))
	})
}

// get returns the answer to a request of a path, or of another host or method.
func get(t testing.TB, s *Server, path string, change ...func(*http.Request)) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://localhost:8080"+path, nil)
	for _, f := range change {
		f(r)
	}

	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

// text returns the body of an answer, which must have a code.
func text(t testing.TB, s *Server, path string, code int) string {
	t.Helper()
	answer := get(t, s, path)
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != code {
		t.Errorf("%s: got %d, %v, want %d:\n%.300s", path, answer.StatusCode, err, code, shown(string(body)))
	}
	return string(body)
}

// contains reports an error for each text that a page does not have.
func contains(t *testing.T, body string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(body, want) {
			t.Errorf("got no %q in\n%.3000s", want, shown(body))
		}
	}
}

// shown returns a page without its styles and scripts, for messages.
func shown(body string) string { return inline.ReplaceAllString(body, "") }

// pages returns the paths of all kinds of pages of a store with the samples good, slow and the hostile run.
func pages() []string {
	good, slow := labtest.Samples["good"].ID, labtest.Samples["slow"].ID
	return []string{"/", "/?q=good&device=x%22%3E", "/devices", "/compare",
		"/compare?a=" + good + "&b=" + slow, "/compare?b=" + hostileRun + "&a=" + good, "/history", "/history?plan=sample", "/runs/" + good,
		"/runs/" + hostileRun, linkTo("/history", "plan", hostile, "device", hostile), "/nothing%22%3E%3Cscript%3E"}
}

// TestPages: the lists show what there is, and what the parameters select of it.
func TestPages(t *testing.T) {
	s, _ := serverOf(t, "before", "after", "failed")
	id := labtest.Samples["before"].ID
	change(t, s, func(st *store.Store) error {
		run := labtest.Samples["good"].Run()
		run.ID, run.Name = "20260301-000000-0002", "nightly"
		run.Device, run.Design.Name = "Router R1, 24.10", "other"
		return errors.Join(st.CreateRun(t.Context(), run),
			st.EndRun(t.Context(), run.ID, record.RunInterrupted, "", run.Started))
	})
	for path, want := range map[string][]string{
		"/": {"4 of 4 runs, the newest first", ">nightly<", "lab local", `<a href="/runs/` + id + `">` + id, "1 failed",
			">interrupted<"},
		"/?q=ROUTER+nightly":      {"1 of 4 runs", ">nightly<", `name="q" value="ROUTER nightly"`},
		"/?device=local":          {"3 of 4 runs", `<option value="local" selected>`},
		"/?plan=other&lab=local":  {"1 of 4 runs"},
		"/?status=interrupted":    {"1 of 4 runs"},
		"/?status=done&plan=none": {"0 of 4 runs"},
		"/devices": {"2 devices", "<h2>Router R1, 24.10</h2>", "1 of 1 run;",
			`<a href="/?device=Router&#43;R1%2C&#43;24.10">Router R1, 24.10</a>`},
		"/compare": {`<option value="` + id + `"`},
		"/compare?a=" + id + "&b=" + labtest.Samples["after"].ID: {"×0.500", "Worse in B", ">836 Mbit/s<",
			"/api/v1/compare?a=" + id},
		"/history":             {`<option value="other">other</option>`, `value="rtt_loaded_p50_ns"`},
		"/history?plan=sample": {"2 cells on local, 3 runs", `aria-current="page">History`},
	} {
		body := text(t, s, path, http.StatusOK)
		for _, w := range want {
			if !strings.Contains(body, w) {
				t.Errorf("%s: got no %q in\n%s", path, w, shown(body))
			}
		}
	}
}

// TestLongList: a list has parts, whose links keep the parameters.
func TestLongList(t *testing.T) {
	s, _ := serverOf(t)
	if body := text(t, s, "/", http.StatusOK); !strings.Contains(body, "Nothing is stored yet") {
		t.Errorf("without a store: got\n%s", shown(body))
	}

	change(t, s, func(st *store.Store) (err error) {
		for i := range 2*pageLength + 1 {
			run := labtest.Samples["good"].Run()
			run.ID = fmt.Sprintf("20260101-000000-%04d", i)
			run.Device = fmt.Sprint("device ", i)
			err = errors.Join(err, st.CreateRun(t.Context(), run))
		}
		return err
	})
	for path, want := range map[string]int{"/": pageLength, "/?page=2": pageLength,
		"/?page=3&plan=sample": 1} {
		body := text(t, s, path, http.StatusOK)
		if n := strings.Count(body, `<a href="/runs/`); n != want {
			t.Errorf("%s: got %d runs, want %d", path, n, want)
		}
	}

	body := text(t, s, "/?plan=sample&page=2", http.StatusOK)
	for _, link := range []string{`"/?page=1&amp;plan=sample">Newer`, `"/?page=3&amp;plan=sample">Older`} {
		if !strings.Contains(body, link) {
			t.Errorf("got no link %s in\n%s", link, shown(body))
		}
	}

	for path, want := range map[string]int{"/devices?page=2": pageLength, "/devices?page=3": 1} {
		body := text(t, s, path, http.StatusOK)
		if n := strings.Count(body, `<h2>device `); n != want || !strings.Contains(body, "101 devices") {
			t.Errorf("%s: got %d devices, want %d of 101", path, n, want)
		}
	}

	text(t, s, "/devices?page=4", http.StatusNotFound)
	var list runList
	err := json.Unmarshal([]byte(text(t, s, "/api/v1/runs?page=3", http.StatusOK)), &list)
	if err != nil || list.Found != 2*pageLength+1 || list.Pages != 3 || len(list.Runs) != 1 {
		t.Errorf("got %+v, %v, want the last of 101 runs", list, err)
	}
}

// TestSameAsCommands: a run's page is that of report below some links, and the data are those of show,
// compare and history.
func TestSameAsCommands(t *testing.T) {
	s, _ := serverOf(t, "good", "slow")
	good, slow := labtest.Samples["good"].ID, labtest.Samples["slow"].ID
	doc, err := s.app.Dirs.Document(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}

	page, err := report.HTML(doc)
	if err != nil {
		t.Fatal(err)
	}

	links := regexp.MustCompile(`(?s)\n<nav aria-label="Pages">.*?</nav>`)
	served := text(t, s, "/runs/"+good, http.StatusOK)
	if got := links.ReplaceAllString(served, ""); got != string(page) || got == served {
		t.Errorf("the page differs from that of report, or has no links:\n%.2000s", served)
	}

	document, err := report.JSON(doc)
	if err != nil {
		t.Fatal(err)
	}

	c, _, err := s.app.Compare(t.Context(), good, slow)
	if err != nil {
		t.Fatal(err)
	}

	compared, err := indented(c)
	if err != nil {
		t.Fatal(err)
	}

	h, err := s.app.History(t.Context(), app.HistoryOptions{Cell: "wireguard", Derived: s.results})
	if err != nil {
		t.Fatal(err)
	}

	history, err := report.HistoryJSON(h)
	if err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string][]byte{
		"/api/v1/runs/" + good:                     document,
		"/api/v1/compare?a=" + good + "&b=" + slow: compared,
		"/api/v1/history?cell=wireguard":           history,
	} {
		if got := text(t, s, path, http.StatusOK); got != string(want) {
			t.Errorf("%s: got\n%.500s\nwant\n%.500s", path, got, want)
		}
	}
}

// TestChangesNothing: no request changes the store or creates a file but those that SQLite needs to read it,
// not even several at once.
func TestChangesNothing(t *testing.T) {
	s, _ := serverOf(t, "good", "slow")
	file := s.app.Dirs.StoreFile()
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	var requests sync.WaitGroup
	for _, path := range append(pages(), "/metrics", "/api/v1/history") {
		requests.Go(func() { get(t, s, path) })
	}

	requests.Wait()
	after, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the store is another one: %v", err)
	}

	files, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range files {
		if !slices.Contains([]string{file, file + "-shm", file + "-wal"}, name) {
			t.Errorf("got the file %s", name)
		}
	}

	if info, err := os.Stat(file + "-wal"); err == nil && info.Size() > 0 {
		t.Errorf("the log of the store has %d bytes", info.Size())
	}
}

// TestHostileText: no text of a run is markup on a page, or a line of the exposition.
func TestHostileText(t *testing.T) {
	s, _ := serverOf(t, "good", "slow")
	addHostile(t, s)
	for _, path := range pages() {
		code := http.StatusOK
		if strings.HasPrefix(path, "/nothing") {
			code = http.StatusNotFound
		}

		body := text(t, s, path, code)
		for _, bad := range []string{"<script>alert", "' onload='", "\x1b"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s: got %q in\n%s", path, bad, shown(body))
			}
		}
	}

	if body := text(t, s, "/", http.StatusOK); !strings.Contains(body, "&lt;script&gt;alert(1)") {
		t.Errorf("the list does not show the text:\n%s", shown(body))
	}

	body := text(t, s, "/metrics", http.StatusOK)
	if strings.Count(body, "\n# EOF\n") != 1 || strings.Contains(body, "\n# TYPE x ") ||
		!strings.Contains(body, "# EOF # TYPE x gauge; </script> \",") ||
		strings.Contains(body, "\nchokepoint_x") ||
		!strings.Contains(body, `\"><script>`) {
		t.Errorf("the exposition holds a line of a run's text:\n%s", shown(body))
	}
}

// TestDamagedRun: a run that cannot be read is listed without a link, and its id, which may be the path of a
// file, is none of a run.
func TestDamagedRun(t *testing.T) {
	h := app.Head{ID: `../"x".json`, Damaged: "its id is none", Trials: 1}
	run := runTable("t", []app.Listed{{Head: h}}).Rows[0].Cells
	if run[0].Href != "" || run[5].Text != "damaged" {
		t.Errorf("got %+v, want no link", run)
	}

	if _, err := runOf([]app.Head{h}, h.ID); err == nil {
		t.Error("its id names a run")
	}

	for _, option := range runChoices([]app.Head{h}, "") {
		if option.Value != "" {
			t.Errorf("it can be compared: %+v", option)
		}
	}
}

var (
	reference = regexp.MustCompile(`(?:href|src|action|data|poster|formaction)="([^"]*)"`)
	inline    = regexp.MustCompile(`(?s)<(script|style)([^>]*)>(.*?)</(?:script|style)>`)
	attribute = regexp.MustCompile(`<[^>]*\s(?:style|on[a-z]+)="`)
)

// TestPolicies: the header of each page permits its own styles and scripts and nothing else; nothing is
// referred to but pages of the server.
func TestPolicies(t *testing.T) {
	s, _ := serverOf(t, "good", "slow")
	addHostile(t, s)
	for _, path := range append(pages(), "/metrics", "/api/v1/runs") {
		answer := get(t, s, path)
		content, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}

		policy := answer.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: policy %q has no %s", path, policy, want)
			}
		}

		if strings.Contains(policy, "unsafe") || answer.Header.Get("X-Content-Type-Options") != "nosniff" ||
			answer.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: got the header %v", path, answer.Header)
		}

		if !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") {
			continue
		}

		for _, m := range inline.FindAllStringSubmatch(string(content), -1) {
			sum := sha256.Sum256([]byte(m[3]))
			source := m[1] + "-src [^;]*'sha256-" +
				regexp.QuoteMeta(base64.StdEncoding.EncodeToString(sum[:])) + "'"
			if m[2] == "" && !regexp.MustCompile(source).MatchString(policy) {
				t.Errorf("%s: policy %q lacks the hash of a %s", path, policy, m[1])
			}
		}

		markup := inline.ReplaceAllString(string(content), "")
		for _, m := range reference.FindAllStringSubmatch(markup, -1) {
			local := strings.HasPrefix(m[1], "/") && !strings.HasPrefix(m[1], "//")
			if !local && !strings.HasPrefix(m[1], "#") && !strings.HasPrefix(m[1], "data:image/svg+xml,") {
				t.Errorf("%s: refers to %.100s", path, m[1])
			}
		}

		if m := attribute.FindString(markup); m != "" || strings.Contains(string(content), "@import") {
			t.Errorf("%s: has a style or script of its own: %s", path, m)
		}
	}
}

// TestRefusals: what is wrong with a request is said, and nothing of the machine.
func TestRefusals(t *testing.T) {
	s, notes := serverOf(t, "good", "slow")
	good := labtest.Samples["good"].ID
	file := filepath.Join(s.app.Dirs.Data, "other.json")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}

	for path, code := range map[string]int{
		"/runs/latest": 404, "/runs/..%2F..%2Fetc%2Fpasswd": 404, "/runs/" + good + ".json": 404,
		"/runs/" + strings.ReplaceAll(file, "/", "%2F"): 404, "/runs/" + good + "%00": 404,
		"/runs/" + good + "%0a": 404, "/runs/": 404, "/api/v1/runs/nobody": 404,
		"/etc/passwd": 404, "/?page=0": 400, "/?page=x": 400, "/?page=2": 404, "/?q=" + strings.Repeat("a", maxWords): 200,
		"/?q=" + strings.Repeat("a+", maxWords): 400,
		"/compare?a=" + good + "&b=" + good:     400, "/compare?a=" + good + "&b=" + file: 404,
		"/api/v1/compare": 400, "/api/v1/compare?a=" + file + "&b=" + good: 404,
		"/history?plan=nothing": 404, "/api/v1/history?metric=x": 404, "/api/v1/history?cell=nothing": 404,
	} {
		body := text(t, s, path, code)
		if strings.Contains(body, "planted-dir") || strings.Contains(body, "root:") {
			t.Errorf("%s: names a path:\n%s", path, shown(body))
		}

		if strings.HasPrefix(path, "/api/") && !strings.HasPrefix(body, `{"errors":["`) {
			t.Errorf("%s: got %s, want JSON", path, body)
		}
	}

	if len(*notes) > 0 {
		t.Errorf("wrong requests are noted: %q", *notes)
	}

	err := os.WriteFile(s.app.Dirs.StoreFile(), []byte("no store at all, but text of some length"), 0o600)
	if err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{"/", "/api/v1/runs", "/metrics", "/history?plan=sample"} {
		body := text(t, s, path, http.StatusInternalServerError)
		if strings.Contains(body, "planted-dir") {
			t.Errorf("%s: names a path:\n%s", path, shown(body))
		}
	}

	if len(*notes) != 4 || !strings.Contains((*notes)[0], "planted-dir") {
		t.Errorf("the reasons are not noted: %q", *notes)
	}
}

// TestMethodsAndHosts: only GET and HEAD are answered, and only to who knows the name of the server.
func TestMethodsAndHosts(t *testing.T) {
	s, _ := serverOf(t, "good")
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "X"} {
		answer := get(t, s, "/", func(r *http.Request) { r.Method = method })
		if answer.StatusCode != http.StatusMethodNotAllowed || answer.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: got %s", method, answer.Status)
		}
	}

	for host, code := range map[string]int{
		"localhost": 200, "LOCALHOST:1": 200, "127.0.0.1:8080": 200, "127.3.2.1": 200, "[::1]:8080": 200, "[::1]": 200,
		"runs.example:8080": 200, "RUNS.example.": 200, "192.0.2.7:8080": 200, "[::ffff:192.0.2.7]:8080": 200,
		"": 403, "evil.example": 403, "localhost.evil.example": 403, "192.0.2.8:8080": 403, "0.0.0.0": 403,
		"127.0.0.1.evil.example": 403, "evil.example#localhost": 403, "[": 403, "a b": 403,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		local := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 8080}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local)))
		if w.Code != code {
			t.Errorf("host %q: got %d, want %d", host, w.Code, code)
		}
	}

	for fetch, code := range map[[3]string]int{
		{"cross-site", "no-cors", "image"}: 403, {"same-site", "cors", "empty"}: 403,
		{"cross-site", "navigate", "iframe"}: 403, {"cross-site", "navigate", "document"}: 200,
		{"same-origin", "navigate", "document"}: 200, {"none", "navigate", "document"}: 200,
	} {
		answer := get(t, s, "/", func(r *http.Request) {
			for i, name := range []string{"Site", "Mode", "Dest"} {
				r.Header.Set("Sec-Fetch-"+name, fetch[i])
			}
		})
		if answer.StatusCode != code {
			t.Errorf("%v: got %d, want %d", fetch, answer.StatusCode, code)
		}
	}

	for range maxRequests {
		s.active <- struct{}{}
	}

	text(t, s, "/", http.StatusServiceUnavailable)
}

// TestRunningRun: the list shows a run that is being recorded, and is loaded again until the run has ended.
func TestRunningRun(t *testing.T) {
	s, _ := serverOf(t, "killed")
	id := labtest.Samples["killed"].ID
	const again, words = `<meta http-equiv="refresh" content="60"/>`, "running, 6 trials"
	st, err := s.app.Dirs.OpenOwn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	end, err := st.Record(id)
	if err != nil {
		t.Fatal(err)
	}

	body := text(t, s, "/", http.StatusOK)
	if !strings.Contains(body, again) || !strings.Contains(body, words) {
		t.Errorf("got no %s or %q in\n%s", again, words, shown(body))
	}

	body = text(t, s, "/?still=1", http.StatusOK)
	if strings.Contains(body, again) || !strings.Contains(body, words) {
		t.Errorf("with still: got\n%s", shown(body))
	}

	text(t, s, "/runs/"+id, http.StatusOK)
	err = end.Close()
	body = text(t, s, "/", http.StatusOK)
	if err != nil || strings.Contains(body, again) || !strings.Contains(body, "killed, 6 trials") {
		t.Errorf("after its end: %v,\n%s", err, shown(body))
	}
}

// TestKept: what was made of a run is kept until the run changes in any respect.
func TestKept(t *testing.T) {
	s, _ := serverOf(t, "good", "killed")
	id := labtest.Samples["killed"].ID
	path := "/runs/" + id
	made := 0
	render := func() {
		t.Helper()
		heads, err := s.app.Dirs.Runs(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		head, err := runOf(heads, id)
		if err != nil {
			t.Fatal(err)
		}

		content, err := s.made(t.Context(), "test", head, func(d *analysis.Document) ([]byte, error) {
			made++
			return []byte(d.Run.Name), nil
		})
		if err != nil || len(content) != len("before")*min(1, made-1) {
			t.Errorf("got %q, %v", content, err)
		}
	}
	render()
	render()
	if made != 1 {
		t.Errorf("made %d times, want once", made)
	}

	if _, err := s.app.Dirs.Rename(t.Context(), id, "before"); err != nil {
		t.Fatal(err)
	}

	render()
	for i, f := range []func(*store.Store) error{
		func(st *store.Store) error {
			trial := labtest.Samples["killed"].Trials()[0]
			trial.ID, trial.Row.ID, trial.Row.Index = "extra.1", "extra", 99
			return st.AppendTrial(t.Context(), trial)
		},
		func(st *store.Store) error {
			run := labtest.Samples["desk"].Run()
			return errors.Join(st.CreateRun(t.Context(), run),
				st.AddNote(t.Context(), id, store.Note{Experiments: []string{"x", run.ID}}))
		},
		func(st *store.Store) error {
			return st.AppendTrial(t.Context(), labtest.Samples["desk"].Trials()[0])
		},
		func(st *store.Store) error {
			return st.EndRun(t.Context(), labtest.Samples["desk"].ID, record.RunDone, "", time.Now())
		},
		func(st *store.Store) error { return st.EndRun(t.Context(), id, record.RunDone, "", time.Now()) },
	} {
		change(t, s, f)
		render()
		render()
		if made != 3+i {
			t.Errorf("made %d times, want %d", made, 3+i)
		}
	}

	if !strings.Contains(text(t, s, path, http.StatusOK), ">done<") {
		t.Error("the page does not show the end of the run")
	}
}

// TestKeptBytes: the oldest contents go when there are too many bytes.
func TestKeptBytes(t *testing.T) {
	var c cache
	for i := range 5 {
		c.put(fmt.Sprint(i), make([]byte, maxKept/4))
		c.get("0")
	}

	var left []string
	for i := range 5 {
		if c.get(fmt.Sprint(i)) != nil {
			left = append(left, fmt.Sprint(i))
		}
	}

	if !slices.Equal(left, []string{"0", "2", "3", "4"}) || c.bytes != maxKept || len(c.all) != 4 {
		t.Errorf("kept %v, %d bytes", left, c.bytes)
	}

	c.put("huge", make([]byte, maxKept+1))
	if len(c.all) != 0 || c.bytes != 0 {
		t.Errorf("kept %d contents of %d bytes, want none beside one that is too large", len(c.all), c.bytes)
	}
}

// TestMetrics: the newest run of each plan and device is exposed, each sample once and each family in one
// piece, with the requests that were answered.
func TestMetrics(t *testing.T) {
	s, _ := serverOf(t, "good", "slow", "desk")
	get(t, s, "/runs/nobody")
	body := text(t, s, "/metrics", http.StatusOK)
	var families []string
	seen := map[string]bool{}
	for line := range strings.Lines(body) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			families = append(families, strings.Fields(name)[0])
			continue
		}

		if strings.HasPrefix(line, "#") {
			continue
		}

		sample := line[:strings.LastIndex(line, " ")]
		family := families[len(families)-1]
		ours := strings.HasPrefix(line, family+"{") || strings.HasPrefix(line, family+"_total{")
		if seen[sample] || !ours {
			t.Errorf("twice, or of another family than %s: %s", family, line)
		}

		seen[sample] = true
	}

	slices.Sort(families)
	if n := len(families); n < 8 || len(slices.Compact(families)) != n {
		t.Errorf("got the families %v, want each once", families)
	}

	for _, want := range []string{
		`chokepoint_goodput_bits_per_second{device="local",plan="sample",id=`,
		`chokepoint_goodput_bits_per_second{device="ssh",plan="sample",id=`,
		`run="` + labtest.Samples["slow"].ID, `run="` + labtest.Samples["desk"].ID,
		`chokepoint_run_readable{device="local",plan="sample",run="` + labtest.Samples["slow"].ID + `"} 1`, `chokepoint_build_info{version="`,
		`chokepoint_http_requests_total{code="404",method="get",handler="/runs/{id}"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("got no %s in\n%s", want, shown(body))
		}
	}

	if strings.Contains(body, labtest.Samples["good"].ID) || !strings.HasSuffix(body, "\n# EOF\n") {
		t.Errorf("an older run is exposed, or there is no end:\n%s", shown(body))
	}
}

// TestSimilarDevices: devices that differ only in what a label cannot hold are exposed as one.
func TestSimilarDevices(t *testing.T) {
	s, _ := serverOf(t, "good")
	change(t, s, func(st *store.Store) (err error) {
		for i, device := range []string{"board", "board\x1b"} {
			sample := labtest.Samples["slow"]
			sample.ID = fmt.Sprintf("20260301-000000-%04d", i)
			run := sample.Run()
			run.Device = device
			err = errors.Join(err, st.CreateRun(t.Context(), run),
				st.AppendTrial(t.Context(), sample.Trials()[0]),
				st.EndRun(t.Context(), run.ID, record.RunDone, "", run.Started))
		}
		return err
	})
	readable := regexp.MustCompile(`(?m)^chokepoint_run_readable\{device="(.*)",plan`)
	got := readable.FindAllStringSubmatch(text(t, s, "/metrics", http.StatusOK), -1)
	if len(got) != 2 || got[0][1] != "board" || got[1][1] != "local" {
		t.Errorf("got the devices %q, want board and local", got)
	}
}

// TestServe: the server answers until its context ends, waits for an answer under way and closes its socket.
func TestServe(t *testing.T) {
	s, _ := serverOf(t, "good")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	address := "http://" + ln.Addr().String() + "/"
	answer, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}

	body, err := io.ReadAll(answer.Body)
	if err != nil || !strings.Contains(string(body), "1 of 1 run, the newest first") {
		t.Errorf("got %v\n%s", err, body)
	}

	head, err := http.Head(address)
	if err != nil || head.StatusCode != http.StatusOK || head.ContentLength != int64(len(body)) {
		t.Errorf("HEAD: got %+v, %v, want the header of GET", head, err)
	}

	for len(s.active) > 0 {
		time.Sleep(time.Millisecond)
	}

	s.turn <- struct{}{} // as if a document was being derived
	late := make(chan int, 1)
	go func() {
		code := 0
		answer, err := http.Get(address + "metrics")
		if err == nil {
			code = answer.StatusCode
		}

		late <- code
	}()
	for len(s.active) == 0 {
		time.Sleep(time.Millisecond)
	}

	stop()
	<-s.turn
	if code := <-late; code != http.StatusOK {
		t.Errorf("the answer under way: got %d, want 200", code)
	}

	if err := <-ended; err != nil {
		t.Errorf("got %v, want nil", err)
	}

	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("the socket is still open")
	}
}
