package rest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// opnsense answers a key's questions as OPNsense does (core, Base/ApiControllerBase.php), by their paths.
func opnsense(answers map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		key, secret, _ := q.BasicAuth()
		answer, known := answers[strings.TrimPrefix(q.URL.Path, "/api/")]
		switch {
		case q.Method != http.MethodGet || q.Header.Get("Content-Type") != "":
			w.WriteHeader(http.StatusBadRequest)
		case key != "k/e+y=" || secret != password:
			w.WriteHeader(http.StatusUnauthorized)
			answer = `{"status":401,"message":"Authentication Failed"}`
		case answer == "403":
			w.WriteHeader(http.StatusForbidden)
			answer = `{"status":403,"message":"Forbidden"}`
		case !known:
			w.WriteHeader(http.StatusNotFound)
			answer = `{"errorMessage":"Endpoint not found","errorTitle":"An API exception occurred"}`
		}
		_, _ = io.WriteString(w, answer)
	})
}

const systemInformation = "diagnostics/system/system_information"

func TestOPNsense(t *testing.T) {
	s := quietly(t, opnsense(map[string]string{systemInformation: "{\n \"versions\": [\"OPNsense 26.1\"]\n}",
		"a/b": `[1, "x  y"]`, "a/forbidden": "403", "a/page": "<html>",
		"a/empty": "", "a/b/old_er_name/x_y": "403", "a/b/oldErName/x_y": "7",
		"a/threads": `{"headers":["x"],"details":[{"C":"0","PID":"1","WCPU":"0.00%","COMMAND":"[kernel{a}]"},` +
			`{"C":"1","WCPU":"0.00%","COMMAND":"[idle{idle: cpu1}]"},` +
			`{"C":"1","WCPU":"0.00%","COMMAND":"[kernel{if_io_tqg_1}]"},` +
			`{"USERNAME":"me","WCPU":"5.00%","COMMAND":"/bin/x --password=p"}]}`,
		"a/owner": `{"rows":[{"if":"wg0","public-key":"k","endpoint":"192.0.2.1:5","rx":1e3}],"name":{"a":1}}`}))
	d, o := reach(t, s)
	d.User = ""
	o.Password = host.SecretFrom([]byte("k/e+y=:" + password))
	c, err := Dial(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if strings.Contains(c.String(), "@") {
		t.Errorf("it is called %s, want no user", c)
	}
	h := c.Commands()
	for line, want := range map[string]string{"a/b": `[[1,"x  y"]]`,
		"a/b a/forbidden a/b":         `[[1,"x  y"],null,[1,"x  y"]]`,
		"a/none " + systemInformation: `[null,{"versions":["OPNsense 26.1"]}]`,
		"a/owner":                     `[{"rows":[{"if":"wg0","rx":1e3}]}]`,
		"a/empty a/b":                 `[null,[1,"x  y"]]`,
		"a/b/old_er_name/x_y":         "[7]",
		"a/threads": `[{"details":[{"C":"1","COMMAND":"[idle{idle: cpu1}]","WCPU":"0.00%"},` +
			`{"C":"1","COMMAND":"[kernel{if_io_tqg_1}]","WCPU":"0.00%"},` +
			`{"COMMAND":"","WCPU":"5.00%"}]}]`,
		"a/none a/forbidden": "[null,null]"} {
		out, err := host.Run(t.Context(), h, host.Command{Path: line})
		if err != nil || string(out) != want {
			t.Errorf("%s: got %q, %v, want %q", line, out, err, want)
		}
	}
	for line, want := range map[string]string{"a/none": "404", "a/forbidden": "403", "a/page": "want JSON",
		"a/b a/page": "want JSON"} {
		out, err := host.Run(t.Context(), h, host.Command{Path: line})
		if err == nil || !strings.Contains(err.Error(), want) || check.HintOf(err) == "" {
			t.Errorf("%s: got %q, %v, want %q and a hint", line, out, err, want)
		}
	}
	if _, err := h.Start(t.Context(), host.Command{Path: "sh", Args: []string{"-c", "id"}}); !errors.Is(err,
		host.ErrUnsupported) {
		t.Errorf("a program: got %v, want %v", err, host.ErrUnsupported)
	}
	p, err := h.(host.Repeater).Repeat(t.Context(), host.Command{Path: "a/b"}, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat(`[[1,"x  y"]]`+"\n", 2)
	lines := make([]byte, len(want))
	if _, err := io.ReadFull(p.Stdout(), lines); err != nil || string(lines) != want {
		t.Errorf("repeated: got %q, %v", lines, err)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Errorf("killed: got %v", err)
	}
}

// TestOPNsenseRefused: a wrong key, a router of another kind and one that refers elsewhere are told with what
// to do, and the key is not.
func TestOPNsenseRefused(t *testing.T) {
	elsewhere := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Location", "/?url="+q.URL.Path)
		w.WriteHeader(http.StatusFound)
	})
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>")
	})
	for name, tt := range map[string]struct {
		handler   http.Handler
		key, want string
		hinted    bool
	}{
		"key":       {opnsense(nil), "k/e+y=:wrong", "does not take this API key", true},
		"none":      {http.NotFoundHandler(), "k:s3cret", "404", true},
		"page":      {page, "k:s3cret", "want JSON", true},
		"elsewhere": {elsewhere, "k:s3cret", "302", false},
	} {
		s := quiet(tt.handler)
		s.StartTLS()
		d, o := reach(t, s)
		d.User, o.Password = "", host.SecretFrom([]byte(tt.key))
		_, err := Dial(t.Context(), d, o)
		s.Close()
		if err == nil || !strings.Contains(err.Error(), tt.want) || tt.hinted != (check.HintOf(err) != "") {
			t.Errorf("%s: got %v, hint %q, want %q", name, err, check.HintOf(err), tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v tells the secret", name, err)
		}
	}
	s := httptest.NewTLSServer(opnsense(nil))
	defer s.Close()
	d, o := reach(t, s)
	d.User, o.Certificate = "", ""
	_, err := Dial(t.Context(), d, o)
	if err == nil || !strings.Contains(check.HintOf(err), "/lighttpd_webgui/cert.pem") {
		t.Errorf("a certificate that is not known: got %v, hint %q", err, check.HintOf(err))
	}
}
