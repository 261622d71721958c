package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// VerbExec runs a command on the node.
const VerbExec = "node/exec"

// Exec is the first message of VerbExec. The command's standard input follows as further messages.
type Exec struct {
	Args []string `json:"args"`
}

// ExecOutput is a part of the command's output or, in the last message, its exit code.
type ExecOutput struct {
	Out  []byte `json:"out,omitempty"`
	Err  []byte `json:"err,omitempty"`
	Exit *int   `json:"exit,omitempty"`
}

func execute(ctx context.Context, s host.Session, q Exec) error {
	if len(q.Args) == 0 {
		return errors.New("execute: no command")
	}

	in, feed := io.Pipe()
	p, err := host.Local().Start(ctx, host.Command{Path: q.Args[0], Args: q.Args[1:], Stdin: in})
	if err != nil {
		return err
	}
	defer p.Kill()
	go func() { // ends with the session, because Recv then returns an error
		for {
			var b []byte
			if err := s.Recv(&b); err != nil {
				feed.Close()
				return
			}

			if _, err := feed.Write(b); err != nil {
				return
			}
		}
	}()
	var both sync.WaitGroup
	both.Go(func() { pump(p.Stdout(), s, func(b []byte) any { return ExecOutput{Out: b} }) })
	both.Go(func() { pump(p.Stderr(), s, func(b []byte) any { return ExecOutput{Err: b} }) })
	both.Wait()
	feed.Close() // otherwise Wait would wait for the input, which the command no longer needs
	_, err = p.Wait()
	code, known := host.ExitCode(err)
	if !known {
		return fmt.Errorf("execute %s: %w", q.Args[0], err)
	}

	return s.Send(ExecOutput{Exit: &code})
}

func pump(r io.Reader, s host.Session, wrap func([]byte) any) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 && s.Send(wrap(buf[:n])) != nil || err != nil {
			return
		}
	}
}

// NewHost returns a Host for the machine on which agent a runs, so that a driver can run its commands there.
// The Host runs commands with VerbExec, and reads and writes files with cat.
func NewHost(name string, a host.Agent) host.Host {
	return host.ByCommand(name, func(ctx context.Context, c host.Command) (host.Process, error) {
		p, err := start(ctx, a, c)
		if err != nil {
			return nil, fmt.Errorf("start %s on %s: %w", c.Path, name, err)
		}
		return p, nil
	})
}

// start starts a command on the machine of agent a.
func start(ctx context.Context, a host.Agent, c host.Command) (*remoteProcess, error) {
	args := append([]string{c.Path}, c.Args...)
	if len(c.Env) > 0 {
		args = slices.Concat([]string{"env"}, c.Env, args)
	}

	s, err := a.Open(ctx, VerbExec, Exec{Args: args})
	if err != nil {
		return nil, err
	}

	p := &remoteProcess{session: s, stop: context.AfterFunc(ctx, func() { s.Close() })}
	var out, said *io.PipeWriter
	p.out, out = io.Pipe()
	p.said, said = io.Pipe()
	p.all.Go(func() {
		if c.Stdin != nil {
			pump(c.Stdin, s, func(b []byte) any { return b })
		}

		s.Finish()
	})
	p.all.Go(func() {
		p.err = p.read(out, said)
		out.Close()
		said.Close()
	})
	return p, nil
}

// remoteProcess is a command running in a VerbExec session.
type remoteProcess struct {
	session   host.Session
	stop      func() bool
	out, said *io.PipeReader
	all       sync.WaitGroup
	err       error // set by read
}

func (p *remoteProcess) Stdout() io.Reader { return p.out }
func (p *remoteProcess) Stderr() io.Reader { return p.said }
func (p *remoteProcess) Kill() error       { return p.session.Close() }

func (p *remoteProcess) Wait() (host.Usage, error) {
	p.all.Wait()
	p.stop()
	return host.Usage{}, errors.Join(p.err, p.session.Close())
}

func (p *remoteProcess) read(out, said io.Writer) error {
	for {
		var m ExecOutput
		if err := p.session.Recv(&m); err != nil {
			return err
		}

		if m.Exit != nil {
			if *m.Exit == 0 {
				return nil
			}
			return exitError(*m.Exit)
		}

		// An error means that the caller has stopped reading.
		_, _ = out.Write(m.Out)
		_, _ = said.Write(m.Err)
	}
}

type exitError int // exit code of a command that failed; see host.ExitCode

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }
func (e exitError) ExitCode() int { return int(e) }
