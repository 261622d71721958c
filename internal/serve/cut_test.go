package serve

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
)

// leaving is a context that ends when it is asked for the last time.
type leaving struct {
	context.Context
	left  int
	leave func()
}

func (l *leaving) ask() {
	l.left--
	if l.left == 0 {
		l.leave()
	}
}

func (l *leaving) Err() error {
	l.ask()
	return l.Context.Err()
}

func (l *leaving) Done() <-chan struct{} {
	l.ask()
	return l.Context.Done()
}

// TestClientLeaves: wherever a client leaves, nothing partial is sent or kept.
func TestClientLeaves(t *testing.T) {
	id := labtest.Samples["before"].ID
	for _, path := range []string{"/api/v1/runs/" + id, "/metrics", "/api/v1/history"} {
		s, _ := serverOf(t, "before")
		whole := text(t, s, path, http.StatusOK)
		for asked := 1; ; asked += 1 + asked/8 {
			s.kept = cache{}
			inner, leave := context.WithCancel(t.Context())
			ctx := &leaving{inner, asked, leave}
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
			s.ServeHTTP(httptest.NewRecorder(), r)
			stayed := inner.Err() == nil
			leave()
			if got := text(t, s, path, http.StatusOK); samples(got) != samples(whole) {
				t.Fatalf("%s: left after %d: the next client gets\n%.2000s", path, asked, got)
			}

			if stayed {
				break
			}
		}
	}
}

// counted are the samples of an exposition that change with each request.
var counted = regexp.MustCompile(`(?m)^chokepoint_http_requests_total.*\n`)

// samples returns an exposition without the counts of requests.
func samples(text string) string { return counted.ReplaceAllString(text, "") }

// damageTrial damages a stored trial, which changes no revision.
func damageTrial(t *testing.T, s *Server) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+s.app.Dirs.StoreFile())
	if err == nil {
		_, err = db.ExecContext(t.Context(), `DROP TRIGGER trials_fixed;
			UPDATE trials SET body = x'00' WHERE rowid = (SELECT min(rowid) FROM trials)`)
		err = errors.Join(err, db.Close())
	}

	if err != nil {
		t.Fatal(err)
	}
}

// TestHistoryKept: results that are not stored are derived for the first history only.
func TestHistoryKept(t *testing.T) {
	s, _ := serverOf(t, "before")
	first := text(t, s, "/api/v1/history", http.StatusOK)
	damageTrial(t, s)
	if got := text(t, s, "/api/v1/history", http.StatusOK); got != first {
		t.Errorf("the trials were read again:\n%s", got)
	}

	s.kept = cache{}
	if got := text(t, s, "/api/v1/history", http.StatusOK); got == first {
		t.Error("the damaged trial makes no difference, so this tests nothing")
	}
}

// TestDamagedTrial: a run with a damaged trial is shown without it, and no page says where the store is.
func TestDamagedTrial(t *testing.T) {
	s, _ := serverOf(t, "before")
	id := labtest.Samples["before"].ID
	damageTrial(t, s)
	for _, path := range []string{"/runs/" + id, "/api/v1/runs/" + id} {
		body := text(t, s, path, http.StatusOK)
		if !strings.Contains(body, "1 trial of 16 cannot be read from the store") ||
			strings.Contains(body, "planted-dir") {
			t.Errorf("%s: got no caveat, or the place of the store:\n%s", path, shown(body))
		}
	}
}

// TestPatience: an answer ends at its deadline, or with its client, and waits for others not as long; a panic
// counts as an error.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(&app.App{}, Options{})
		s.handle("/slow", "text/plain", func(r *http.Request) ([]byte, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		s.handle("/wrong", "text/plain", nil)
		s.handle("/waits", "text/plain", func(r *http.Request) ([]byte, error) {
			return nil, s.alone(r.Context(), nil)
		})
		s.handle("/deleted", "text/plain", func(*http.Request) ([]byte, error) {
			return nil, app.Usage("", "no such run")
		})
		answer := get(t, s, "/slow")
		if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
			t.Errorf("got %s, %v", answer.Status, answer.Header)
		}

		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		for _, code := range []int{http.StatusNotFound, statusLeft} {
			path := map[int]string{http.StatusNotFound: "/deleted", statusLeft: "/slow"}[code]
			left, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond, cancel)
			answer := get(t, s, path, func(r *http.Request) { *r = *r.WithContext(left) })
			if answer.StatusCode != code {
				t.Errorf("%s: got %s, want %d", path, answer.Status, code)
			}
		}

		begun := time.Now()
		s.turn <- struct{}{}
		text(t, s, "/waits", http.StatusServiceUnavailable)
		if d := time.Since(begun); d != waitTime {
			t.Errorf("waited %v, want %v", d, waitTime)
		}

		for range maxLists {
			s.lists <- struct{}{}
		}

		for _, path := range []string{"/", "/devices", "/api/v1/runs"} {
			text(t, s, path, http.StatusServiceUnavailable)
		}

		func() {
			defer func() { _ = recover() }()
			get(t, s, "/wrong")
		}()
		if got := s.counts.samples(); !strings.Contains(got, `code="500",method="get",handler="/wrong"`) {
			t.Errorf("got no 500 of the panic in\n%s", got)
		}
	})
}

// TestNotes: a scrape that is cut short notes nothing, and an error of lists is noted once.
func TestNotes(t *testing.T) {
	s, notes := serverOf(t, "good", "slow", "desk", "killed")
	for asked := 1; ; asked += 1 + asked/4 {
		inner, leave := context.WithCancel(t.Context())
		ctx := &leaving{inner, asked, leave}
		get(t, s, "/metrics", func(r *http.Request) { *r = *r.WithContext(ctx) })
		stayed := inner.Err() == nil
		leave()
		if stayed {
			break
		}
	}

	if len(*notes) > 0 {
		t.Errorf("got the notes %q, want none", *notes)
	}

	if err := os.Symlink("nowhere", s.app.Dirs.StoreFile()+"-alive"); err != nil {
		t.Fatal(err)
	}

	for range 3 {
		text(t, s, "/", http.StatusOK)
	}

	if len(*notes) != 1 {
		t.Errorf("got the notes %q, want one", *notes)
	}
}

// TestRefusedNames: a refusal proposes no name that a shell would run or that --host refuses.
func TestRefusedNames(t *testing.T) {
	s, _ := serverOf(t)
	for host, proposed := range map[string]bool{"runs.other": true, "[2001:db8::1]:80": true,
		"$(reboot)": false, "": false, "-x": false} {
		answer := get(t, s, "/", func(r *http.Request) { r.Host = host })
		body, err := io.ReadAll(answer.Body)
		if got := strings.Contains(string(body), "start it with --host "); err != nil || got != proposed {
			t.Errorf("%q: proposed %v, %v, want %v", host, got, err, proposed)
		}
	}
}
