package rest

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/routeros"
)

const user, password = "tester", "p4ss!word-ů"

// reach are a server's address and what it takes to be let in.
func reach(t *testing.T, s *httptest.Server) (Destination, Options) {
	t.Helper()
	d, err := Parse(strings.Replace(s.URL, "://", "://"+user+"@", 1))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Password: host.SecretFrom([]byte(password))}
	if s.Certificate() != nil {
		o.Certificate = fingerprint(s.Certificate().Raw)
	}
	return d, o
}

// quietly is a server over TLS that says nothing of handshakes which fail.
func quietly(t *testing.T, h http.Handler) *httptest.Server {
	s := quiet(h)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func quiet(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	return s
}

func TestParse(t *testing.T) {
	for text, want := range map[string]Destination{
		"https://admin@192.0.2.1":          {"https", "admin", "192.0.2.1", 0},
		"https://admin@router.lan:8443/":   {"https", "admin", "router.lan", 8443},
		"http://a.b@[2001:db8::1]:80":      {"http", "a.b", "2001:db8::1", 80},
		"https://u%20x@[fe80::1%25eth0]/":  {},
		"https://admin@[fe80::1%25eth0]":   {"https", "admin", "fe80::1%eth0", 0},
		"https://admin:" + password + "@h": {}, "https://admin:@h": {},
		"https://192.0.2.1":     {"https", "", "192.0.2.1", 0},
		"http://[2001:db8::1]/": {"http", "", "2001:db8::1", 0},
		"https://fw.lan:444":    {"https", "", "fw.lan", 444}, "https://@fw.lan": {}, "https://:444": {},
		"https://admin@": {}, "https://admin@h:0": {}, "https://admin@h:65536": {}, "ssh://admin@h": {},
		"https://admin@h/rest": {}, "https://admin@h?x": {}, "https://admin@h#x": {},
		"https://a\x1b@h": {}, "https://a@h\x1b": {}, "ftp://a@h": {}, "": {},
	} {
		got, err := Parse(text)
		if got != want || (err == nil) != (want != Destination{}) {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), password) || check.HintOf(err) == "") {
			t.Errorf("%q: got %v, want no password and a hint", text, err)
		}
		if err == nil {
			if again, err := Parse(got.String()); again != got {
				t.Errorf("%q: written %q, read again %+v, %v", text, got, again, err)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("https://admin@192.0.2.1:443")
	f.Add("https://admin:secret@[fe80::1%25eth0]:1/")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse(text)
		if err != nil {
			if check.Plain(err.Error()) != err.Error() {
				t.Errorf("%q: got %q, which is not plain", text, err)
			}
			return
		}
		if again, err := Parse(d.String()); err != nil || again != d {
			t.Errorf("%q: written %q, read again %+v, %v", text, d, again, err)
		}
	})
}

func TestParseCertificate(t *testing.T) {
	want := "SHA256:" + strings.Repeat("0a", 32)
	for text, ok := range map[string]bool{want: true, "SHA256:" + strings.Repeat("0A", 32): true,
		"SHA256:" + strings.TrimSuffix(strings.Repeat("0A:", 32), ":"): true, strings.Repeat("0a", 32): false,
		"SHA256:0a": false, "SHA256:" + strings.Repeat("zz", 32): false, "": false} {
		if got, err := ParseCertificate(text); ok != (err == nil) || ok && got != want {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
}

// TestCommands: a line comes to the console as it is, and what it prints comes back, as on a console.
func TestCommands(t *testing.T) {
	for name, s := range map[string]*httptest.Server{
		"https": httptest.NewTLSServer(routeros.New().REST(user, password, time.Minute)),
		"http":  httptest.NewServer(routeros.New().REST(user, password, time.Minute))} {
		t.Cleanup(s.Close)
		d, o := reach(t, s)
		c, err := Dial(t.Context(), d, o)
		if err != nil {
			t.Fatal(name, err)
		}
		h := c.Commands()
		out, err := host.Run(t.Context(), h, host.Command{Path: `:put "a <b> & \"c\""; :put "ů"; :put 2`})
		if err != nil || string(out) != "a <b> & \"c\"\nů\n2" {
			t.Errorf("%s: got %q, %v", name, out, err)
		}
		out, err = host.Run(t.Context(), h, host.Command{Path: ":put 1; /no/such/thing; :put 2"})
		if err != nil || string(out) != "1\nbad command name /no/such (line 1 column 68)" {
			t.Errorf("%s: a line that fails: got %q, %v", name, out, err)
		}
		for _, shell := range []host.Command{{Path: "sh", Args: []string{"-c", "id"}},
			{Path: "x", Env: []string{"A=1"}}, {Path: "x", Stdin: strings.NewReader("")}} {
			if _, err := h.Start(t.Context(), shell); !errors.Is(err, host.ErrUnsupported) {
				t.Errorf("%s: %v: got %v, want %v", name, shell, err, host.ErrUnsupported)
			}
		}
		_, readErr := h.ReadFile(t.Context(), "/etc/passwd")
		if !errors.Is(readErr, host.ErrUnsupported) ||
			!errors.Is(h.WriteFile(t.Context(), "x", nil), host.ErrUnsupported) {
			t.Errorf("%s: it has files", name)
		}
		if err := c.Close(); err != nil {
			t.Error(name, err)
		}
	}
}

// TestDialRefused: a router that is not trusted, or does not trust us, is refused with what to do; it is
// never shown the password before its certificate was.
func TestDialRefused(t *testing.T) {
	var asked atomic.Int32
	device := routeros.New().REST(user, password, time.Minute)
	router := quietly(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked.Add(1)
		device.ServeHTTP(w, q)
	}))
	v6 := quietly(t, http.NotFoundHandler()) // webfig of RouterOS 6
	for name, tt := range map[string]struct {
		server       *httptest.Server
		change       func(d *Destination, o *Options)
		said, hinted string
		asks         int32
	}{
		"password": {router, func(_ *Destination, o *Options) { o.Password = host.SecretFrom([]byte("wrong-one")) },
			"it does not take this user with this password", "CHOKEPOINT_ROUTER_PASSWORD", 1},
		"user": {router, func(d *Destination, _ *Options) { d.User = "other" },
			"it does not take this user", "policy rest-api", 1},
		"unknown certificate": {router, func(_ *Destination, o *Options) { o.Certificate = "" },
			"its certificate is not trusted", fingerprint(router.Certificate().Raw), 0},
		"another certificate": {router, func(_ *Destination, o *Options) { o.Certificate = fingerprint(nil) },
			"the certificate is another than the one that was named: it is " +
				fingerprint(router.Certificate().Raw), "find out why", 0},
		"no certificate's name": {router, func(_ *Destination, o *Options) { o.Certificate = "SHA256:no" },
			"is no fingerprint", "/certificate/print", 0},
		"no TLS": {httptest.NewServer(device), func(d *Destination, _ *Options) { d.Scheme = Secure },
			"HTTP response to HTTPS", "www-ssl", 0},
		"nobody": {router, func(d *Destination, _ *Options) { d.Port = closedPort(t) },
			"unreachable", "www-ssl", 0},
		"RouterOS 6": {v6, func(*Destination, *Options) {}, "404: it has no REST API", "7.17", 0},
	} {
		d, o := reach(t, tt.server)
		tt.change(&d, &o)
		asked.Store(0)
		_, err := Dial(t.Context(), d, o)
		if err == nil || !strings.Contains(err.Error(), tt.said) ||
			!strings.Contains(check.HintOf(err), tt.hinted) || asked.Load() != tt.asks {
			t.Errorf("%s: got %v (hint: %s) after %d requests, want %q, %q, %d", name, err, check.HintOf(err),
				asked.Load(), tt.said, tt.hinted, tt.asks)
		}
		for _, secret := range []string{password, "wrong-one"} {
			if strings.Contains(fmt.Sprint(err, check.HintOf(err)), secret) {
				t.Errorf("%s: it shows the password: %v", name, err)
			}
		}
	}
}

// closedPort is one that nobody listens on.
func closedPort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestHostileAnswers: whatever is answered is bounded, and shown plainly.
func TestHostileAnswers(t *testing.T) {
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"nothing":        {text(200, ""), "want {"},
		"no JSON":        {text(200, "<html>\x1b]0;title\a\x1b[31m"), "want {"},
		"binary":         {text(200, "\x00\xff\xfe"+strings.Repeat("\x80", 4000)), "want {"},
		"another object": {text(200, `{"return":"1"}`), "want {"},
		"a list":         {text(200, `["1"]`), "want {"},
		"deep":           {text(200, `{"ret":`+strings.Repeat("[", 1<<16)), "want {"},
		"another's":      {text(200, `{"ret":"chokepoint-x\r\nchokepoint-done"}`), "in place of an answer"},
		"a job":          {text(200, `{"ret":"*B546"}`), "*B546"},
		"an error": {text(400, `{"error":400,"message":"Bad Request","detail":"no such\u001b[2J command"}`),
			"the router answers 400: Bad Request: no such[2J command"},
		"a long error": {text(500, `{"detail":"`+strings.Repeat("y", 1<<20)+`"}`), "the router answers 500: yyy"},
		"time is up":   {text(400, `{"error":400,"message":"Bad Request","detail":"Session closed"}`), "Session closed"},
		"elsewhere": {func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, "https://192.0.2.9/rest/execute", http.StatusTemporaryRedirect)
		}, "the router answers 307"},
		"100 MB": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"ret":"`)
			for range 100 {
				if _, err := io.WriteString(w, strings.Repeat("x", 1<<20)); err != nil {
					return
				}
			}
			_, _ = io.WriteString(w, `"}`)
		}, "more than 32 MB"},
		"a header without end": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}, "unreachable"},
		"the end": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "unreachable"},
	} {
		s := quietly(t, tt.answer)
		d, o := reach(t, s)
		_, err := Dial(t.Context(), d, o)
		if err == nil || !strings.Contains(err.Error(), tt.want) || check.Plain(err.Error()) != err.Error() ||
			len(err.Error()) > 1000 {
			t.Errorf("%s: got %.1200q, want a plain error with %q", name, err, tt.want)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add(200, []byte(`{"ret":"tag\r\n1\r\n2"}`))
	f.Add(400, []byte(`{"error":400,"message":"Bad Request","detail":"Session closed"}`))
	f.Add(200, []byte(`{"ret":"input does not match any value of certificate (line 1)"}`))
	f.Fuzz(func(t *testing.T, status int, data []byte) {
		said, err := parseAnswer("tag", status, data)
		if err != nil && !errors.Is(err, errRefused) && said != "" {
			t.Errorf("got %q beside %v", said, err)
		}
		if err != nil && (check.Plain(err.Error()) != err.Error() || check.Plain(said) != said) {
			t.Errorf("got %q, %q, which are not plain", said, err)
		}
	})
}

// TestEnded: a script that takes longer than the router lets it is told so, and one that is given up is given
// time to end.
func TestEnded(t *testing.T) {
	s := quietly(t, routeros.New().REST(user, password, 100*time.Millisecond))
	d, o := reach(t, s)
	c, err := Dial(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = host.Run(t.Context(), c.Commands(), host.Command{Path: `:while (1 = 1) do={:delay 1s}`})
	if e, ok := errors.AsType[*Error](err); !ok || e.Detail != "Session closed" || check.HintOf(err) == "" {
		t.Errorf("got %v, want that the session was closed", err)
	}
	slow := quietly(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		time.Sleep(300 * time.Millisecond)
		if q.Context().Err() != nil {
			t.Error("it was given up at once")
		}
		_, _ = io.WriteString(w, `{"ret":"no tag"}`)
	}))
	d, o = reach(t, slow)
	if c, err = connection(d, o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	p, err := c.Commands().Start(ctx, host.Command{Path: ":put 1"})
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(p.Stdout())
	_, exit := p.Wait()
	if code, ok := host.ExitCode(exit); !ok || code != 1 || err != nil ||
		string(out) != "no tag (in place of an answer)" {
		t.Errorf("got %q, %v, %v, want the answer, which is none to this", out, err, exit)
	}
	if _, err := c.execute(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after that: got %v, want %v", err, context.DeadlineExceeded)
	}
	slow.CloseClientConnections()
}

// TestRepeat: a command is run again and again until it is killed, over failures now and then; after several
// in a row it ends.
func TestRepeat(t *testing.T) {
	var n atomic.Int32
	device := routeros.New().REST(user, password, time.Minute)
	s := quietly(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if i := n.Add(1); i == 3 || i > 6 {
			http.Error(w, "{}", http.StatusServiceUnavailable)
			return
		}
		device.ServeHTTP(w, q)
	}))
	d, o := reach(t, s)
	c, err := Dial(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := c.Commands().(host.Repeater)
	p, err := r.Repeat(t.Context(), host.Command{Path: ":put 7"}, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(p.Stdout())
	_, wrong := p.Wait()
	if string(out) != "7\n7\n7\n7\n" || err != nil || wrong == nil || n.Load() != 6+mostFailures {
		t.Errorf("got %q, %v, %v after %d requests", out, err, wrong, n.Load())
	}
	n.Store(0)
	if p, err = r.Repeat(t.Context(), host.Command{Path: ":put 7"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(p.Stdout(), make([]byte, 2)); err != nil {
		t.Error(err)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if _, err := p.Wait(); err != nil || n.Load() != 1 {
		t.Errorf("killed: got %v after %d requests", err, n.Load())
	}
	shell := host.Command{Path: "sh", Args: []string{"-c"}}
	if _, err := r.Repeat(t.Context(), shell, time.Hour); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("a shell's command: got %v, want %v", err, host.ErrUnsupported)
	}
}

// TestTLSVersion: nothing older than TLS 1.2 is spoken.
func TestTLSVersion(t *testing.T) {
	s := quiet(routeros.New().REST(user, password, time.Minute))
	s.TLS = &tls.Config{MaxVersion: tls.VersionTLS11}
	s.StartTLS()
	t.Cleanup(s.Close)
	d, o := reach(t, s)
	if _, err := Dial(t.Context(), d, o); !errors.Is(err, host.ErrUnreachable) {
		t.Errorf("got %v, want %v", err, host.ErrUnreachable)
	}
}

// TestByCurl: the router that is played here speaks to a client that is not ours as to ours, so that both
// have the same REST API in mind.
func TestByCurl(t *testing.T) {
	s := quietly(t, routeros.New().REST(user, password, time.Minute))
	certificate := filepath.Join(t.TempDir(), "certificate.pem")
	if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(who, body string) string {
		out, err := host.Run(t.Context(), host.Local(), host.Command{Path: "curl", Args: []string{"-sS",
			"-K", "-", "--cacert", certificate, "-H", "content-type: application/json", "--data", body,
			s.URL + "/rest/execute"}, Stdin: strings.NewReader(fmt.Sprintf("user = %q\n", who))})
		if errors.Is(err, host.ErrUnsupported) {
			t.Skip("skip: no curl here")
		}
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	known := user + ":" + password
	got := []string{ask(known, `{"script":":put 1; :put 2","as-string":""}`),
		ask(known, `{"script":":put 1"}`), ask(known, `{"script":"/x/y","as-string":true}`),
		ask(user+":wrong", `{"script":":put 1","as-string":""}`)}
	if diff := cmp.Diff(got, []string{`{"ret":"1\r\n2"}`, `{"ret":"*B546"}`,
		`{"ret":"bad command name /x (line 1 column 4)"}`,
		`{"detail":"","error":401,"message":"Unauthorized"}`}); diff != "" {
		t.Errorf("answers (-got +want):\n%s", diff)
	}
}

func TestPassword(t *testing.T) {
	told := func(s host.Secret) (text string) {
		_ = s.Use(func(b []byte) error { text = string(b); return nil })
		return text
	}
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ros, opn := Destination{User: user}, Destination{}
	os.Unsetenv(host.RouterPassword)
	for _, d := range []Destination{ros, opn} {
		if _, err := Password(d, ""); err == nil || check.HintOf(err) == "" {
			t.Errorf("not told: got %v, want an error with a hint", err)
		}
	}
	t.Setenv(host.RouterPassword, "")
	if s, err := Password(ros, ""); err != nil || told(s) != "" {
		t.Errorf("an empty one: got %v, want it", err)
	}
	t.Setenv(host.RouterPassword, "by environment")
	for path, want := range map[string]string{"": "by environment",
		file("own", "by file\r\nmore\n", 0o600): "by file", file("read-only", "x", 0o400): "x",
		file("empty", "\n", 0o600): "", file("group", "x", 0o640): "",
		file("others", "x", 0o604): "", file("long", strings.Repeat("x", 1<<20), 0o600): "", dir: "",
		filepath.Join(dir, "none"): ""} {
		s, err := Password(ros, path)
		if told(s) != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", path, told(s), err, want)
		}
	}
	for text, want := range map[string]string{"key=a/b+c=\nsecret=d/e==\n": "a/b+c=:d/e==",
		"secret=s\r\nkey=k\r\n": "k:s", "k:s": "k:s", "k:s\nmore:text\n": "k:s", "key=k": "", "secret=s": "",
		"key=\nsecret=s\n": "", "alone": "", ":s": "", "": ""} {
		t.Setenv(host.RouterPassword, text)
		for _, path := range []string{"", file("apikey.txt", text, 0o600)} {
			s, err := Password(opn, path)
			if told(s) != want || (err == nil) != (want != "") {
				t.Errorf("API key %q: got %q, %v, want %q", text, told(s), err, want)
			}
			if err != nil && (check.HintOf(err) == "" || text != "" && strings.Contains(err.Error(), text)) {
				t.Errorf("API key %q: got %v, want a hint, and the key not shown", text, err)
			}
		}
	}
	t.Setenv(host.RouterPassword, "by environment")
	out, err := host.Run(t.Context(), host.Local(), host.Command{Path: "env"})
	if err != nil || strings.Contains(string(out), "by environment") {
		t.Errorf("a program that is started sees it: %v", err)
	}
}
