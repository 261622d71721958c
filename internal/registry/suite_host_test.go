package registry_test

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// hostSuite tests what every host must do alike. dir is an existing directory there that the suite may write
// to and that holds a file "have" with the text "had".
func hostSuite(t *testing.T, h host.Host, dir string) {
	t.Run("files", func(t *testing.T) { hostFiles(t, h, dir) })
	t.Run("commands", func(t *testing.T) { hostCommands(t, h, dir) })
	t.Run("kill", func(t *testing.T) { hostKills(t, h) })
	if h.Name() == "" {
		t.Error("name: got none, want one")
	}
}

func hostFiles(t *testing.T, h host.Host, dir string) {
	ctx := labtest.Context(t)
	if b, err := h.ReadFile(ctx, path.Join(dir, "have")); err != nil || string(b) != "had" {
		t.Errorf("read a file: got %q, %v, want %q", b, err, "had")
	}

	if b, err := h.ReadFile(ctx, path.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) || len(b) > 0 {
		t.Errorf("read an absent file: got %q, %v, want %v", b, err, fs.ErrNotExist)
	}

	file := path.Join(dir, "new")
	for _, text := range []string{"first, longer", "second", ""} {
		if err := h.WriteFile(ctx, file, []byte(text)); err != nil {
			t.Errorf("write %q: %v", text, err)
		}

		if b, err := h.ReadFile(ctx, file); err != nil || string(b) != text {
			t.Errorf("read what was written: got %q, %v, want %q", b, err, text)
		}
	}

	expect.Error(t, "write into an absent directory", h.WriteFile(ctx, path.Join(dir, "absent", "file"), nil),
		fs.ErrNotExist)
}

func hostCommands(t *testing.T, h host.Host, dir string) {
	ctx := labtest.Context(t)
	tests := []struct {
		name    string
		command host.Command
		out     string
		code    int
	}{
		{"arguments", host.Command{Path: "echo", Args: []string{"one", "two three"}}, "one two three\n", 0},
		{"input", host.Command{Path: "cat", Stdin: strings.NewReader(strings.Repeat("x", 1<<20))},
			strings.Repeat("x", 1<<20), 0},
		{"no input", host.Command{Path: "cat"}, "", 0},
		{"exit code", host.Command{Path: "ls", Args: []string{path.Join(dir, "absent")}}, "", 2},
	}
	for _, tt := range tests {
		out, err := host.Run(ctx, h, tt.command)
		if string(out) != tt.out {
			t.Errorf("%s: got %d bytes of output, want %d", tt.name, len(out), len(tt.out))
		}

		code, known := host.ExitCode(err)
		if code != tt.code || !known {
			t.Errorf("%s: got exit code %d (%v: %v), want %d", tt.name, code, known, err, tt.code)
		}

		if tt.code != 0 && err != nil && !strings.Contains(err.Error(), "absent") {
			t.Errorf("%s: got error %q, want the end of what the command said", tt.name, err)
		}
	}

	_, err := h.Start(ctx, host.Command{Path: "chokepoint-has-no-such-command"})
	expect.Error(t, "start a command that is not installed", err, host.ErrUnsupported)
}

func hostKills(t *testing.T, h host.Host) {
	end := func(name string, ctx context.Context, end func(p host.Process)) {
		p, err := h.Start(ctx, host.Command{Path: "sleep", Args: []string{"60"}})
		must(t, err)
		began := time.Now()
		end(p)
		_, err = p.Wait()
		took := time.Since(began)
		if err == nil || took > 5*time.Second {
			t.Errorf("%s: got %v after %s, want an error at once", name, err, took)
		}

		code, known := host.ExitCode(err)
		if known && code != 128+9 {
			t.Errorf("%s: got exit code %d, want %d", name, code, 128+9)
		}
	}
	end("kill twice", labtest.Context(t), func(p host.Process) {
		for range 2 {
			if err := p.Kill(); err != nil {
				t.Errorf("kill: %v", err)
			}
		}
	})
	ctx, cancel := context.WithCancel(labtest.Context(t))
	end("cancel", ctx, func(host.Process) { cancel() })
}
