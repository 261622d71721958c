package ssh

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// arches maps the output of uname -m to the architecture of the agent. It does not contain MIPS, because
// uname does not report the byte order.
var arches = map[string]string{"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64",
	"armv5tel": "arm", "armv6l": "arm", "armv7l": "arm", "armv8l": "arm", "riscv64": "riscv64"}

// Linux is Facts.System of a machine that runs Linux, the only system on which the agent supports all
// functions.
const Linux = "Linux"

// systems maps the output of uname -s to the prefix of the agent's architecture.
var systems = map[string]string{Linux: "", "FreeBSD": "freebsd-", "Darwin": "darwin-"}

// AgentArch returns the architecture of the agent for the machine, such as "arm64". Unless the system is
// Linux, its name precedes the architecture, as in "freebsd-arm64". AgentArch returns host.ErrUnsupported if
// there is no agent for the machine.
func (c *Connection) AgentArch(ctx context.Context) (string, error) {
	before, known := systems[c.System]
	arch := arches[c.Arch]
	switch {
	case known && arch != "" && (before == "" || arch == "amd64" || arch == "arm64"):
		return before + arch, nil
	case c.System != Linux || c.Arch != "mips":
		return "", fmt.Errorf("%w: there is no agent for %s on %s", host.ErrUnsupported, c.System, c.Arch)
	}

	// In an ELF file, the byte at offset 5 contains the byte order (elf(5), EI_DATA).
	order, err := c.Run(ctx, "hexdump -s 5 -n 1 -e '1/1 \"%d\"' /bin/sh 2>/dev/null || "+
		"od -An -tu1 -j5 -N1 /bin/sh\n")
	if err != nil {
		return "", fmt.Errorf("ask for its order of bytes: %w", err)
	}

	if strings.TrimSpace(order) == "1" {
		return "mipsel", nil
	}

	return "mips", nil
}

// places lists the directories in which the agent may be installed. Directories that are usually in memory
// come first, because a router has more memory than storage.
const places = `"$XDG_RUNTIME_DIR" /tmp /var/tmp /dev/shm /run "$HOME"`

// StartAgent copies a program to the machine and starts it as an agent, as root if possible. role contains
// the role and its arguments. The agent removes its own executable. The error is host.ErrUnsupported if the
// machine cannot run the program.
func (c *Connection) StartAgent(ctx context.Context, program string, role ...string) (host.Agent, error) {
	at, err := c.put(ctx, program)
	if err != nil {
		return nil, fmt.Errorf("put the agent there: %w", err)
	}
	defer at.leave()
	command := at.file()
	for _, word := range role {
		command += " " + host.Quote(word)
	}

	if !c.Root && c.Sudo {
		command = "sudo -n " + command
	}

	child, err := c.Open("exec " + command)
	if err != nil {
		return nil, err
	}

	a := host.Connect(child)
	within, cancel := host.Within(ctx, runTime)
	defer cancel()
	if err := host.Answers(within, a); err != nil {
		a.Close()
		return nil, fmt.Errorf("start the agent: %w: %s", err, c.words())
	}

	return a, nil
}

// place is a directory that was created for starting a program. A shell on the machine removes the directory
// when the shell's standard input ends, for whatever reason.
type place struct {
	dir    string
	number int // index in places
	shell  *session
}

func (p place) file() string { return p.dir + "/agent" }

// leave makes the shell remove the directory.
func (p place) leave() { _ = p.shell.Close() } // error ignored: it means that the connection is lost

// findPlace creates a directory from which programs can be run. It uses the first suitable element of places,
// but skips the given number of elements at the start.
func (c *Connection) findPlace(ctx context.Context, skipped int) (p place, err error) {
	if p.shell, err = c.Open("exec /bin/sh -s"); err != nil {
		return p, err
	}

	ctx, cancel := host.Within(ctx, runTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { p.shell.Kill() })()
	defer func() {
		if err != nil {
			p.leave()
		}
	}()
	if _, err := fmt.Fprintf(p.shell, `umask 077
trap "" PIPE HUP TERM
n=0
for t in %s; do
  n=$((n+1)); [ $n -gt %d ] || continue
  [ -n "$t" ] && [ -d "$t" ] && d=$(mktemp -d "$t/chokepoint-XXXXXX" 2>/dev/null) || continue
  printf '#!/bin/sh\nexit 0\n' >"$d/try" && chmod 700 "$d/try" && "$d/try" 2>/dev/null && rm "$d/try" &&
    echo "chokepoint-dir $n $d" && { cat >/dev/null; rm -rf "$d"; exit 0; }
  rm -rf "$d"
done
exit 0
`, places, skipped); err != nil {
		return p, err
	}

	for lines := bufio.NewScanner(io.LimitReader(p.shell, maxHello)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) == 3 && words[0] == "chokepoint-dir" && ownFolder(words[2]) {
			p.dir = words[2]
			p.number, err = strconv.Atoi(words[1])
			return p, err
		}
	}

	return p, cmp.Or(context.Cause(ctx), errNoPlace)
}

var errNoPlace = fmt.Errorf("%w: no folder of the machine takes a program that can be run",
	host.ErrUnsupported)

// ownFolder reports whether dir may have been created by findPlace, so that it is safe to use dir in a
// command.
func ownFolder(dir string) bool {
	return strings.HasPrefix(dir, "/") && strings.HasPrefix(path.Base(dir), "chokepoint-") &&
		wordLike(strings.ReplaceAll(dir, "/", ""))
}

// lost returns an error if the connection is gone. In that case, the failure of a program does not mean that
// the machine cannot run the program.
func (c *Connection) lost(ctx context.Context) error {
	_, err := c.Run(ctx, "exit 0\n")
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%w: %w", host.ErrUnreachable, err)
	}
	return nil
}

// put copies the program to the first element of places where the machine can store and run it.
func (c *Connection) put(ctx context.Context, program string) (p place, err error) {
	f, err := os.Open(program)
	if err != nil {
		return p, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return p, err
	}

	var why error
	for skipped := 0; ; {
		p, err := c.findPlace(ctx, skipped)
		if err != nil {
			return p, cmp.Or(c.lost(ctx), why, err)
		}

		skipped = p.number
		if _, err = f.Seek(0, io.SeekStart); err == nil {
			_, err = c.do(ctx, putTime, fmt.Sprintf(`exec /bin/sh -c 'umask 077; cat >%[1]s && `+
				`[ $(wc -c <%[1]s) = %[2]d ] && chmod 700 %[1]s && exec %[1]s version >/dev/null'`, p.file(),
				info.Size()), f)
		}

		if err == nil {
			return p, nil
		}

		p.leave()
		lost := c.lost(ctx)
		if lost != nil {
			return p, lost
		}

		why = fmt.Errorf("%w: it does not run in %s: %w", host.ErrUnsupported, p.dir, err)
	}
}
