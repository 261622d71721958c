package ssh

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Shell returns the machine as a host that runs commands, as root if possible, each in a separate session.
func (c *Connection) Shell() host.Host {
	return host.ByCommand(c.String(), func(ctx context.Context, run host.Command) (host.Process, error) {
		words := []string{"exec"}
		if !c.Root && c.Sudo {
			words = append(words, "sudo", "-n")
		}

		if len(run.Env) > 0 {
			words = append(words, "env")
		}

		for _, w := range slices.Concat(run.Env, []string{run.Path}, run.Args) {
			words = append(words, host.Quote(w))
		}

		return c.session(ctx, commandLine(words), run.Stdin)
	})
}

// session runs a command line on the machine in a separate session.
func (c *Connection) session(ctx context.Context, line string, stdin io.Reader) (host.Process, error) {
	if err := c.flood(); err != nil {
		return nil, err
	}

	args, dir := c.args("-oControlMaster=no", c.marked(line))
	p, err := host.Local().Start(ctx, host.Command{Path: "ssh", Dir: dir, Stdin: stdin, Args: args})
	if err != nil {
		return nil, err
	}

	b := &process{Process: p, c: c}
	b.out = c.own(&metered{p.Stdout(), b, allowance{atOnce: printedAtOnce, perTime: printedPerTime}})
	b.err = &metered{p.Stderr(), b, allowance{atOnce: heardAtOnce, perTime: heardPerTime}}
	return b, nil
}

// commandLine joins words into a command line that has the same meaning in all login shells. These include
// csh, which OPNsense runs for root. In csh, a newline ends a quoted word, and "!" refers to earlier commands
// even within quotes (tcsh(1)). If the line contains a newline or "!", it is encoded in octal, and the POSIX
// shell decodes it.
func commandLine(words []string) string {
	line := strings.Join(words, " ")
	if !strings.ContainsAny(line, "!\n") {
		return line
	}

	octal := strings.NewReplacer(`\`, `\0134`, "'", `\0047`, "!", `\0041`, "\n", `\0012`).Replace(line)
	return `exec /bin/sh -c 'eval "$(printf %b "$1")"' sh '` + octal + "'"
}

// process is a command that runs on the machine. Kill closes its input and output but sends no signal to it.
type process struct {
	host.Process
	c        *Connection
	out, err io.Reader
}

func (p *process) Stdout() io.Reader { return p.out }
func (p *process) Stderr() io.Reader { return p.err }

// metered reads the output of a command. If it receives more bytes than allowed, it kills the connection.
type metered struct {
	from    io.Reader
	of      *process
	allowed allowance
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	if m.allowed.exceeded(n) {
		m.of.c.hangUp()
		return n, errors.Join(m.of.c.flood(), m.of.Kill())
	}
	return n, err
}

// sshFailed is the exit code of ssh if the connection failed.
const sshFailed = 255

func (p *process) Wait() (host.Usage, error) {
	u, err := p.Process.Wait()
	flood := p.c.flood()
	if flood != nil {
		return u, flood
	}

	if code, ok := host.ExitCode(err); ok && code == sshFailed {
		err = errors.Join(host.ErrUnreachable, err)
	}

	return u, err
}
