package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lock waits until no other build of this user works on the cache. The kernel frees it when the process
// ends, however it ends.
func (r Recipe) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(r.Cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the image cache: %w", err)
	}
	for told := false; ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock the image cache: %w", err)
		}
		if !told {
			r.say("waiting for another build")
			told = true
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock the image cache: %w", context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// writeSynced writes a file that survives a loss of power once it is there.
func writeSynced(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// writeWhole replaces a file at once or not at all.
func writeWhole(name string, data []byte) error {
	part := name + ".part"
	if err := writeSynced(part, data); err != nil {
		return err
	}
	return os.Rename(part, name)
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// whole reports whether the files are there and not empty.
func whole(names ...string) bool {
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.Size() == 0 {
			return false
		}
	}
	return true
}
