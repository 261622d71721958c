package driver

import (
	"context"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// bsdLookForOthers fails if this user runs a guard that is not listed in $own.
const bsdLookForOthers = `for g in /var/run/chokepoint-guard.* /tmp/chokepoint-guard.* /var/tmp/chokepoint-guard.*; do
case " $own " in *" $g "*) continue;; esac
[ -O "$g" ] && [ ! -h "$g" ] && [ -d "$g" ] || continue
p=; [ ! -f "$g/pid" ] || read p <"$g/pid"
case "$(ps -o command= -p "${p:-0}" 2>/dev/null)" in
*"$g"*) echo "another controller has set something here: its guard is $g" >&2; exit 75;; esac
rm -rf "$g"; done
`

// bsdGuardScript starts a guard and prints the guard's directory. The guard measures time by counting its
// sleeps of 2 s (sleep(1) uses the uptime clock). It cannot compute the time since boot, because
// kern.boottime changes when the clock is set (time(9)) and there is no /proc. If the guard gets too little
// CPU time, it acts later. A reboot undoes all settings but may leave the directory, so the directory counts
// only while the guard's process runs. The guard runs the script "undo" in its directory. This script is
// replaced atomically.
const bsdGuardScript = `umask 077; own=
` + bsdLookForOthers + `for t in /var/run /tmp /var/tmp; do
d=$(mktemp -d "$t/chokepoint-guard.XXXXXXXXXX" 2>/dev/null) && break; d=; done
[ -n "$d" ] || { echo "no folder can be written" >&2; exit 69; }
cat >"$d/guard" <<'end'
trap '' HUP
renice -n -20 -p $$ >/dev/null 2>&1
n=0
while sleep 2 && [ -d "$1" ]; do
n=$((n+2)); [ ! -f "$1/touched" ] || { rm -f "$1/touched"; n=0; }
[ $n -lt "$2" ] && continue
[ ! -f "$1/undo" ] || sh "$1/undo"
rm -rf "$1"; done
end
sh "$d/guard" "$d" "$1" </dev/null >/dev/null 2>&1 &
echo $! >"$d/pid"; echo "chokepoint-guard $d"`

// bsdTouchScript resets the timeout of a guard. It fails if the guard is not running.
const bsdTouchScript = `[ -d "$1" ] && read p <"$1/pid" && kill -0 "$p" || exit 1; : >"$1/touched"`

// Free implements Guarded.
func (FreeBSD) Free(ctx context.Context, h host.Host, own ...string) error {
	return free(ctx, h, bsdLookForOthers, own)
}

// Guard implements Guarded.
func (x FreeBSD) Guard(ctx context.Context, h host.Host, name string, undo []record.Setting,
	silence time.Duration) (string, error) {
	return guard(ctx, h, x, bsdGuardScript, name, undo, silence)
}

// Touch implements Guarded.
func (FreeBSD) Touch(ctx context.Context, h host.Host, name string) error {
	return touch(ctx, h, bsdTouchScript, name)
}

// Dismiss implements Guarded.
func (FreeBSD) Dismiss(ctx context.Context, h host.Host, name string) error {
	return Linux{}.Dismiss(ctx, h, name)
}
