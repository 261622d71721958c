package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// browser is a headless Chromium, spoken to over a pipe by the DevTools protocol: messages are JSON and end
// with a zero byte. Only that way can a page be as narrow as a telephone, dark, and watched for requests.
type browser struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	session string
	next    int
	loaded  bool
	fetched []string // addresses that the page asked for
	dir     string
}

func startBrowser(ctx context.Context, program string) (*browser, error) {
	dir, err := os.MkdirTemp("", "pagecheck-")
	if err != nil {
		return nil, err
	}
	fromUs, toBrowser, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	fromBrowser, toUs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--hide-scrollbars", "--user-data-dir="+dir, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{fromUs, toUs}
	b := &browser{cmd: cmd, in: toBrowser, out: bufio.NewReaderSize(fromBrowser, 1<<20), dir: dir}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %v", program, err), os.RemoveAll(dir))
	}
	if err := errors.Join(fromUs.Close(), toUs.Close()); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if err := b.attach(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// close asks the browser to go, waits for it and removes its profile.
func (b *browser) close() error {
	err := b.call("Browser.close", nil, nil)
	_ = b.in.Close()
	wait := b.cmd.Wait()
	if err == nil {
		err = wait
	}
	// Its children may still be writing to the profile for a moment.
	for range 20 {
		if os.RemoveAll(b.dir) == nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

func (b *browser) attach() error {
	var target struct{ TargetID string }
	if err := b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return err
	}
	var session struct{ SessionID string }
	err := b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true},
		&session)
	if err != nil {
		return err
	}
	b.session = session.SessionID
	return errors.Join(b.call("Page.enable", nil, nil), b.call("Network.enable", nil, nil))
}

type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct{ Message string }
}

// call sends a command and reads until its answer.
func (b *browser) call(method string, params, result any) error {
	b.next++
	m := map[string]any{"id": b.next, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" && !strings.HasPrefix(method, "Browser.") {
		m["sessionId"] = b.session
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := b.in.Write(append(data, 0)); err != nil {
		return fmt.Errorf("%s: %v", method, err)
	}
	for {
		got, err := b.read()
		if err != nil {
			return fmt.Errorf("%s: %v", method, err)
		}
		if got.ID != b.next {
			continue
		}
		if got.Error != nil {
			return fmt.Errorf("%s: %s", method, got.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(got.Result, result)
	}
}

// read takes one message and notes the events that matter.
func (b *browser) read() (message, error) {
	data, err := b.out.ReadBytes(0)
	if err != nil {
		return message{}, fmt.Errorf("the browser closed its pipe: %v", err)
	}
	var m message
	if err := json.Unmarshal(data[:len(data)-1], &m); err != nil {
		return message{}, err
	}
	switch m.Method {
	case "Page.loadEventFired":
		b.loaded = true
	case "Network.requestWillBeSent":
		var e struct{ Request struct{ URL string } }
		if err := json.Unmarshal(m.Params, &e); err != nil {
			return message{}, err
		}
		if !strings.HasPrefix(e.Request.URL, "data:") && !slices.Contains(b.fetched, e.Request.URL) {
			b.fetched = append(b.fetched, e.Request.URL)
		}
	}
	return m, nil
}

// show opens an address in a window of this width and theme.
func (b *browser) show(url string, width int, theme string) error {
	scale := 1
	if width < 600 {
		scale = 2 // telephones have dense screens, and the picture can be read
	}
	err := errors.Join(
		b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900,
			"deviceScaleFactor": scale, "mobile": false}, nil),
		b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
			{"name": "prefers-color-scheme", "value": theme}}}, nil))
	if err != nil {
		return err
	}
	b.loaded = false
	if err := b.call("Page.navigate", map[string]any{"url": url}, nil); err != nil {
		return err
	}
	for !b.loaded {
		if _, err := b.read(); err != nil {
			return err
		}
	}
	return nil
}

// evaluate runs an expression in the page.
func (b *browser) evaluate(expression string, out any) error {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Text string }
	}
	err := b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &r)
	if err != nil {
		return err
	}
	if r.ExceptionDetails != nil {
		return fmt.Errorf("evaluate in the page: %s", r.ExceptionDetails.Text)
	}
	return json.Unmarshal(r.Result.Value, out)
}

// screenshot is the whole page as PNG.
func (b *browser) screenshot() ([]byte, error) {
	var r struct{ Data []byte }
	err := b.call("Page.captureScreenshot", map[string]any{"format": "png",
		"captureBeyondViewport": true}, &r)
	return r.Data, err
}
