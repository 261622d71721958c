package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// VerbExec runs a command on the node for a human.
const VerbExec = "node/exec"

// Exec is the first message: the command. Input follows, until Finish.
type Exec struct {
	Args []string `json:"args"`
}

// ExecOutput is what the node says: parts of the output, and at the end how the command ended.
type ExecOutput struct {
	Out  []byte `json:"out,omitempty"`
	Err  []byte `json:"err,omitempty"`
	Exit *int   `json:"exit,omitempty"`
}

func execute(ctx context.Context, s host.Session) error {
	var q Exec
	if err := s.Recv(&q); err != nil {
		return err
	}
	if len(q.Args) == 0 {
		return errors.New("execute: no command")
	}
	in, feed := io.Pipe()
	p, err := host.Local().Start(ctx, host.Command{Path: q.Args[0], Args: q.Args[1:], Stdin: in})
	if err != nil {
		return err
	}
	defer p.Kill()
	go func() { // ends with the session
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
	feed.Close() // the command needs no more; waiting waits for its input, too
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
