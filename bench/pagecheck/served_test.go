package pagecheck

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/serve"
)

const token = "planted-token-0123456789"

// testbed is in the middle of a job, with long texts.
func testbed(name string) store.Bed {
	now := time.Now()
	const plan = "wireguard-and-nat-of-every-board-each-night"
	return store.Bed{
		Name:    name,
		Host:    "rack-3-unit-17.lab.example.net",
		Version: "v1.2.3",
		Lab:     "board.yaml",
		Plans:   []string{"quick", plan},
		Schedules: []store.BedSchedule{
			{Name: "nightly", Cron: "0 2 * * 1-5", Plans: []string{plan}, Next: now},
		},
		Triggers: []store.BedTrigger{
			{Name: "images", Kind: "url", Plans: []string{plan}, Checked: now, Seen: "OpenWrt 24.10.1 r28597-0425664679",
				Failure: "get https://images.example.net/latest: status 502"},
		},
		Job: &store.BedJob{ID: "20261201-020000-aaaa", Why: "schedule nightly", Plans: []string{plan},
			Trials: 2, Total: 12, Step: "measure", Status: store.BedRunning, Run: "20261201-020001-bbbb",
			Started: now, Ready: now.Add(time.Hour)},
		Ended: []store.BedJob{{ID: "20261130-020000-aaaa", Why: "trigger images", Plans: []string{plan},
			Status: store.BedFailed, Reason: "the board did not come back after it was flashed", Ended: now}},
		Alarms: []store.BedAlarm{{At: now, Job: "20261129-020000-aaaa", Kind: "slower", Firmware: "24.10.2",
			Text:   "wireguard, streams 1, down: 4 % slower than 24.10.1",
			Unsent: "the mail server does not answer"}},
		Seen: now,
	}
}

// TestServed looks at the pages of testbeds of a running server, with and without a session, sees progress
// and the end of a job without loading a page, sees that a page is not live, signs in with a wrong and the
// right token, and starts a plan; the stage screenshots names axe-core.
func TestServed(t *testing.T) {
	source := readAxe(t)
	if source == "" {
		t.Skip("skip: -axe names no axe.min.js, the stage screenshots has one")
	}

	dirs := app.Dirs{Data: filepath.Join(t.TempDir(), "data"), State: t.TempDir()}
	st, err := store.Open(t.Context(), dirs.StoreFile())
	must(t, err)
	defer st.Close()
	working, silent := testbed("lab-1"), testbed("lab-2")
	silent.Job = nil
	silent.Schedules[0].By = time.Now().Add(-time.Hour)
	must(t, st.SetBed(t.Context(), working))
	must(t, st.SetBed(t.Context(), silent))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 4*time.Minute)
	defer stop()
	ended := make(chan error, 1)
	serving, end := context.WithCancel(ctx)
	options := serve.Options{Token: host.SecretFrom([]byte(token))}
	go func() { ended <- serve.New(&app.App{Dirs: dirs}, options).Serve(serving, ln) }()
	address := "http://" + ln.Addr().String()
	b := startBrowser(ctx, t, cmp.Or(os.Getenv("CHROMIUM"), "chromium"))
	look := func(pages ...string) {
		for _, page := range pages {
			name := strings.Trim(strings.NewReplacer("/", "-", "?", "-", "=", "-").Replace(page), "-")
			c := check{pictures: filepath.Join(cmp.Or(*pictures, t.TempDir()), "served-"+name), axe: source}
			must(t, os.MkdirAll(c.pictures, 0o755))
			at := address + strings.TrimSuffix(page, "?signed")
			for _, width := range []int{390, 1280} {
				for _, theme := range []string{"light", "dark"} {
					for _, fault := range c.look(b, at, width, theme, nil) {
						t.Errorf("%s: %s", page, fault)
					}
				}
			}
		}
	}
	look("/beds", "/alarms", "/login")

	const bar = `document.querySelector("[data-progress=lab-1] progress").value`
	b.show(address+"/beds", 1280, "light")
	b.until(bar+" === 2", true)
	working.Job.Trials = 5
	must(t, st.SetBed(ctx, working))
	b.loaded = false
	b.until(bar+" === 5", true)
	if b.loaded {
		t.Error("progress loads the page again")
	}

	working.Job = nil
	must(t, st.SetBed(ctx, working))
	b.wait() // the page itself loads again
	b.until(`document.querySelector("[data-progress=lab-1]").textContent.includes("idle")`, true)

	b.show(address+"/login", 1280, "light")
	var others []*http.Response
	for len(others) < 32 { // all that the server permits
		answer, err := http.Get(address + "/events")
		must(t, err)
		if answer.StatusCode == http.StatusOK {
			others = append(others, answer)
		} else { // the last page still has one
			must(t, answer.Body.Close())
		}
	}

	b.show(address+"/beds", 1280, "light")
	b.until(`document.querySelector("[data-progress=lab-1]").textContent.includes("not live")`, true)
	for _, answer := range others {
		must(t, answer.Body.Close())
	}

	signIn := func(token string) (text string) {
		b.show(address+"/login", 1280, "light")
		b.submit(`document.querySelector("[name=token]").value = "` + token + `"`)
		b.evaluate(`location.pathname + " " + document.body.innerText`, &text)
		return text
	}
	if text := signIn("wrong-token-0123456789"); !strings.HasPrefix(text, "/login ") ||
		!strings.Contains(text, "this is not the token of the server") {
		t.Errorf("a wrong token: got %s", text)
	}

	if text := signIn(token); !strings.HasPrefix(text, "/beds ") {
		t.Errorf("the right token: got %s", text)
	}

	look("/beds?signed", "/login?signed")
	b.show(address+"/beds", 1280, "light")
	b.submit(`document.querySelector("[name=at]").value = "` +
		time.Now().UTC().Add(time.Hour).Format("2006-01-02T15:04") + `"`)
	requests, err := st.BedRequests(ctx, "lab-1")
	must(t, err)
	if len(requests) != 1 || requests[0].Kind != store.AskStart || requests[0].Plan != "quick" ||
		requests[0].At.IsZero() {
		t.Errorf("got the requests %+v, want one for plan quick in an hour", requests)
	}

	answer, err := http.Post(address+"/api/v1/beds/lab-1/requests", "application/json", nil)
	must(t, err)
	must(t, answer.Body.Close())
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: got %s", answer.Status)
	}

	away := slices.DeleteFunc(b.fetched, func(a string) bool {
		return strings.HasPrefix(a, address+"/") || a == "about:blank"
	})
	if len(away) > 0 {
		t.Errorf("the pages fetched %q", away)
	}

	end()
	must(t, <-ended)
	b.close()
}

// until evaluates an expression until it has a value.
func (b *browser) until(expression string, want bool) {
	for got := !want; got != want; {
		time.Sleep(100 * time.Millisecond)
		b.evaluate(expression, &got)
	}
}

// wait reads until the page has been loaded.
func (b *browser) wait() {
	for !b.loaded {
		b.read()
	}
}

// submit changes the first form of the page, sends it and waits for the next page.
func (b *browser) submit(change string) {
	var ok bool
	b.loaded = false
	b.evaluate(change+`; document.querySelector("form button").click(); true`, &ok)
	b.wait()
}
