package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// lock waits until no other build uses the cache, and reserves the cache. The kernel releases the lock when
// the process exits.
func (r Recipe) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(r.Cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the image cache: %w", err)
	}

	for told := false; ; told = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}

		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
			if !told {
				r.say("waiting for another build")
			}

			err = host.Pause(ctx, 100*time.Millisecond)
		}

		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock the image cache: %w", err)
		}
	}
}

// writeSynced writes a file and returns once it is on stable storage.
func writeSynced(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}

	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// writeWhole atomically replaces a file.
func writeWhole(name string, data []byte) error {
	part := name + ".part"
	if err := writeSynced(part, data); err != nil {
		return err
	}
	return os.Rename(part, name)
}

// whole reports whether all files exist and are not empty.
func whole(names ...string) bool {
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.Size() == 0 {
			return false
		}
	}
	return true
}

// keyOf returns a short hash of values, for use in file names.
func keyOf(values ...any) string {
	b, _ := json.Marshal(values) // never returns an error for text and numbers
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// fileSum returns the SHA-256 of a file in hexadecimal.
func fileSum(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}

	return hex.EncodeToString(h.Sum(nil)), nil
}

// treesKey returns a short hash of the names, sizes and modification times of the files at and below paths.
// It ignores entries for which skip returns true.
func treesKey(skip func(fs.DirEntry) bool, paths ...string) (string, error) {
	var files []any
	for _, root := range paths {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case skip(d) && d.IsDir():
				return fs.SkipDir
			case skip(d) || !d.Type().IsRegular():
				return nil
			}

			info, err := d.Info()
			if err == nil {
				files = append(files, strings.TrimPrefix(p, root), info.Size(), info.ModTime().UnixNano())
			}

			return err
		})
		if err != nil {
			return "", err
		}
	}
	return keyOf(files...), nil
}

const keep = 30 * 24 * time.Hour // time after which unused files are removed from the cache
const workFolder = ".work-"      // name prefix of incomplete directories

// forgetOld removes unused and incomplete directories from the cache. It ignores errors. The caller must hold
// the lock.
func (r Recipe) forgetOld(now time.Time) {
	entries, err := os.ReadDir(r.Cache)
	if err != nil {
		return
	}

	for _, e := range entries {
		kind, _, _ := strings.Cut(e.Name(), "-")
		info, err := e.Info()
		if err != nil {
			continue
		}

		if kind+"-" == workFolder || slices.Contains([]string{"base", "image", "agent"}, kind) &&
			now.Sub(info.ModTime()) > keep {
			_ = os.RemoveAll(filepath.Join(r.Cache, e.Name()))
		}
	}
}
