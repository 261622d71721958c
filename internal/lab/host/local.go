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
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// Local returns the machine on which this process runs, as seen from the namespaces of this process.
func Local() Host { return local{} }

type local struct{}

func (local) Name() string { return "local" }

func (local) ReadFile(_ context.Context, path string) ([]byte, error) { return os.ReadFile(path) }

func (local) WriteFile(_ context.Context, path string, data []byte) error {
	return os.WriteFile(path, data, 0o600)
}

// Start runs the command in a new session, so that Ctrl-C in the controller's terminal does not reach the
// command and Kill can kill its whole process group.
func (local) Start(ctx context.Context, c Command) (Process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdin = c.Stdin
	cmd.ExtraFiles = c.Files
	cmd.Dir = c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p := &localProcess{cmd: cmd, ended: make(chan struct{})}
	var err error
	if p.out, err = cmd.StdoutPipe(); err == nil {
		p.err, err = cmd.StderrPipe()
	}

	switch {
	case err == nil && c.Bound:
		err = startBound(cmd, p.ended)
	case err == nil:
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
	out, err io.ReadCloser
	stop     func() bool
	ended    chan struct{} // closed after the process has ended

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
	close(p.ended)
	p.stop()
	var u Usage
	s := p.cmd.ProcessState
	if s != nil {
		u = Usage{UserNs: int64(s.UserTime()), SystemNs: int64(s.SystemTime())}
	}

	return u, err
}

func (p *localProcess) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waited {
		return nil // because the process number may have been reused
	}

	endReading(p.out)
	endReading(p.err)
	err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}

	return err
}

// drainTime is the time limit for reading the rest of a killed process's output. The output may not end by
// itself, because another process, such as an ssh that multiplexes other connections, may keep the pipe open.
const drainTime = time.Second

// endReading sets a deadline for reading a killed process's output.
func endReading(r io.Reader) {
	if f, ok := r.(interface{ SetReadDeadline(time.Time) error }); ok {
		// Ignore errors: they occur only for a closed pipe, which nothing reads.
		_ = f.SetReadDeadline(time.Now().Add(drainTime))
	}
}

// ExitCode returns the exit code contained in err, an error returned by Wait. ok is false if err contains
// none. The exit code of a process killed by a signal is 128 plus the signal number, as in a shell.
func ExitCode(err error) (code int, ok bool) {
	var e *exec.ExitError
	var other interface{ ExitCode() int } // exit errors of remote hosts implement this
	switch {
	case err == nil:
		return 0, true
	case errors.As(err, &e):
		w, isWait := e.Sys().(syscall.WaitStatus)
		if isWait && w.Signaled() {
			return 128 + int(w.Signal()), true
		}
		return e.ExitCode(), true
	case errors.As(err, &other):
		return other.ExitCode(), true
	}

	return 0, false
}

// maxOutput is the maximum size of a command's output that Run accepts, in bytes.
const maxOutput = 64 << 20

// bounded reads the output of a process. It kills a process that prints more than maxOutput.
func bounded(p Process, r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxOutput+1))
	if len(b) > maxOutput {
		err = errors.Join(fmt.Errorf("it prints more than %d MB", maxOutput>>20), p.Kill())
		_, _ = io.Copy(io.Discard, r) // discard output printed before the kill
	}
	return b, err
}

// keptErrors is the number of bytes that Run keeps from the end of a command's standard error.
const keptErrors = 4 << 10

// drained returns the end of a process's standard error. It kills a process that prints more than maxOutput
// there.
func drained(p Process) []byte {
	var end Tail
	buf := make([]byte, 32<<10)
	for n := 0; ; {
		got, err := p.Stderr().Read(buf)
		end.Add(buf[:got], keptErrors)
		if err != nil {
			return end.Bytes()
		}

		if n += got; n > maxOutput {
			_ = p.Kill() // so that reading ends
		}
	}
}

// named returns the program's name for error messages. It shortens the name, because Path may be a long
// script on a router.
func (c Command) named() string {
	const most = 80
	if len(c.Path) > most {
		return check.Plain(c.Path[:most]) + "…"
	}
	return c.Path
}

// Run executes c and returns its standard output, which may have up to 64 MiB. An error includes the end of
// the standard error.
func Run(ctx context.Context, h Host, c Command) ([]byte, error) {
	p, err := h.Start(ctx, c)
	if err != nil {
		return nil, err
	}

	talk := make(chan []byte, 1)
	go func() { talk <- drained(p) }()
	out, readErr := bounded(p, p.Stdout())
	said := <-talk
	_, err = p.Wait()
	text := check.Plain(strings.TrimSpace(string(said[max(0, len(said)-400):])))
	switch {
	case len(out) > maxOutput:
		out, err = nil, readErr
	case err == nil:
		err = readErr
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case text != "":
		err = fmt.Errorf("%w: %s", err, text)
	}

	if err != nil {
		err = fmt.Errorf("run %s: %w", c.named(), err)
	}

	return out, err
}

// Output runs a program on this machine. It returns what Run returns.
func Output(ctx context.Context, program string, args ...string) ([]byte, error) {
	return Run(ctx, Local(), Command{Path: program, Args: args})
}

// longestLine is the length in bytes to which Lines truncates lines.
const longestLine = 64 << 10

// Lines calls f for each line of r, without the line ending, until r ends. Then it closes done. It truncates
// lines that are longer than 64 KiB.
func Lines(r io.Reader, f func(line string)) (done <-chan struct{}) {
	return LongLines(r, longestLine, f)
}

// LongLines is like Lines, but truncates lines to the given length in bytes.
func LongLines(r io.Reader, longest int, f func(line string)) (done <-chan struct{}) {
	end := make(chan struct{})
	go func() {
		defer close(end)
		var line []byte
		for from := bufio.NewReader(r); ; {
			part, err := from.ReadSlice('\n')
			line = append(line, part[:min(len(part), longest-len(line))]...)
			switch {
			case errors.Is(err, bufio.ErrBufferFull):
				continue
			case err == nil || len(line) > 0:
				f(strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r"))
			}

			if err != nil {
				return
			}

			line = line[:0]
		}
	}()
	return end
}

// BootIDFile is the kernel file that contains a random identifier of the current boot (random(4)).
const BootIDFile = "/proc/sys/kernel/random/boot_id"

// BootID returns the identifier of the kernel's current boot, or "" if unknown.
func BootID() string {
	boot, _ := os.ReadFile(BootIDFile)
	return strings.TrimSpace(string(boot))
}
