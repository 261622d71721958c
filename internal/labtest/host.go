// Package labtest provides fakes for tests of labs and campaigns, and conformance suites for drivers,
// engines and tunnels. No program links it.
package labtest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Call is one invocation of a Script.
type Call struct {
	Args           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Host           *Host
}

// Script implements a command of a fake host and returns the command's exit code. It must return soon
// after ctx is cancelled.
type Script func(ctx context.Context, c Call) int

// Host is a fake machine. Its files are held in a map, and its commands are Scripts. It has only the
// directories of its initial files.
type Host struct {
	name    string
	scripts map[string]Script

	mu    sync.Mutex
	files map[string][]byte
	ran   []string
}

// NewHost returns a host with the given files and commands, and the commands of Shell.
func NewHost(name string, files map[string]string, scripts map[string]Script) *Host {
	h := &Host{name: name, files: map[string][]byte{}, scripts: Shell()}
	maps.Copy(h.scripts, scripts)
	for name, text := range files {
		h.files[name] = []byte(text)
	}

	return h
}

// Name implements host.Host.
func (h *Host) Name() string { return h.name }

// Ran lists the commands that were started, with their arguments.
func (h *Host) Ran() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ran)
}

// ReadFile implements host.Host.
func (h *Host) ReadFile(ctx context.Context, name string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	b, ok := h.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}

	return slices.Clone(b), nil
}

// WriteFile implements host.Host.
func (h *Host) WriteFile(ctx context.Context, name string, data []byte) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	for have := range h.files {
		if path.Dir(have) == path.Dir(name) {
			h.files[name] = slices.Clone(data)
			return nil
		}
	}

	return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// Start implements host.Host.
func (h *Host) Start(ctx context.Context, c host.Command) (host.Process, error) {
	script := h.scripts[c.Path]
	if script == nil {
		return nil, fmt.Errorf("start %s: %w: not installed", c.Path, host.ErrUnsupported)
	}

	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}

	h.mu.Lock()
	h.ran = append(h.ran, strings.Join(append([]string{c.Path}, c.Args...), " "))
	h.mu.Unlock()
	stdin := cmp.Or[io.Reader](c.Stdin, strings.NewReader(""))
	p := &process{done: make(chan struct{})}
	ctx, p.kill = context.WithCancel(ctx)
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	p.out, p.err = outR, errR
	go func() {
		defer close(p.done)
		p.code = script(ctx, Call{Args: c.Args, Stdin: stdin, Stdout: outW, Stderr: errW, Host: h})
		if ctx.Err() != nil {
			p.code = 128 + 9 // killed by signal 9
		}

		outW.Close()
		errW.Close()
	}()
	// A killed process must end even if nobody reads its output.
	context.AfterFunc(ctx, func() { outW.Close(); errW.Close() })
	return p, nil
}

// process is a running script.
type process struct {
	out, err io.Reader
	kill     context.CancelFunc
	done     chan struct{}
	code     int // set before done is closed
}

func (p *process) Stdout() io.Reader { return p.out }
func (p *process) Stderr() io.Reader { return p.err }
func (p *process) Kill() error       { p.kill(); return nil }

func (p *process) Wait() (host.Usage, error) {
	<-p.done
	p.kill()
	if p.code != 0 {
		return host.Usage{}, exited(p.code)
	}

	return host.Usage{}, nil
}

// exited is an error for an exit code other than 0.
type exited int

func (e exited) Error() string { return fmt.Sprintf("exit status %d", int(e)) }
func (e exited) ExitCode() int { return int(e) }

// Shell returns the commands that every host has.
func Shell() map[string]Script {
	return map[string]Script{
		"echo": func(_ context.Context, c Call) int {
			fmt.Fprintln(c.Stdout, strings.Join(c.Args, " "))
			return 0
		},
		"cat": func(_ context.Context, c Call) int {
			io.Copy(c.Stdout, c.Stdin)
			return 0
		},
		"ls": func(ctx context.Context, c Call) int {
			for _, name := range c.Args {
				if _, err := c.Host.ReadFile(ctx, name); err != nil {
					fmt.Fprintf(c.Stderr, "ls: %v\n", err)
					return 2
				}

				fmt.Fprintln(c.Stdout, name)
			}
			return 0
		},
		"sleep": func(ctx context.Context, _ Call) int {
			<-ctx.Done() // only started to be killed
			return 0
		},
	}
}
