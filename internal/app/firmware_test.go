package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// heard keeps events.
type heard struct {
	mu    sync.Mutex
	texts []string
}

func (h *heard) Event(e record.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.texts = append(h.texts, e.Text)
}

func (h *heard) Close() error { return nil }

var _ progress.Sink = (*heard)(nil)

// TestInstallByCommand: the command gets the level as its last argument, without a shell. The beginning of
// its output is shown, and its failure reported.
func TestInstallByCommand(t *testing.T) {
	script := filepath.Join(t.TempDir(), "flash.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"+`echo "$1 to $2"
case $2 in
long) i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i+1)); done ;;
wrong) printf 'no \033[2Jimage\n' >&2; exit 3 ;;
slow) exec sleep 100 ;;
writes) sleep 0.4; echo whole ;;
esac`), 0o700); err != nil {
		t.Fatal(err)
	}

	for level, want := range map[string]struct {
		err string
		n   int
	}{"24.10.2 (x)": {"", 1}, "long": {"", maxLines}, "wrong": {"flash.sh: exit status 3: no ", 2},
		"slow": {"it took longer than", 1}} {
		var h heard
		x := &execution{sink: &h}
		err := x.install(t.Context(), []string{script, "flash"}, level, map[bool]time.Duration{
			true: 300 * time.Millisecond, false: time.Minute}[level == "slow"])
		if (err == nil) != (want.err == "") || err != nil && (!strings.Contains(err.Error(), want.err) ||
			strings.Contains(err.Error(), "\x1b")) {
			t.Errorf("%s: got %v, want %s", level, err, want.err)
		}

		first := fmt.Sprintf("firmware %s: flash to %[1]s", level)
		if len(h.texts) != want.n || !strings.Contains(strings.Join(h.texts, "\n"), first) {
			t.Errorf("%s: shown %d lines, %q, want %d, %q among them", level, len(h.texts), h.texts[:1],
				want.n, first)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	var h heard
	x := &execution{sink: &h}
	time.AfterFunc(100*time.Millisecond, cancel)
	err := x.install(ctx, []string{script, "flash"}, "writes", time.Minute)
	if err != nil || ctx.Err() == nil || !slices.Contains(h.texts, "firmware writes: whole") {
		t.Errorf("cancelled while it writes: got %v, %q", err, h.texts)
	}

	if err := x.install(ctx, []string{script}, "x", time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before it starts: got %v", err)
	}

	x = &execution{sink: &heard{}}
	if err := x.install(t.Context(), []string{filepath.Join(t.TempDir(), "absent")}, "a",
		time.Minute); err == nil {
		t.Error("a command that is not there: got no error")
	}
}

// TestWhoInstalls: the lab file's command, or else the human at the terminal, or nobody.
func TestWhoInstalls(t *testing.T) {
	var asked string
	ask := func(_ context.Context, s record.Step) error { asked = s.Prompt; return nil }
	x := &execution{App: &App{Ask: ask, Attended: true}, sink: &heard{}}
	err := x.installer()(t.Context(), "24.10.2")
	if err != nil || asked != "Install firmware 24.10.2 on the router" {
		t.Errorf("at a terminal: asked %q, %v", asked, err)
	}

	x.Attended = false
	if x.installer() != nil {
		t.Error("without a terminal somebody installs it")
	}

	x.run.Machines = &record.Machines{Firmware: &[]string{"false"}}
	if err := x.installer()(t.Context(), "24.10.2"); err == nil {
		t.Error("the command of the lab file is not run")
	}
}
