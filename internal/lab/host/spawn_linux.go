package host

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Child is a process started by Spawn.Start. Read reads from its standard output, and Write writes to its
// standard input. Close closes its standard input and waits until the process has exited. Every role exits
// when its standard input is closed.
type Child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.ReadCloser

	once  sync.Once
	err   error
	ended chan struct{} // closed after the process has exited
}

// Start starts the program in a new session, so that Ctrl-C in the terminal does not reach the program.
func (s Spawn) Start() (*Child, error) {
	// This path refers to the running program even if its file was replaced or removed. For example, "go run"
	// removes it.
	cmd := exec.Command(cmp.Or(s.Program, "/proc/self/exe"), s.Args...)
	if s.Program == "" {
		cmd.Args[0] = "chokepoint"
	}

	if s.MaxFile > 0 { // by a shell, because to limit another user's process requires CAP_SYS_RESOURCE
		cmd.Args = slices.Concat([]string{"sh", "-c", `ulimit -f "$0" && exec "$@"`,
			strconv.FormatUint(s.MaxFile/ulimitUnit, 10), cmd.Path}, cmd.Args[1:])
		cmd.Path = "/bin/sh"
	}

	cmd.Dir, cmd.Env = s.Dir, os.Environ()
	cmd.ExtraFiles, cmd.Stderr = s.Files, cmp.Or(s.Stderr, os.Stderr)
	attr := &syscall.SysProcAttr{Setsid: true, Cloneflags: s.Namespaces}
	if s.Namespaces&unix.CLONE_NEWUSER != 0 {
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

// ulimitUnit is the unit of "ulimit -f", in bytes (POSIX).
const ulimitUnit = 512

// start starts the child's process. The child inherits the CPU affinity of the thread that starts it.
func (s Spawn) start(c *Child) error {
	if !s.Bound && s.Core == 0 {
		return c.cmd.Start()
	}
	return onOwnThread(c.ended, func() error {
		if s.Core > 0 {
			var set unix.CPUSet
			set.Set(s.Core - 1)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				return fmt.Errorf("run on core %d: %w", s.Core-1, err)
			}
		}
		return c.cmd.Start()
	})
}

// startBound starts a command that the kernel kills when this process ends.
func startBound(cmd *exec.Cmd, ended <-chan struct{}) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return onOwnThread(ended, cmd.Start)
}

// onOwnThread calls the function start on a separate thread. The thread lives until ended is closed, because
// Pdeathsig refers to the thread that starts a process.
func onOwnThread(ended <-chan struct{}, start func() error) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with this goroutine
		err := start()
		started <- err
		if err == nil {
			<-ended
		}
	}()
	return <-started
}

// Pid returns the process ID in our PID namespace.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

func (c *Child) Read(b []byte) (int, error) { return c.out.Read(b) }

func (c *Child) Write(b []byte) (int, error) { return c.in.Write(b) }

// HangUp closes the process's standard input.
func (c *Child) HangUp() error { return c.in.Close() }

// patience is the time that a process has to undo its changes before Close kills it.
const patience = 5 * time.Second

// Close closes the process's standard input and waits for the process to exit. If the process does not exit
// in time, Close kills it and returns an error.
func (c *Child) Close() error {
	if c.in != nil {
		c.in.Close()
	}

	kill := time.AfterFunc(patience, func() { c.Kill() })
	defer kill.Stop()
	return c.Wait()
}

// Wait waits until the process exits by itself, for example because the other end of its Conn was closed.
func (c *Child) Wait() error {
	c.once.Do(func() {
		c.err = c.cmd.Wait()
		close(c.ended)
	})
	return c.err
}

// Kill kills the process, and with it all PID namespaces in which it is the first process.
func (c *Child) Kill() error {
	endReading(c.out)
	if f, ok := c.in.(interface{ SetWriteDeadline(time.Time) error }); ok {
		// Ignore errors: they occur only for a closed pipe, which nothing writes to.
		_ = f.SetWriteDeadline(time.Now())
	}

	err := c.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}

	return err
}
