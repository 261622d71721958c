package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
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
	file, err := c.put(ctx, program)
	if err != nil {
		return nil, fmt.Errorf("put the agent there: %w", err)
	}
	command := "exec " + file + " " + role
	if !c.Root && c.Sudo {
		command = "exec sudo -n " + file + " " + role
	}
	child, err := c.Open(command)
	if err != nil {
		return nil, errors.Join(err, c.remove(ctx, path.Dir(file)))
	}
	a := host.Connect(child)
	if _, _, err := a.Clock(ctx); err != nil {
		a.Close()
		return nil, errors.Join(fmt.Errorf("start the agent: %w: %s", err, c.said()),
			c.remove(ctx, path.Dir(file)))
	}
	return a, nil
}

// findPlace makes a folder of ours in the first place from which the machine runs a program, behind those
// that are skipped. at is how many there are up to it; without one, dir is empty.
func (c *Connection) findPlace(ctx context.Context, skipped int) (dir string, at int, err error) {
	// It is heard to the end: what it has made is to be known.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), aliveTries*aliveEvery)
	defer cancel()
	found, err := c.Run(whole, fmt.Sprintf(`umask 077
n=0
for t in %s; do
  n=$((n+1)); [ $n -gt %d ] || continue
  [ -n "$t" ] && [ -d "$t" ] && d=$(mktemp -d "$t/chokepoint-XXXXXX" 2>/dev/null) || continue
  printf '#!/bin/sh\nexit 0\n' >"$d/try" && chmod 700 "$d/try" && "$d/try" 2>/dev/null && rm "$d/try" &&
    echo "chokepoint-dir $n $d" && exit 0
  rm -rf "$d"
done
exit 0
`, places, skipped))
	if err != nil {
		return "", 0, err
	}
	for line := range strings.Lines(found) {
		words := strings.Fields(line)
		if len(words) == 3 && words[0] == "chokepoint-dir" && ownFolder(words[2]) {
			if at, err = strconv.Atoi(words[1]); err == nil && ctx.Err() != nil {
				err = errors.Join(context.Cause(ctx), c.remove(ctx, words[2]))
			}
			return words[2], at, err
		}
	}
	return "", 0, nil
}

// ownFolder tells what can be a folder that findPlace made: other names are not put into commands.
func ownFolder(dir string) bool {
	return strings.HasPrefix(dir, "/") && strings.HasPrefix(path.Base(dir), "chokepoint-") &&
		wordLike(strings.ReplaceAll(dir, "/", ""))
}

// put copies the program into the first folder that takes it and from which it runs. No other stays.
func (c *Connection) put(ctx context.Context, program string) (string, error) {
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
	for skipped := 0; ; {
		dir, at, err := c.findPlace(ctx, skipped)
		if err != nil || dir == "" {
			return "", cmp.Or(err, why)
		}
		skipped = at
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return "", errors.Join(err, c.remove(ctx, dir))
		}
		file := dir + "/agent"
		// Half a program, of a connection that was cut, does not stay.
		_, err = c.do(ctx, fmt.Sprintf(`exec /bin/sh -c 'umask 077; cat >%[1]s && `+
			`[ $(wc -c <%[1]s) = %[2]d ] && chmod 700 %[1]s && %[1]s version >/dev/null || `+
			`{ rm -rf %[3]s; exit 1; }'`, file, info.Size(), dir), f)
		if err == nil {
			return file, nil
		}
		if ctx.Err() != nil {
			return "", errors.Join(err, c.remove(ctx, dir))
		}
		why = fmt.Errorf("%w: it does not run in %s: %w", host.ErrUnsupported, dir, err)
	}
}

// remove removes a folder of ours, although ctx may be cancelled: that is when it has to.
func (c *Connection) remove(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), aliveEvery)
	defer cancel()
	_, err := c.Run(ctx, "rm -rf "+dir+"\n")
	return err
}
