package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// Local is this machine, or rather the namespaces of this process.
func Local() Host { return local{} }

type local struct{}

func (local) Name() string { return "local" }

func (local) ReadFile(_ context.Context, path string) ([]byte, error) { return os.ReadFile(path) }

func (local) WriteFile(_ context.Context, path string, data []byte) error {
	return os.WriteFile(path, data, 0o600)
}

// Start runs the command in a session of its own, so that a Ctrl-C meant for the controller does not reach
// it and Kill can end its whole group.
func (local) Start(ctx context.Context, c Command) (Process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(environment(), c.Env...)
	cmd.Stdin, cmd.ExtraFiles, cmd.Dir = c.Stdin, c.Files, c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p := &localProcess{cmd: cmd}
	var err error
	if p.out, err = cmd.StdoutPipe(); err == nil {
		p.err, err = cmd.StderrPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if errors.Is(err, exec.ErrNotFound) {
		err = fmt.Errorf("%w: not installed", ErrUnsupported)
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	p.stop = context.AfterFunc(ctx, func() { p.Kill() })
	return p, nil
}

type localProcess struct {
	cmd      *exec.Cmd
	out, err io.Reader
	stop     func() bool

	mu     sync.Mutex
	waited bool
}

func (p *localProcess) Stdout() io.Reader { return p.out }
func (p *localProcess) Stderr() io.Reader { return p.err }

func (p *localProcess) Wait() (Usage, error) {
	err := p.cmd.Wait()
	p.mu.Lock()
	p.waited = true
	p.mu.Unlock()
	p.stop()
	var u Usage
	if s := p.cmd.ProcessState; s != nil {
		u = Usage{UserNs: int64(s.UserTime()), SystemNs: int64(s.SystemTime())}
	}
	return u, err
}

func (p *localProcess) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waited {
		return nil // the number may belong to another process by now
	}
	err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// ExitCode tells the exit code of a process from the error of its Wait: ok is false if the error says
// something else. A process that a signal ended has 128 and the signal's number, as in a shell.
func ExitCode(err error) (code int, ok bool) {
	var e *exec.ExitError
	var other interface{ ExitCode() int } // of hosts that are not this machine
	switch {
	case err == nil:
		return 0, true
	case errors.As(err, &e):
		if w, isWait := e.Sys().(syscall.WaitStatus); isWait && w.Signaled() {
			return 128 + int(w.Signal()), true
		}
		return e.ExitCode(), true
	case errors.As(err, &other):
		return other.ExitCode(), true
	}
	return 0, false
}

// mostOutput is what Run reads of a command's output at most, in bytes.
const mostOutput = 64 << 20

// bounded reads a process' output, and ends a process that prints more than that.
func bounded(p Process, r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, mostOutput+1))
	if len(b) > mostOutput {
		err = errors.Join(fmt.Errorf("it prints more than %d MB", mostOutput>>20), p.Kill())
		_, _ = io.Copy(io.Discard, r) // what it had printed by then
	}
	return b, err
}

// named is the command's program in a few words: the path of a router's command may be a long script.
func (c Command) named() string {
	const most = 80
	if len(c.Path) > most {
		return check.Plain(c.Path[:most]) + "…"
	}
	return c.Path
}

// Run starts the command, waits for it and returns what it printed on standard output, of at most 64 MB; the
// error carries the end of its standard error.
func Run(ctx context.Context, h Host, c Command) ([]byte, error) {
	p, err := h.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	talk := make(chan []byte, 1)
	go func() {
		b, _ := bounded(p, p.Stderr())
		talk <- b
	}()
	out, readErr := bounded(p, p.Stdout())
	said := <-talk
	_, err = p.Wait()
	if len(out) > mostOutput {
		return nil, fmt.Errorf("run %s: %w", c.named(), readErr)
	}
	if err != nil {
		if ctx.Err() != nil {
			return out, fmt.Errorf("run %s: %w", c.named(), context.Cause(ctx))
		}
		if text := check.Plain(strings.TrimSpace(string(said[max(0, len(said)-400):]))); text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return out, fmt.Errorf("run %s: %w", c.named(), err)
	}
	if readErr != nil {
		return out, fmt.Errorf("run %s: %w", c.named(), readErr)
	}
	return out, nil
}

// longestLine is the longest line in bytes that Lines hands on whole.
const longestLine = 64 << 10

// Lines hands each line of r to f, without its end, until r ends; done is closed then. A line of more than
// 64 KiB ends the reading, too.
func Lines(r io.Reader, f func(line string)) (done <-chan struct{}) {
	return LongLines(r, longestLine, f)
}

// LongLines is Lines for lines of so many bytes.
func LongLines(r io.Reader, longest int, f func(line string)) (done <-chan struct{}) {
	end := make(chan struct{})
	go func() {
		defer close(end)
		s := bufio.NewScanner(r)
		s.Buffer(make([]byte, 0, 4096), longest)
		for s.Scan() {
			f(s.Text())
		}
	}()
	return end
}

// Installed says why a program of this machine, a name or a path, cannot be started, nil if it can.
func Installed(program string) error {
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("start %s: %w", program, errors.Unwrap(err))
	}
	return nil
}
