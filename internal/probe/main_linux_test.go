package probe

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// isolatedMark tells the program that it already runs in namespaces of its own.
const isolatedMark = "CHOKEPOINT_PROBE_TEST_ISOLATED"

// TestMain gives the whole test program network and mount namespaces of its own where it may, so that the
// counters it moves are nobody else's. It becomes itself again inside: only so /proc/net and /sys are the
// new ones.
func TestMain(m *testing.M) {
	if os.Geteuid() == 0 && os.Getenv(isolatedMark) == "" {
		if err := isolate(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}

	if isolated() {
		if err := kernel.Up("lo"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}

	os.Exit(m.Run())
}

func isolated() bool { return os.Getenv(isolatedMark) != "" }

func isolate() error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare network and mount namespace: %w", err)
	}

	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}

	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}

	program, err := os.Executable()
	if err != nil {
		return err
	}

	return syscall.Exec(program, os.Args, append(os.Environ(), isolatedMark+"=1"))
}

func needIsolation(t *testing.T) {
	t.Helper()
	if !isolated() {
		t.Skip("skip: needs root to make a network namespace")
	}
}

// pair makes a veth link whose ends are both in the test's namespace.
func pair(t *testing.T) (a, b string) {
	t.Helper()
	needIsolation(t)
	a, b = "pa0", "pb0"
	must(t, kernel.AddVeth(kernel.VethEnd{Name: a}, kernel.VethEnd{Name: b}, 1))
	t.Cleanup(func() { must(t, kernel.DeleteLink(a)) })
	must(t, kernel.Up(a))
	must(t, kernel.Up(b))
	return a, b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
