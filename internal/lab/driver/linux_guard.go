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

// lookForOthers fails if another controller has changed settings or is about to do so. It looks for the
// directory of a running guard and, only in the router's network namespace, for the abstract socket of an
// agent (see package agent). $d is the directory of our own guard. It is created before the search, so if two
// controllers start at the same time, at most one continues. $own lists our other guards. The script ignores
// directories and sockets of other users, because any user can create them. It removes directories of guards
// whose process was killed or ended by a reboot, because nothing else removes them.
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

// guardScript starts a guard and prints the guard's directory. If the guard is not touched for $1 seconds, it
// runs the script "undo" in its directory. This script is replaced atomically. The guard uses the time since
// boot, which does not change when the clock is set. A reboot stops the guard but also undoes the settings,
// because they belong to the running kernel.
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

// armScript atomically replaces the undo script of a guard with its standard input.
const armScript = `[ -d "$1" ] || exit 1; umask 077; cat >"$1/undo.new" && mv -f "$1/undo.new" "$1/undo"`

// touchScript touches a guard: it replaces the time in the guard's directory with the current time. It fails
// if the guard is not running. If the disk is full, it overwrites the previous time in place. This works
// because the new text is not shorter.
const touchScript = `[ -d "$1" ] && read p <"$1/pid" && grep -qs chokepoint-guard "/proc/$p/cmdline" || exit 1
read up rest </proc/uptime
{ echo "${up%%.*}" >"$1/touched.new" && mv -f "$1/touched.new" "$1/touched"; } 2>/dev/null ||
echo "${up%%.*}" 1<>"$1/touched"`

var errNoGuard = errors.New("its guard is gone")

// Free implements Guarded.
func (Linux) Free(ctx context.Context, h host.Host, own ...string) error {
	return free(ctx, h, "d="+lookForOthers, own)
}

// free runs a script that looks for other controllers on the router. own lists our guards.
func free(ctx context.Context, h host.Host, script string, own []string) error {
	_, err := ask(ctx, h, "look for other controllers", "own=$*; "+script, own...)
	return hinted(err)
}

// inUse is the exit code of scripts if another controller is using the router (EX_TEMPFAIL).
const inUse = 75

// hinted adds a hint to err if it is the error of a script that exited with inUse.
func hinted(err error) error {
	if code, _ := host.ExitCode(err); code == inUse {
		return check.WithHint(err, othersHint)
	}
	return err
}

const othersHint = "wait until its run has ended; if that was killed, run chokepoint lab restore where it " +
	"was started"

// Guard implements Guarded.
func (x Linux) Guard(ctx context.Context, h host.Host, name string, undo []record.Setting,
	silence time.Duration) (string, error) {
	return guard(ctx, h, x, guardScript, name, undo, silence)
}

// guard starts a guard of driver d by running the script start. If name is not empty, it instead rearms the
// guard with this name.
func guard(ctx context.Context, h host.Host, d interface {
	Driver
	Guarded
}, start, name string, undo []record.Setting, silence time.Duration) (string, error) {
	script, err := undoing(ctx, h, d, undo)
	if err == nil && name == "" {
		var out string
		out, err = shell(ctx, h, start, strconv.Itoa(int(silence/time.Second)))
		_, name, _ = strings.Cut(strings.TrimSpace(out), "chokepoint-guard ")
		if err == nil && name == "" {
			err = fmt.Errorf("it says %q, want a folder", out)
		}
	}

	if err == nil {
		_, err = feed(ctx, h, script, armScript, name)
	}

	if err != nil {
		return name, hinted(failed(h, "install the guard", err))
	}

	return name, d.Touch(ctx, h, name)
}

// Touch implements Guarded.
func (Linux) Touch(ctx context.Context, h host.Host, name string) error {
	return touch(ctx, h, touchScript, name)
}

func touch(ctx context.Context, h host.Host, script, name string) error {
	_, err := shell(ctx, h, script, name)
	return untouched(h, err)
}

// untouched returns an error if a guard could not be touched.
func untouched(h host.Host, err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %w", errNoGuard, err)
	}
	return failed(h, "touch the guard", err)
}

// Dismiss implements Guarded.
func (Linux) Dismiss(ctx context.Context, h host.Host, name string) error {
	err := fmt.Errorf("%q is none", name)
	if strings.HasPrefix(path.Base(name), "chokepoint-guard") {
		_, err = shell(ctx, h, `rm -rf "$1"`, name)
	}

	return failed(h, "dismiss the guard", err)
}

// undoing returns a script that applies settings in reverse order and continues after errors.
func undoing(ctx context.Context, h host.Host, d Driver, undo []record.Setting) (string, error) {
	w := &written{Host: h}
	for _, s := range slices.Backward(undo) {
		if err := d.Apply(ctx, w, s); err != nil {
			return "", fmt.Errorf("write down how it is undone: %w", err)
		}
	}
	return w.text.String(), nil
}

// written is a host that records the commands that would change the router instead of running them. It
// records them as a shell script or, for RouterOS, as console statements.
type written struct {
	host.Host
	text       strings.Builder
	statements []string
}

// WriteFile records a write to a file.
func (w *written) WriteFile(_ context.Context, path string, data []byte) error {
	w.add(string(data), `cat >"$1"`, path)
	return nil
}

// add records a command and its standard input.
func (w *written) add(input, script string, args ...string) {
	fmt.Fprintf(&w.text, "printf %%s %s | sh -c %s sh", host.Quote(input),
		host.Quote(ownPath+script))
	for _, a := range args {
		w.text.WriteString(" " + host.Quote(a))
	}

	w.text.WriteString("\n")
}

// change runs a script that changes the router, or records it if h is a *written.
func change(ctx context.Context, h host.Host, script string, args ...string) error {
	return changeBy(ctx, h, "", script, args...)
}

// changeBy is like change, but passes input to the script's standard input.
func changeBy(ctx context.Context, h host.Host, input, script string, args ...string) error {
	if w, ok := h.(*written); ok {
		w.add(input, script, args...)
		return nil
	}

	_, err := feed(ctx, h, input, script, args...)
	return err
}
