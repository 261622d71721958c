package driver

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ownNetwork has what the test starts run in a network namespace of its own, where it can make one: there no
// other test plays a controller.
func ownNetwork(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}

	runtime.LockOSThread() // never unlocked: the thread is thrown away
	must(t, unix.Unshare(unix.CLONE_NEWNET))
}

// TestGuard: a guard undoes what it was given last when nobody keeps in touch with it, and leaves nothing;
// one that is dismissed does nothing. The settings are files of the test's.
func TestGuard(t *testing.T) {
	t.Parallel()
	ownNetwork(t)
	h := host.Local()
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "it's a setting")
	undo := func(value string) string {
		w := &written{Host: h}
		must(t, writeWord(ctx, w, file, value))
		return w.text.String()
	}
	start := func(silence time.Duration) string {
		t.Helper()
		name, err := Linux{}.Guard(ctx, h, "", nil, silence)
		must(t, err)
		for _, value := range []string{"first", "last 'quoted' $HOME"} {
			_, err := feed(ctx, h, undo(value), armScript, name)
			must(t, err)
		}

		return name
	}
	name := start(time.Second)
	waitFor(30*time.Second, func() bool { return missing(name) })
	if got := get(t, file); got != "last 'quoted' $HOME\n" || !missing(name) {
		t.Errorf("after silence: got %q, want what was given last", got)
	}

	if err := (Linux{}).Touch(ctx, h, name); err == nil {
		t.Error("a guard that is gone is kept in touch with")
	}

	must(t, os.Remove(file))
	name = start(time.Hour)
	must(t, Linux{}.Touch(ctx, h, name))
	// Where no file can be made any more, as on a full disk.
	touched := filepath.Join(name, "touched")
	must(t, os.Mkdir(touched+".new", 0o700))
	put(t, touched, "0\n")
	must(t, Linux{}.Touch(ctx, h, name))
	if got := get(t, touched); got == "0\n" {
		t.Errorf("touched without room: got %q, want the time", got)
	}

	if err := (Linux{}).Dismiss(ctx, h, name); err != nil || !missing(name) {
		t.Errorf("dismiss: %v", err)
	}

	if !missing(file) {
		t.Error("a guard that was dismissed has undone something")
	}

	if err := (Linux{}).Dismiss(ctx, h, "/tmp"); err == nil {
		t.Error("a folder that is no guard's was dismissed")
	}
}

// TestAGuardIsKilled: a guard that was killed is missed, and keeps nobody away; one that lives does.
func TestAGuardIsKilled(t *testing.T) {
	ownNetwork(t)
	h := host.Local()
	ctx := t.Context()
	name, err := Linux{}.Guard(ctx, h, "", nil, time.Hour)
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(name) })
	_, err = Linux{}.Guard(ctx, h, "", nil, time.Hour)
	if err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("a second guard: got %v, want that there is %s", err, name)
	}

	_, err = shell(ctx, h, `read p <"$1/pid" && kill -9 "$p"`, name)
	must(t, err)
	if !waitFor(30*time.Second, func() bool { return Linux{}.Touch(ctx, h, name) != nil }) {
		t.Error("a guard that was killed is kept in touch with")
	}

	next, err := Linux{}.Guard(ctx, h, "", nil, time.Hour)
	if must(t, err); !missing(name) {
		t.Error("a guard after one that was killed leaves its folder")
	}

	must(t, Linux{}.Dismiss(ctx, h, next))
}

// TestUndoing: what undoes settings is written down, the last first, and nothing is done meanwhile.
func TestUndoing(t *testing.T) {
	script, err := undoing(t.Context(), host.Local(), Linux{}, []record.Setting{
		{Knob: "queue", Port: "none0", Value: "tbf rate 10M burst 32k limit 64k"},
		{Knob: "nat", Value: "off"}, {Knob: "link_mtu", Port: "none0", Value: "1500"}})
	must(t, err)
	at := -1
	for _, part := range []string{"'/sys/class/net/none0/mtu'", "delete table ip", "'10Mbit'"} {
		next := strings.Index(script, part)
		if next <= at {
			t.Errorf("%s is not behind what comes before it in:\n%s", part, script)
		}

		at = next
	}
}
