package driver

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// lookForOthers refuses a router on which another controller has set something, or is about to. It looks for
// the directory of a guard at work, or the abstract socket of an agent, see package agent; in this network
// namespace, if the router is one. $d is our own directory, which is made first: of two who do so at once at
// most one continues. $own lists more of ours. Those of another user are ignored, as anybody can make one. A
// directory whose process was killed, or ended with a reboot that the directory outlived, is removed: nobody
// else would.
const lookForOthers = `
refuse() { [ -z "$d" ] || rm -rf "$d"; echo "another controller has set something here: its $1" >&2; exit 75; }
n=$(readlink /proc/self/ns/net)
for t in /run /tmp /dev/shm /var/tmp; do for g in $t/chokepoint-guard-*; do
case " $d $own " in *" $g "*) continue;; esac
[ -O "$g" ] && [ ! -h "$g" ] && [ -f "$g/touched" ] || continue
p=; [ ! -f "$g/pid" ] || read p <"$g/pid"
[ -n "$p" ] && ! grep -qs chokepoint-guard "/proc/$p/cmdline" && rm -rf "$g" && continue
[ -z "$p" ] || [ "$(readlink "/proc/$p/ns/net")" = "$n" ] || continue
refuse "guard is $g"; done; done
for s in $(sed -n 's/.* \([0-9]*\) @chokepoint-agent-machine-\([0-9][0-9]*\)-.*/\1:\2/p' \
/proc/net/unix 2>/dev/null); do
p=${s#*:}; [ -O "/proc/$p" ] && ls -l "/proc/$p/fd" 2>/dev/null | grep -q "socket:\[${s%%:*}\]" || continue
refuse "agent is process $p"; done
`

// guardScript starts a guard and prints its directory. It counts the seconds since boot, which changing the
// clock does not affect; the settings belong to the running kernel, so that a reboot undoes them as well. It
// runs the script beside it, which is either complete or absent.
const guardScript = `umask 077; own=
read up rest </proc/uptime
for t in /run /tmp /dev/shm /var/tmp; do
d=$(mktemp -d "$t/chokepoint-guard-XXXXXX" 2>/dev/null) || { d=; continue; }
echo $$ >"$d/pid" && echo "${up%%.*}" >"$d/touched" && break; rm -rf "$d"; d=; done
[ -n "$d" ] || { echo "no folder can be written" >&2; exit 69; }` + lookForOthers + `
( trap '' HUP; while sleep 2 && [ -f "$d/touched" ]; do
read up rest </proc/uptime; read at <"$d/touched"
[ $((${up%%.*} - at)) -lt "$1" ] && continue
[ ! -f "$d/undo" ] || sh "$d/undo"
rm -rf "$d"; done ) </dev/null >/dev/null 2>&1 &
echo $! 1<>"$d/pid"; echo "chokepoint-guard $d"`

// armScript replaces the guard's script with its input.
const armScript = `[ -d "$1" ] || exit 1; umask 077; cat >"$1/undo.new" && mv -f "$1/undo.new" "$1/undo"`

// touchScript fails if the guard is no longer there. On a full disk it overwrites the previous time, whose
// text is not longer than that of the new one.
const touchScript = `[ -d "$1" ] && read p <"$1/pid" && grep -qs chokepoint-guard "/proc/$p/cmdline" || exit 1
read up rest </proc/uptime
{ echo "${up%%.*}" >"$1/touched.new" && mv -f "$1/touched.new" "$1/touched"; } 2>/dev/null ||
echo "${up%%.*}" 1<>"$1/touched"`

var errNoGuard = errors.New("its guard is gone")

// Free implements Guarded.
func (Linux) Free(ctx context.Context, h host.Host, own ...string) error {
	return free(ctx, h, "d="+lookForOthers, own)
}

// free runs the part of a guard's script that looks for others.
func free(ctx context.Context, h host.Host, script string, own []string) error {
	if _, err := shell(ctx, h, "own=$*; "+script, own...); err != nil {
		return hinted(fmt.Errorf("look for other controllers on %s: %w", h.Name(), err))
	}
	return nil
}

// inUse is a script's exit code for a router that another controller has (EX_TEMPFAIL).
const inUse = 75

// hinted adds advice if another controller has the router.
func hinted(err error) error {
	code, _ := host.ExitCode(err)
	if code != inUse {
		return err
	}
	return check.WithHint(err, othersHint)
}

const othersHint = "wait until its run has ended; if that was killed, run chokepoint lab restore where it " +
	"was started"

// Guard implements Guarded.
func (x Linux) Guard(ctx context.Context, h host.Host, name string, undo []record.Setting,
	silence time.Duration) (string, error) {
	return guard(ctx, h, x, guardScript, name, undo, silence)
}

// guard starts a driver's guard by a script, or rearms the guard of that name.
func guard(ctx context.Context, h host.Host, d interface {
	Driver
	Guarded
}, start, name string, undo []record.Setting, silence time.Duration) (string, error) {
	script, err := undoing(ctx, h, d, undo)
	if err == nil && name == "" {
		var out string
		out, err = shell(ctx, h, start, strconv.Itoa(int(silence/time.Second)))
		if _, dir, ok := strings.Cut(strings.TrimSpace(out), "chokepoint-guard "); ok && err == nil {
			name = dir
		} else if err == nil {
			err = fmt.Errorf("it says %q, want a folder", out)
		}
	}

	if err == nil {
		_, err = feed(ctx, h, script, armScript, name)
	}

	if err != nil {
		return name, hinted(fmt.Errorf("guard %s: %w", h.Name(), err))
	}

	return name, d.Touch(ctx, h, name)
}

// Touch implements Guarded.
func (Linux) Touch(ctx context.Context, h host.Host, name string) error {
	return touch(ctx, h, touchScript, name)
}

func touch(ctx context.Context, h host.Host, script, name string) error {
	if _, err := shell(ctx, h, script, name); err != nil {
		return fmt.Errorf("keep in touch with %s: %w: %w", h.Name(), errNoGuard, err)
	}
	return nil
}

// Dismiss implements Guarded.
func (Linux) Dismiss(ctx context.Context, h host.Host, name string) error {
	if !strings.HasPrefix(path.Base(name), "chokepoint-guard") {
		return fmt.Errorf("dismiss the guard of %s: %q is none", h.Name(), name)
	}

	if _, err := shell(ctx, h, `rm -rf "$1"`, name); err != nil {
		return fmt.Errorf("dismiss the guard of %s: %w", h.Name(), err)
	}
	return nil
}

// undoing returns the script that applies settings, the last first. It continues after errors.
func undoing(ctx context.Context, h host.Host, d Driver, undo []record.Setting) (string, error) {
	w := &written{Host: h}
	for _, s := range slices.Backward(undo) {
		if err := d.Apply(ctx, w, s); err != nil {
			return "", fmt.Errorf("write down how it is undone: %w", err)
		}
	}
	return w.text.String(), nil
}

// written is a host on which nothing changes: commands that would change something are written down, as a
// shell script or, for RouterOS, as statements of its console.
type written struct {
	host.Host
	text       strings.Builder
	statements []string
}

// WriteFile writes down a write to a file of the kernel.
func (w *written) WriteFile(_ context.Context, path string, data []byte) error {
	w.add(string(data), `cat >"$1"`, path)
	return nil
}

// add writes down a command with its input.
func (w *written) add(input, script string, args ...string) {
	fmt.Fprintf(&w.text, "printf %%s %s | sh -c %s sh", host.Quote(input),
		host.Quote(ownPath+script))
	for _, a := range args {
		w.text.WriteString(" " + host.Quote(a))
	}

	w.text.WriteString("\n")
}

// change returns shell code for commands that change the router. On a host that writes changes down it does
// so.
func change(ctx context.Context, h host.Host, script string, args ...string) error {
	return changeBy(ctx, h, "", script, args...)
}

// changeBy is change for a script with an input.
func changeBy(ctx context.Context, h host.Host, input, script string, args ...string) error {
	if w, ok := h.(*written); ok {
		w.add(input, script, args...)
		return nil
	}

	_, err := feed(ctx, h, input, script, args...)
	return err
}
