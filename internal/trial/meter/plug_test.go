package meter

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Answers composed in the documented forms: shelly-api-docs.shelly.cloud/gen1/#shelly and
// #shelly-plug-plugs-meter-0, …/gen2/ComponentsAndServices/Shelly and Switch#status, and
// tasmota.github.io/docs/JSON-Status-Responses with the ENERGY object of …/docs/Energy-Saving.
const (
	gen1Shelly = `{"type":"SHPLG-S","mac":"5ECF7F1632E8","auth":false,"fw":"20230913-113421/v1.14.0"}`
	gen1Meter  = `{"power":41.27,"overpower":0.00,"is_valid":true,"timestamp":1600000000,` +
		`"counters":[41.1,41.2,41.0],"total":1234}`
	gen2Shelly = `{"name":null,"id":"shellyplusplugs-a8032ab12345","mac":"A8032AB12345","model":"SNPL-00112EU",` +
		`"gen":2,"fw_id":"20230913-114010/1.0.3","ver":"1.0.3","app":"PlusPlugS","auth_en":true}`
	gen2Switch = `{"id":0,"source":"init","output":true,"apower":6.8,"voltage":230.4,"current":0.041,` +
		`"aenergy":{"total":11.679,"by_minute":[0,0,0],"minute_ts":1656356400},` +
		`"temperature":{"tC":53.3,"tF":127.9}}`
	tasmotaStatus = `{"StatusSNS":{"Time":"2026-11-24T10:11:26","ENERGY":{"TotalStartTime":` +
		`"2026-05-12T10:56:31","Total":0.003,"Yesterday":0.003,"Today":0.000,"Power":%s,"ApparentPower":15,` +
		`"ReactivePower":9,"Factor":0.81,"Voltage":236,"Current":0.064}}}`
	tasmotaRefuses = `{"WARNING":"Need user=<username>&password=<password>"}`
)

// serve has a plug answer, and returns it with its host and port.
func serve(t *testing.T, answer http.HandlerFunc) (s *httptest.Server, server string) {
	t.Helper()
	s = httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s, strings.TrimPrefix(s.URL, "http://")
}

// ask reads a plug once. at is its address with HOST in the place of its host.
func ask(t *testing.T, at, server string) (string, error) {
	t.Helper()
	m := open(t, strings.Replace(at, "HOST", server, 1))
	return newPlug(m.spec, m.password).read(t.Context())
}

func TestPlugs(t *testing.T) {
	const cm = "/cm?cmnd=Status+8"
	tests := []struct {
		name, at string
		answers  map[string]string
		want     string // or what the error says
		fails    bool
	}{
		{"Shelly of the first generation", "shelly://HOST",
			map[string]string{"/shelly": gen1Shelly, "/meter/0": gen1Meter}, "41.27", false},
		{"its second meter", "shelly://HOST/1",
			map[string]string{"/shelly": gen1Shelly, "/meter/1": `{"power":3,"is_valid":true}`}, "3", false},
		{"a meter that is not valid", "shelly://HOST", map[string]string{"/shelly": gen1Shelly,
			"/meter/0": `{"power":41.27,"is_valid":false}`}, "not valid", true},
		{"Shelly of the second generation", "shelly://HOST", map[string]string{"/shelly": gen2Shelly,
			"/rpc/Switch.GetStatus?id=0": gen2Switch}, "6.8", false},
		{"a Shelly that does not measure", "shelly://HOST", map[string]string{"/shelly": gen2Shelly,
			"/rpc/Switch.GetStatus?id=0": `{"id":0,"output":true}`}, "no field apower", true},
		{"no such socket", "shelly://HOST/3", map[string]string{"/shelly": gen2Shelly}, "404 Not Found", true},
		{"no Shelly", "shelly://HOST", map[string]string{"/shelly": `{"device":"toaster"}`}, "no Shelly", true},
		{"Tasmota", "tasmota://HOST", map[string]string{cm: fmt.Sprintf(tasmotaStatus, "12")}, "12", false},
		{"Tasmota with several sockets", "tasmota://HOST/1",
			map[string]string{cm: fmt.Sprintf(tasmotaStatus, "[12,7.5]")}, "7.5", false},
		{"a Tasmota that measures something else", "tasmota://HOST", map[string]string{
			cm: `{"StatusSNS":{"Time":"2018.02.15 01:00:50","Switch1":"OFF"}}`}, "no field StatusSNS.ENERGY", true},
		{"Tasmota with a password", "tasmota://HOST", map[string]string{cm: tasmotaRefuses},
			"wants a password", true},
		{"no JSON", "tasmota://HOST", map[string]string{cm: "<html>\x1b[31mhi"}, `"<html>[31mhi" is no JSON`, true},
		{"megabytes", "tasmota://HOST", map[string]string{cm: strings.Repeat("1", 4<<20)}, "64 KiB", true},
		{"a deep nest", "tasmota://HOST", map[string]string{cm: strings.Repeat("[", 60000)}, "is no JSON", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if text, ok := test.answers[r.URL.RequestURI()]; ok {
					fmt.Fprint(w, text)
				} else {
					http.NotFound(w, r)
				}
			})
			got, err := ask(t, test.at, server)
			if err != nil {
				got = err.Error()
			}

			if (err != nil) != test.fails || !test.fails && got != test.want ||
				!strings.Contains(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

// TestPlugPasswords: the password reaches the plug as it wants it, and nothing that is shown.
func TestPlugPasswords(t *testing.T) {
	const secret = "plug-s3cret&more"
	t.Setenv("PLUG_PASSWORD", secret)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(secret+"\nsecond line\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	hash := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	field := func(header, name string) string {
		m := regexp.MustCompile(name + `="?([^",]*)"?`).FindStringSubmatch(header)
		if m == nil {
			return ""
		}
		return m[1]
	}
	digest := func(w http.ResponseWriter, r *http.Request) bool { // RFC 7616, section 3.4.1
		h := r.Header.Get("Authorization")
		want := hash(hash("admin:shellyplusplugs-a8032ab12345:"+secret) + ":60dc2c69:00000001:" +
			field(h, "cnonce") + ":auth:" + hash("GET:"+r.URL.RequestURI()))
		if strings.HasPrefix(h, "Digest ") && field(h, "uri") == r.URL.RequestURI() &&
			field(h, " nonce") == "60dc2c69" && len(field(h, "cnonce")) > 8 && field(h, "response") == want {
			return true
		}

		w.Header().Set("WWW-Authenticate",
			`Digest qop="auth", realm="shellyplusplugs-a8032ab12345", nonce="60dc2c69", algorithm=SHA-256`)
		w.WriteHeader(http.StatusUnauthorized)
		return false
	}
	s, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch user, password, _ := r.BasicAuth(); {
		case r.URL.Path == "/cm" && r.URL.Query().Get("password") == secret &&
			r.URL.Query().Get("user") == "admin":
			fmt.Fprintf(w, tasmotaStatus, "5")
		case r.URL.Path == "/cm":
			fmt.Fprint(w, tasmotaRefuses)
		case r.URL.Path == "/shelly":
			fmt.Fprint(w, gen2Shelly)
		case r.URL.Query().Get("id") == "0" && digest(w, r):
			fmt.Fprint(w, gen2Switch)
		case r.URL.Query().Get("id") == "1" && user == "me" && password == secret:
			fmt.Fprint(w, `{"apower":7}`)
		case r.URL.Query().Get("id") == "1":
			w.Header().Set("WWW-Authenticate", `Basic realm="plug"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	for at, want := range map[string]string{
		"tasmota://HOST?password_env=PLUG_PASSWORD":     "5",
		"tasmota://HOST?password_file=" + file:          "5",
		"shelly://HOST?password_env=PLUG_PASSWORD":      "6.8",
		"shelly://me@HOST/1?password_env=PLUG_PASSWORD": "7",
	} {
		if got, err := ask(t, at, server); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %s", at, got, err, want)
		}
	}

	for _, at := range []string{"tasmota://HOST", "shelly://HOST", "shelly://HOST/1",
		"shelly://you@HOST/1?password_env=PLUG_PASSWORD"} {
		got, err := ask(t, at, server)
		if err == nil || !strings.Contains(err.Error(), "wants a password") ||
			strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %q, %v, want that it wants a password", at, got, err)
		}
	}

	s.Close()
	_, err := ask(t, "tasmota://HOST?password_env=PLUG_PASSWORD", server)
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a plug that is gone: got %v, want an error without the password", err)
	}
}

// TestPlugDoesNotFollow: a plug that refers to somebody else gets nobody else the password.
func TestPlugDoesNotFollow(t *testing.T) {
	t.Setenv("PLUG_PASSWORD", "secret")
	asked := false
	other, _ := serve(t, func(http.ResponseWriter, *http.Request) { asked = true })
	_, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.RequestURI(), http.StatusFound)
	})
	_, err := ask(t, "tasmota://HOST?password_env=PLUG_PASSWORD", server)
	if err == nil || !strings.Contains(err.Error(), "302") || asked {
		t.Errorf("got %v, the other was asked: %v, want that it answers 302", err, asked)
	}
}

// TestPollJoinsReadingsInTime: readings have the times of the controller's clock; once the plug is gone there
// is none, and the reason.
func TestPollJoinsReadingsInTime(t *testing.T) {
	t.Parallel()
	answers := make(chan string, 2)
	answers <- fmt.Sprintf(tasmotaStatus, "4.25")
	answers <- fmt.Sprintf(tasmotaStatus, "-1")
	s, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case text := <-answers:
			fmt.Fprint(w, text)
		case <-r.Context().Done(): // it hangs
		}
	})
	m := open(t, "tasmota://"+server)
	from := run(t, m)
	if err := m.Ready(t.Context(), 5*time.Second); err != nil {
		t.Fatal(err)
	}

	got, failing := m.Samples(from, host.Monotonic())
	if failing != nil || got.Table == nil || len(got.Table.T) != 1 || got.Table.V[0][0] != 4.25 ||
		got.Table.T[0] < from || got.Table.T[0] > host.Monotonic() ||
		!strings.HasSuffix(got.Metrics[0].Doc, "asked once a second, in steps of 0.01 W") {
		t.Errorf("the first reading: got %+v, %v, want 4.25 W after %d", got, failing, from)
	}

	await(t, m, from, "no answer within 2s")
	later := host.Monotonic()
	s.CloseClientConnections()
	if got := await(t, m, later, ""); got.Table != nil || !strings.Contains(got.Unavailable, "no reading") {
		t.Errorf("later: got %+v, want no reading", got)
	}
}

// run reads a meter until the test ends, and returns when it began.
func run(t *testing.T, m *Meter) (from int64) {
	t.Helper()
	from = host.Monotonic()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("the meter is still read, want it to end with its context")
		}
	})
	return from
}

// await waits until the meter fails for a reason.
func await(t *testing.T, m *Meter, from int64, why string) record.Samples {
	t.Helper()
	var failing error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var s record.Samples
		s, failing = m.Samples(from, host.Monotonic())
		if failing != nil && strings.Contains(failing.Error(), why) {
			return s
		}
	}

	t.Fatalf("failure of the meter: got %v, want %q", failing, why)
	return record.Samples{}
}

// TestPlugThatTrickles is cut off by the time that an answer may take.
func TestPlugThatTrickles(t *testing.T) {
	t.Parallel()
	_, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			w.(http.Flusher).Flush()
			time.Sleep(50 * time.Millisecond)
		}
	})
	m := open(t, "shelly://"+server)
	await(t, m, run(t, m), "no answer within 2s")
}
