package driver

import (
	"errors"
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
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

// TestGuard: a guard undoes what it was given last when nobody keeps in touch with it, and leaves nothing;
// one that is dismissed does nothing. The settings are files of the test's.
func TestGuard(t *testing.T) {
	t.Parallel()
	ownNetwork(t)
	h, ctx := host.Local(), t.Context()
	file := filepath.Join(t.TempDir(), "it's a setting")
	undo := func(value string) string {
		w := &written{Host: h}
		if err := writeWord(ctx, w, file, value); err != nil {
			t.Fatal(err)
		}
		return w.text.String()
	}
	start := func(silence time.Duration) string {
		t.Helper()
		name, err := Linux{}.Guard(ctx, h, "", nil, silence)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{"first", "last 'quoted' $HOME"} {
			if _, err := feed(ctx, h, undo(value), armScript, name); err != nil {
				t.Fatal(err)
			}
		}
		return name
	}
	gone := func(name string) bool {
		_, err := os.Stat(name)
		return os.IsNotExist(err)
	}
	name := start(time.Second)
	for end := time.Now().Add(30 * time.Second); !gone(name) && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "last 'quoted' $HOME\n" || !gone(name) {
		t.Errorf("after silence: got %q, %v, want what was given last", b, err)
	}
	if err := (Linux{}).Touch(ctx, h, name); err == nil {
		t.Error("a guard that is gone is kept in touch with")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	name = start(time.Hour)
	if err := (Linux{}).Touch(ctx, h, name); err != nil {
		t.Error(err)
	}
	// Where no file can be made any more, as on a full disk.
	touched := filepath.Join(name, "touched")
	if err := errors.Join(os.Mkdir(touched+".new", 0o700), os.WriteFile(touched, []byte("0\n"), 0o600),
		Linux{}.Touch(ctx, h, name)); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(touched); err != nil || string(b) == "0\n" {
		t.Errorf("touched without room: got %q, %v, want the time", b, err)
	}
	if err := (Linux{}).Dismiss(ctx, h, name); err != nil || !gone(name) {
		t.Errorf("dismiss: %v", err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a guard that was dismissed has undone something: %v", err)
	}
	if err := (Linux{}).Dismiss(ctx, h, "/tmp"); err == nil {
		t.Error("a folder that is no guard's was dismissed")
	}
}

// TestAGuardIsKilled: a guard that was killed is missed, and keeps nobody away; one that lives does.
func TestAGuardIsKilled(t *testing.T) {
	ownNetwork(t)
	h, ctx := host.Local(), t.Context()
	name, err := Linux{}.Guard(ctx, h, "", nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(name) })
	_, err = Linux{}.Guard(ctx, h, "", nil, time.Hour)
	if err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("a second guard: got %v, want that there is %s", err, name)
	}
	if _, err := shell(ctx, h, `read p <"$1/pid" && kill -9 "$p"`, name); err != nil {
		t.Fatal(err)
	}
	err = nil
	for end := time.Now().Add(30 * time.Second); err == nil && time.Now().Before(end); {
		err = Linux{}.Touch(ctx, h, name)
	}
	if err == nil {
		t.Error("a guard that was killed is kept in touch with")
	}
	next, err := Linux{}.Guard(ctx, h, "", nil, time.Hour)
	if _, left := os.Stat(name); err != nil || !os.IsNotExist(left) {
		t.Errorf("a guard after one that was killed: %v, whose folder: %v", err, left)
	}
	if err := (Linux{}).Dismiss(ctx, h, next); err != nil {
		t.Error(err)
	}
}

// TestUndoing: what undoes settings is written down, the last first, and nothing is done meanwhile.
func TestUndoing(t *testing.T) {
	script, err := undoing(t.Context(), host.Local(), Linux{}, []record.Setting{
		{Knob: "queue", Port: "none0", Value: "tbf rate 10M burst 32k limit 64k"},
		{Knob: "nat", Value: "off"}, {Knob: "link_mtu", Port: "none0", Value: "1500"}})
	if err != nil {
		t.Fatal(err)
	}
	at := -1
	for _, part := range []string{"'/sys/class/net/none0/mtu'", "delete table ip", "'10Mbit'"} {
		next := strings.Index(script, part)
		if next <= at {
			t.Errorf("%s is not behind what comes before it in:\n%s", part, script)
		}
		at = next
	}
}
