package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Shell returns the machine as a host for commands, run as root if possible: each is a session of the
// connection.
func (c *Connection) Shell() host.Host { return machine{c} }

type machine struct{ c *Connection }

func (m machine) Name() string { return m.c.String() }

func (m machine) ReadFile(ctx context.Context, path string) ([]byte, error) {
	return host.ReadByCommand(ctx, m, path)
}

func (m machine) WriteFile(ctx context.Context, path string, data []byte) error {
	return host.WriteByCommand(ctx, m, path, data)
}

func (m machine) Start(ctx context.Context, c host.Command) (host.Process, error) {
	if len(c.Files) > 0 {
		return nil, fmt.Errorf("start %s on %s with open files: %w", c.Path, m.Name(), host.ErrUnsupported)
	}

	words := []string{"exec"}
	if !m.c.Root && m.c.Sudo {
		words = append(words, "sudo", "-n")
	}

	if len(c.Env) > 0 {
		words = append(words, "env")
	}

	for _, w := range slices.Concat(c.Env, []string{c.Path}, c.Args) {
		words = append(words, host.Quote(w))
	}

	return m.session(ctx, commandLine(words), c.Stdin)
}

// session runs a command line on the machine.
func (m machine) session(ctx context.Context, line string, stdin io.Reader) (host.Process, error) {
	if err := m.c.flood(); err != nil {
		return nil, err
	}

	args, dir := m.c.args("-oControlMaster=no", m.c.marked(line))
	p, err := host.Local().Start(ctx, host.Command{Path: "ssh", Dir: dir, Stdin: stdin, Args: args})
	if err != nil {
		return nil, err
	}

	b := &process{Process: p, c: m.c}
	b.out = m.c.own(&metered{p.Stdout(), b, allowance{atOnce: printedAtOnce, perTime: printedPerTime}})
	b.err = &metered{p.Stderr(), b, allowance{atOnce: heardAtOnce, perTime: heardPerTime}}
	return b, nil
}

// commandLine joins words so that every login shell reads them alike, even csh, which OPNsense uses for
// root's commands: there a newline ends quoted words, and "!" refers to an earlier command within them
// (tcsh(1)). A line with either is written in octal, for the POSIX shell to decode.
func commandLine(words []string) string {
	line := strings.Join(words, " ")
	if !strings.ContainsAny(line, "!\n") {
		return line
	}

	octal := strings.NewReplacer(`\`, `\0134`, "'", `\0047`, "!", `\0041`, "\n", `\0012`).Replace(line)
	return `exec /bin/sh -c 'eval "$(printf %b "$1")"' sh '` + octal + "'"
}

// process is a command on the machine. Killing it here sends no signal there, but ends its input and output.
type process struct {
	host.Process
	c        *Connection
	out, err io.Reader
}

func (p *process) Stdout() io.Reader { return p.out }
func (p *process) Stderr() io.Reader { return p.err }

// metered is an output of a command. If more is written than is allowed, the connection ends.
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

// sshFailed is ssh's exit code if the connection failed rather than the command.
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
