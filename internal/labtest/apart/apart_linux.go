package apart

import (
	"context"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Network runs f in a new network namespace. Processes that f starts run there, too.
func Network(t testing.TB, f func(ctx context.Context) error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skip: needs root to make a network namespace")
	}

	done := make(chan struct{})
	go func() {
		defer close(done)      // even if f ends the test
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = f(t.Context())
		}

		if err != nil {
			t.Error(err)
		}
	}()
	<-done
}
