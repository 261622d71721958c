package pagecheck

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// browser is a headless Chromium, spoken to over a pipe by the DevTools protocol: messages are JSON and end
// with a zero byte. Only that way can a page be as narrow as a telephone, dark, and watched for requests.
type browser struct {
	t       *testing.T
	cmd     *exec.Cmd
	dir     string // its profile
	in      io.WriteCloser
	out     *bufio.Reader
	session string
	next    int
	loaded  bool
	fetched []string // addresses that the page asked for
}

func startBrowser(ctx context.Context, t *testing.T, program string) *browser {
	dir, err := os.MkdirTemp("", "pagecheck-")
	must(t, err)
	fromUs, toBrowser, err := os.Pipe()
	must(t, err)
	fromBrowser, toUs, err := os.Pipe()
	must(t, err)
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--hide-scrollbars", "--user-data-dir="+dir, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{fromUs, toUs}
	must(t, cmd.Start())
	must(t, fromUs.Close())
	must(t, toUs.Close())
	b := &browser{t: t, cmd: cmd, dir: dir, in: toBrowser, out: bufio.NewReaderSize(fromBrowser, 1<<20)}
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.session = session.SessionID
	b.call("Page.enable", nil, nil)
	b.call("Network.enable", nil, nil)
	return b
}

// close asks the browser to go, waits for it and removes its profile.
func (b *browser) close() {
	if !b.t.Failed() {
		b.call("Browser.close", nil, nil)
	}

	b.in.Close() // which ends it, too
	if err := b.cmd.Wait(); err != nil && !b.t.Failed() {
		b.t.Errorf("end the browser: %v", err)
	}

	// Its children may still be writing to the profile for a moment.
	for range 20 {
		if os.RemoveAll(b.dir) == nil {
			return
		}

		time.Sleep(50 * time.Millisecond)
	}

	must(b.t, os.RemoveAll(b.dir))
}

type message struct {
	ID     int
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct{ Message string }
}

// call sends a command and reads until its answer.
func (b *browser) call(method string, params map[string]any, result any) {
	b.next++
	m := map[string]any{"id": b.next, "method": method}
	if params != nil {
		m["params"] = params
	}

	if b.session != "" && !strings.HasPrefix(method, "Browser.") {
		m["sessionId"] = b.session
	}

	data, err := json.Marshal(m)
	must(b.t, err)
	if _, err := b.in.Write(append(data, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}

	for {
		got := b.read()
		switch {
		case got.ID != b.next:
			continue
		case got.Error != nil:
			b.t.Fatalf("%s: %s", method, got.Error.Message)
		case result != nil:
			must(b.t, json.Unmarshal(got.Result, result))
		}
		return
	}
}

// read takes one message and notes the events that matter.
func (b *browser) read() (m message) {
	data, err := b.out.ReadBytes(0)
	if err != nil {
		b.t.Fatalf("the browser closed its pipe: %v", err)
	}

	must(b.t, json.Unmarshal(data[:len(data)-1], &m))
	switch m.Method {
	case "Page.loadEventFired":
		b.loaded = true
	case "Network.requestWillBeSent":
		var e struct{ Request struct{ URL string } }
		must(b.t, json.Unmarshal(m.Params, &e))
		if !strings.HasPrefix(e.Request.URL, "data:") && !slices.Contains(b.fetched, e.Request.URL) {
			b.fetched = append(b.fetched, e.Request.URL)
		}
	}

	return m
}

// show opens an address in a window of this width and theme.
func (b *browser) show(url string, width int, theme string) {
	scale, height := 1, 800
	if width < 600 {
		scale, height = 2, 844 // telephones have dense screens, and the picture can be read
	}

	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height,
		"deviceScaleFactor": scale, "mobile": false}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": theme}}}, nil)
	b.loaded = false
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.wait()
}

// unbuilt counts the tables that the page's script has yet to fill.
const unbuilt = `[...document.querySelectorAll("details.metrics")].filter(d => !d.querySelector("tbody tr")).length`

// open opens everything that is folded and waits until the page's script has filled the tables.
func (b *browser) open() {
	var left int
	b.evaluate(`document.querySelectorAll("details").forEach(d => { d.open = true; }), `+unbuilt, &left)
	for left > 0 { // until the browser's time is up
		b.evaluate(unbuilt, &left)
	}
}

// evaluate runs an expression in the page and waits for what it promises.
func (b *browser) evaluate(expression string, out any) {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Text string }
	}
	b.call("Runtime.evaluate", map[string]any{
		"expression":    expression,
		"returnByValue": true,
		"awaitPromise":  true,
	}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("evaluate in the page: %s", r.ExceptionDetails.Text)
	}

	must(b.t, json.Unmarshal(r.Result.Value, out))
}

// screenshot is the whole page as PNG, or its first screen.
func (b *browser) screenshot(whole bool) []byte {
	var r struct{ Data []byte }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": whole}, &r)
	return r.Data
}
