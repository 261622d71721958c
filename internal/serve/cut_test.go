package serve

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

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
		s, _ := newServer(t, "before")
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

// TestDamagedTrial: a run with a damaged trial is shown without it, and no page says where the store is.
func TestDamagedTrial(t *testing.T) {
	s, _ := newServer(t, "before")
	id := labtest.Samples["before"].ID
	db, err := sql.Open("sqlite", "file:"+s.app.Dirs.StoreFile())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, err = db.ExecContext(t.Context(), `DROP TRIGGER trials_fixed;
		UPDATE trials SET body = x'00' WHERE rowid = (SELECT min(rowid) FROM trials)`)
	if err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{"/runs/" + id, "/api/v1/runs/" + id} {
		body := text(t, s, path, http.StatusOK)
		if !strings.Contains(body, "1 trial of 16 cannot be read from the store") ||
			strings.Contains(body, "planted-dir") {
			t.Errorf("%s: got no caveat, or the place of the store:\n%s", path, shown(body))
		}
	}
}
