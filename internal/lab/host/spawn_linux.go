package host

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Child is a process made by Spawn. Reading and writing use its standard output and input; Close hangs up,
// which makes every role leave, and waits for that.
type Child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.ReadCloser

	once  sync.Once
	err   error
	ended chan struct{} // closed once the process was waited for
}

// Start runs the program, in its own session so that a Ctrl-C at the terminal does not reach it.
func (s Spawn) Start() (*Child, error) {
	// The path in /proc is the program that runs now, even if its file was replaced or removed, as "go run"
	// does.
	cmd := exec.Command(cmp.Or(s.Program, "/proc/self/exe"), s.Args...)
	if s.Program == "" {
		cmd.Args[0] = "chokepoint"
	}

	cmd.Dir, cmd.Env = s.Dir, os.Environ()
	cmd.ExtraFiles, cmd.Stderr = s.Files, cmp.Or(s.Stderr, os.Stderr)
	attr := &syscall.SysProcAttr{Setsid: true, Cloneflags: s.Namespaces}
	if s.MapRoot {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}

	if s.Bound {
		attr.Pdeathsig = syscall.SIGKILL
	}

	if s.As != nil {
		attr.Credential = &syscall.Credential{Uid: s.As.ID, Gid: s.As.ID, Groups: s.As.Groups}
	}

	cmd.SysProcAttr = attr
	c := &Child{cmd: cmd, ended: make(chan struct{})}
	var err error
	if s.Conn != nil {
		cmd.Stdin = s.Conn
		cmd.Stdout = s.Conn
	} else if c.in, err = cmd.StdinPipe(); err == nil {
		c.out, err = cmd.StdoutPipe()
	}

	if err == nil {
		err = s.start(c)
	}

	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("start %s: %w: not installed", s.Program, ErrUnsupported)
	}

	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Args[0], err)
	}

	return c, nil
}

// start starts the child's process. The child is bound to the thread that starts it, and runs on that
// thread's cores: such a child gets its own thread here, for its whole life.
func (s Spawn) start(c *Child) error {
	if !s.Bound && s.Core == 0 {
		return c.cmd.Start()
	}

	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if s.Core > 0 {
			var set unix.CPUSet
			set.Set(s.Core - 1)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				started <- fmt.Errorf("run on core %d: %w", s.Core-1, err)
				return
			}
		}

		err := c.cmd.Start()
		started <- err
		if err == nil {
			<-c.ended
		}
	}()
	return <-started
}

// Pid returns the process's number in our PID namespace.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

func (c *Child) Read(b []byte) (int, error) { return c.out.Read(b) }

func (c *Child) Write(b []byte) (int, error) { return c.in.Write(b) }

// HangUp ends only the process's standard input.
func (c *Child) HangUp() error { return c.in.Close() }

// patience bounds how long a process may take to undo its changes.
const patience = 5 * time.Second

// Close hangs up and waits for the process to leave. A process that does not leave is killed, which is an
// error.
func (c *Child) Close() error {
	if c.in != nil {
		c.in.Close()
	}

	kill := time.AfterFunc(patience, func() { c.Kill() })
	defer kill.Stop()
	return c.Wait()
}

// Wait waits for a process that ends by itself, such as one whose Conn hangs up.
func (c *Child) Wait() error {
	c.once.Do(func() {
		c.err = c.cmd.Wait()
		close(c.ended)
	})
	return c.err
}

// Kill ends the process, and with it every PID namespace it leads.
func (c *Child) Kill() error {
	endReading(c.out)
	if f, ok := c.in.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = f.SetWriteDeadline(time.Now()) // fails on a closed pipe, whose writing has ended
	}

	err := c.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}

	return err
}
