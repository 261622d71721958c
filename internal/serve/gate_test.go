package serve

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

const token = "planted-token-0123456789"

// serverWithToken returns a server of a sample run whose token is known.
func serverWithToken(t *testing.T) (*Server, *[]string) {
	t.Helper()
	s, notes := serverOf(t, "good")
	s.openGate(newGate(host.SecretFrom([]byte(token)), false))
	return s, notes
}

func bodyOf(t *testing.T, answer *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// post returns the answer to a form, or to JSON below /api/.
func post(t *testing.T, s *Server, path, body string, change ...func(*http.Request)) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "http://localhost:8080"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, f := range change {
		f(r)
	}

	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// fromPage makes a request one of a page of the server.
func fromPage(cookie *http.Cookie) func(*http.Request) {
	return func(r *http.Request) {
		r.AddCookie(cookie)
		r.Header.Set("Origin", "http://localhost:8080")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
}

// signedIn returns the cookie of a new session.
func signedIn(t *testing.T, s *Server) *http.Cookie {
	t.Helper()
	answer := post(t, s, "/login", "token="+token)
	cookies := answer.Cookies()
	if answer.StatusCode != http.StatusSeeOther || len(cookies) != 1 {
		t.Fatalf("got %s, %v", answer.Status, cookies)
	}
	return cookies[0]
}

var keyField = regexp.MustCompile(`name="` + formKey + `" value="([^"]+)"`)

// keyIn returns the field that the forms of a page send with each action.
func keyIn(t *testing.T, page string) string {
	t.Helper()
	m := keyField.FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no form has a key:\n%s", shown(page))
	}
	return formKey + "=" + m[1]
}

// TestSession: the right token opens a session with a cookie that scripts and other sites do not get, until
// it is closed.
func TestSession(t *testing.T) {
	s, _ := serverWithToken(t)
	addBeds(t, s, workingBed("lab-1"))
	page := text(t, s, "/beds", http.StatusOK)
	if strings.Contains(page, "<form") || !strings.Contains(page, `<a href="/login">`) {
		t.Errorf("without a session: got forms, or no link to sign in:\n%s", shown(page))
	}

	cookie := signedIn(t, s)
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" ||
		cookie.Secure || cookie.Domain != "" || strings.Contains(cookie.Value, token) ||
		len(cookie.Value) < 40 {
		t.Errorf("got the cookie %v", cookie)
	}

	login := bodyOf(t, get(t, s, "/login", func(r *http.Request) { r.AddCookie(cookie) }))
	answer := post(t, s, "/logout", keyIn(t, login), fromPage(cookie))
	gone := answer.Cookies()
	if answer.StatusCode != http.StatusSeeOther || len(gone) != 1 || gone[0].MaxAge >= 0 {
		t.Errorf("sign out: got %s, %v", answer.Status, gone)
	}

	answer = post(t, s, "/beds/lab-1/start", "plan=quick&"+keyIn(t, login), fromPage(cookie))
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("after the session: got %s", answer.Status)
	}

	secure := newGate(host.SecretFrom([]byte(token)), true).open()
	if !secure.Secure || !strings.HasPrefix(secure.Name, "__Host-") {
		t.Errorf("behind HTTPS: got the cookie %v", secure)
	}

	for range maxSessions {
		signedIn(t, s)
	}

	if n := len(s.gate.sessions); n != maxSessions {
		t.Errorf("%d sessions are open, want at most %d", n, maxSessions)
	}
}

// TestSessionEnds: a session is over some hours after it was opened.
func TestSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(host.SecretFrom([]byte(token)), false)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.AddCookie(g.open())
		time.Sleep(sessionTime)
		if _, ok := g.session(r); !ok {
			t.Error("it ends too early")
		}

		time.Sleep(time.Second)
		if _, ok := g.session(r); ok || len(g.sessions) > 0 {
			t.Error("it does not end")
		}
	})
}

// TestForgedForms: a form does nothing unless a page of the session sent it.
func TestForgedForms(t *testing.T) {
	s, _ := serverWithToken(t)
	addBeds(t, s, workingBed("lab-1"))
	cookie := signedIn(t, s)
	other := signedIn(t, s)
	key := keyIn(t, bodyOf(t, get(t, s, "/beds", func(r *http.Request) { r.AddCookie(cookie) })))
	with := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	without := func(name string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Del(name) }
	}
	for name, forged := range map[string]struct {
		key    string
		change []func(*http.Request)
	}{
		"no key":                {"", nil},
		"another key":           {formKey + "=x", nil},
		"key of another":        {key, []func(*http.Request){without("Cookie"), fromPage(other)}},
		"no session":            {key, []func(*http.Request){without("Cookie")}},
		"another site":          {key, []func(*http.Request){with("Sec-Fetch-Site", "cross-site")}},
		"another port":          {key, []func(*http.Request){with("Sec-Fetch-Site", "same-site")}},
		"another origin":        {key, []func(*http.Request){without("Sec-Fetch-Site"), with("Origin", "http://evil.example")}},
		"origin of a port":      {key, []func(*http.Request){without("Sec-Fetch-Site"), with("Origin", "http://localhost:9")}},
		"no origin":             {key, []func(*http.Request){without("Sec-Fetch-Site"), with("Origin", "null")}},
		"no browser":            {key, []func(*http.Request){without("Sec-Fetch-Site"), without("Origin")}},
		"another name (rebind)": {key, []func(*http.Request){func(r *http.Request) { r.Host = "evil.example" }}},
		"token instead":         {"token=" + token, nil},
		"key in the address":    {"", []func(*http.Request){func(r *http.Request) { r.URL.RawQuery = key }}},
	} {
		change := append([]func(*http.Request){fromPage(cookie)}, forged.change...)
		for _, path := range []string{"/beds/lab-1/start", "/logout"} {
			answer := post(t, s, path, "plan=quick&"+forged.key, change...)
			if answer.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s: got %s, want 403", name, path, answer.Status)
			}
		}
	}

	answer := post(t, s, "/login", "token="+token, with("Sec-Fetch-Site", "cross-site"),
		with("Sec-Fetch-Mode", "navigate"), with("Sec-Fetch-Dest", "document"))
	if answer.StatusCode != http.StatusForbidden || len(answer.Cookies()) > 0 {
		t.Errorf("another site signs in: got %s", answer.Status)
	}

	requests, err := s.app.Dirs.BedRequests(t.Context(), "lab-1")
	if err != nil || len(requests) > 0 {
		t.Errorf("got the requests %v, %v, want none", requests, err)
	}
}

// TestWrongToken: no wrong token acts, further ones from an address are refused for a while, and the right
// token acts all the time.
func TestWrongToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, notes := serverWithToken(t)
		addBeds(t, s, workingBed("lab-1"))
		const path, body = "/api/v1/beds/lab-1/requests", `{"kind": "start", "plan": "quick"}`
		for header, code := range map[string]int{
			"": 401, "Basic " + token: 401, "Bearer": 403, "Bearer x": 403, "Bearer " + token[:20]: 403, "Bearer " + token + "0": 403, "bearer " + token: 202,
		} {
			answer := post(t, s, path, body, func(r *http.Request) {
				r.Header.Set("Authorization", header)
				r.RemoteAddr = "192.0.2.9:1"
			})
			if answer.StatusCode != code {
				t.Errorf("%q: got %s, want %d", header, answer.Status, code)
			}
		}

		for i := range maxWrong + 1 {
			answer := post(t, s, "/login", fmt.Sprint("token=wrong-token-number-", i))
			page := bodyOf(t, answer)
			want := http.StatusForbidden
			if i == maxWrong {
				want = http.StatusTooManyRequests
			}

			if answer.StatusCode != want || len(answer.Cookies()) > 0 ||
				strings.Contains(page, "wrong-token") {
				t.Errorf("attempt %d: got %s\n%s", i, answer.Status, shown(page))
			}
		}

		if answer := post(t, s, path, body, bearer(token)); answer.StatusCode != http.StatusAccepted {
			t.Errorf("the right token after wrong ones: got %s", answer.Status)
		}

		elsewhere := func(r *http.Request) { r.RemoteAddr = "[2001:db8::1]:5" }
		answer := post(t, s, path, body, bearer("x"), elsewhere)
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("a wrong token from elsewhere: got %s", answer.Status)
		}

		time.Sleep(wrongTime + time.Second)
		if answer := post(t, s, path, body, bearer("x")); answer.StatusCode != http.StatusForbidden {
			t.Errorf("a wrong token, later: got %s", answer.Status)
		}

		for i := range maxAddresses + 1 {
			post(t, s, path, body, bearer("x"), func(r *http.Request) {
				r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1", i/256, i%256)
			})
		}

		if n := len(s.gate.wrong); n != maxAddresses {
			t.Errorf("%d addresses are kept, want %d", n, maxAddresses)
		}

		for _, note := range *notes {
			if strings.Contains(note, "wrong-token") || strings.Contains(note, token) {
				t.Errorf("a token is noted: %s", note)
			}
		}
	})
}

// TestTokenStaysSecret: no page, answer or value of the server has the token, not even for a signed-in
// browser.
func TestTokenStaysSecret(t *testing.T) {
	s, notes := serverWithToken(t)
	addBeds(t, s, workingBed("lab-1"))
	cookie := signedIn(t, s)
	for _, path := range append(pages(), "/beds", "/alarms", "/login", "/api/v1/beds", "/metrics",
		"/login?token="+token) {
		answer := get(t, s, path, func(r *http.Request) { r.AddCookie(cookie) })
		body := bodyOf(t, answer)
		if strings.Contains(body+fmt.Sprint(answer.Header), token) || strings.Contains(body, cookie.Value) {
			t.Errorf("%s: got the token or the cookie:\n%s", path, shown(body))
		}
	}

	if text := fmt.Sprintf("%+v %#v", s.gate, *notes); strings.Contains(text, token) {
		t.Error("the server keeps or notes the token")
	}
}

// TestReadOnly: without a token nothing is accepted, not even with one.
func TestReadOnly(t *testing.T) {
	s, _ := serverOf(t, "good")
	addBeds(t, s, workingBed("lab-1"))
	for _, path := range []string{"/login", "/logout", "/beds/lab-1/start", "/api/v1/beds/lab-1/requests"} {
		answer := post(t, s, path, "token=&plan=quick", bearer(""))
		if answer.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: got %s, want 405", path, answer.Status)
		}
	}

	text(t, s, "/login", http.StatusNotFound)
	change(t, s, func(st *store.Store) error {
		requests, err := st.BedRequests(t.Context(), "lab-1")
		if len(requests) > 0 {
			t.Errorf("got the requests %v", requests)
		}
		return err
	})
}
