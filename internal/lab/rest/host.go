package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Commands is the router as a host that takes lines of the console, or of OPNsense the questions of a line,
// see Connection.answers: a command's path is the line, and it has no arguments. It has no files. What a
// command prints is there when it has ended.
func (c *Connection) Commands() host.Host {
	if c.OPNsense() {
		return console{c, c.answers}
	}
	return console{c, c.execute}
}

type console struct {
	c   *Connection
	run func(ctx context.Context, line string) (printed string, err error)
}

func (h console) Name() string { return h.c.String() }

func (h console) ReadFile(_ context.Context, path string) ([]byte, error) {
	return nil, fmt.Errorf("read %s on %s: %w", path, h.Name(), host.ErrUnsupported)
}

func (h console) WriteFile(_ context.Context, path string, _ []byte) error {
	return fmt.Errorf("write %s on %s: %w", path, h.Name(), host.ErrUnsupported)
}

func (h console) shell(c host.Command) error {
	if len(c.Args)+len(c.Env)+len(c.Files) > 0 || c.Stdin != nil {
		return fmt.Errorf("start %s on %s: %w: it has no shell", c.Path, h.Name(), host.ErrUnsupported)
	}
	return nil
}

// Start runs a line to its end.
func (h console) Start(ctx context.Context, c host.Command) (host.Process, error) {
	if err := h.shell(c); err != nil {
		return nil, err
	}
	said, err := h.run(ctx, c.Path)
	return ended{strings.NewReader(said), exit(err)}, nil
}

// exit is the error of a command: one that the console has refused has an exit code.
func exit(err error) error {
	if errors.Is(err, errRefused) {
		return refusal{}
	}
	return err
}

type refusal struct{}

func (refusal) Error() string { return errRefused.Error() }
func (refusal) ExitCode() int { return 1 }

// ended is a command that is over.
type ended struct {
	out io.Reader
	err error
}

func (p ended) Stdout() io.Reader         { return p.out }
func (ended) Stderr() io.Reader           { return strings.NewReader("") }
func (p ended) Wait() (host.Usage, error) { return host.Usage{}, p.err }
func (ended) Kill() error                 { return nil }

// mostFailures is after how many in a row a command is not repeated any more.
const mostFailures = 5

// Repeat implements host.Repeater. Killed, it lets a request under way end.
func (h console) Repeat(ctx context.Context, c host.Command, every time.Duration) (host.Process, error) {
	if err := h.shell(c); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	r, w := io.Pipe()
	p := &repeated{out: r, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer w.Close()
		next := host.Monotonic()
		for failures := 0; failures < mostFailures; {
			said, err := h.run(ctx, c.Path)
			if p.err = exit(err); err != nil {
				failures++
			} else {
				failures = 0
				_, err = io.WriteString(w, said+"\n")
			}
			next = max(next+int64(every), host.Monotonic())
			left := time.Duration(next - host.Monotonic())
			if errors.Is(err, io.ErrClosedPipe) || host.Pause(ctx, left) != nil { // it was killed
				p.err = nil
				return
			}
		}
	}()
	return p, nil
}

type repeated struct {
	out  *io.PipeReader
	stop context.CancelFunc
	done chan struct{}
	err  error // of the last time, once done is closed
}

func (p *repeated) Stdout() io.Reader         { return p.out }
func (*repeated) Stderr() io.Reader           { return strings.NewReader("") }
func (p *repeated) Wait() (host.Usage, error) { <-p.done; p.stop(); return host.Usage{}, p.err }
func (p *repeated) Kill() error               { p.stop(); return p.out.Close() }
