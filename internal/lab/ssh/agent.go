package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// arches are the names that uname -m gives to the architectures of agents. The order of bytes is not among
// what it says of MIPS.
var arches = map[string]string{"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64",
	"armv7l": "arm", "armv6l": "arm", "armv8l": "arm", "riscv64": "riscv64"}

// AgentArch is the architecture of the agent that runs on the machine, or why there is none.
func (c *Connection) AgentArch(ctx context.Context) (string, error) {
	if c.System != "Linux" {
		return "", fmt.Errorf("%w: there is no agent for %s yet", host.ErrUnsupported, c.System)
	}
	if arch, ok := arches[c.Arch]; ok {
		return arch, nil
	}
	if c.Arch == "mips" {
		// The byte behind "\177ELF" and the class says the order of bytes (elf(5), EI_DATA).
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
	return "", fmt.Errorf("%w: there is no agent for %s", host.ErrUnsupported, c.Arch)
}

// places are where the agent may be put: first what is in memory, which a router has more of.
const places = `"$XDG_RUNTIME_DIR" /tmp /var/tmp /dev/shm /run "$HOME"`

// StartAgent puts a program there and starts it as an agent in a role, as root if that can be. The role is
// one that removes its own file. The error is host.ErrUnsupported where the machine runs no program of ours.
func (c *Connection) StartAgent(ctx context.Context, program, role string) (host.Agent, error) {
	dirs, err := c.findPlaces(ctx)
	if err != nil {
		return nil, fmt.Errorf("find a place for the agent: %w", err)
	}
	file, err := c.put(ctx, program, dirs)
	if err != nil {
		return nil, fmt.Errorf("put the agent there: %w", err)
	}
	command := "exec " + file + " " + role
	if !c.Root && c.Sudo {
		command = "exec sudo -n " + file + " " + role
	}
	child, err := c.Open(command)
	if err != nil {
		return nil, err
	}
	a := host.Connect(child)
	if _, _, err := a.Clock(ctx); err != nil {
		a.Close()
		_, left := c.Run(context.WithoutCancel(ctx), "rm -rf "+path.Dir(file)+"\n")
		return nil, errors.Join(fmt.Errorf("start the agent: %w: %s", err, c.said()), left)
	}
	return a, nil
}

// findPlaces makes a folder of ours in each place from which the machine runs a program.
func (c *Connection) findPlaces(ctx context.Context) (dirs []string, err error) {
	found, err := c.Run(ctx, fmt.Sprintf(`umask 077
for t in %s; do
  [ -n "$t" ] && [ -d "$t" ] && d=$(mktemp -d "$t/chokepoint-XXXXXX" 2>/dev/null) || continue
  printf '#!/bin/sh\nexit 0\n' >"$d/try" && chmod 700 "$d/try" && "$d/try" 2>/dev/null &&
    rm "$d/try" && echo "chokepoint-dir $d" || rm -rf "$d"
done
`, places))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(found) {
		dir, ok := strings.CutPrefix(strings.TrimSpace(line), "chokepoint-dir ")
		if ok && ownFolder(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// ownFolder tells what can be a folder that findPlaces made: other names are not put into commands.
func ownFolder(dir string) bool {
	return strings.HasPrefix(dir, "/") && strings.HasPrefix(path.Base(dir), "chokepoint-") &&
		wordLike(strings.ReplaceAll(dir, "/", ""))
}

// put copies the program into the first folder that takes it and from which it runs, and removes the others.
func (c *Connection) put(ctx context.Context, program string, dirs []string) (string, error) {
	f, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	why := fmt.Errorf("%w: no folder of the machine takes a program that can be run", host.ErrUnsupported)
	for len(dirs) > 0 {
		dir := dirs[0]
		dirs = dirs[1:]
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return "", err
		}
		file := dir + "/agent"
		// Half a program, of a connection that was cut, does not stay.
		_, err = c.do(ctx, fmt.Sprintf(`exec /bin/sh -c 'umask 077; cat >%[1]s && `+
			`[ $(wc -c <%[1]s) = %[2]d ] && chmod 700 %[1]s && %[1]s version >/dev/null || `+
			`{ rm -rf %[3]s; exit 1; }'`, file, info.Size(), dir), f)
		if err == nil {
			return file, c.remove(ctx, dirs)
		}
		why = fmt.Errorf("%w: it does not run in %s: %w", host.ErrUnsupported, dir, err)
	}
	return "", why
}

func (c *Connection) remove(ctx context.Context, dirs []string) error {
	if len(dirs) == 0 {
		return nil
	}
	_, err := c.Run(ctx, "rm -rf "+strings.Join(dirs, " ")+"\n")
	return err
}
