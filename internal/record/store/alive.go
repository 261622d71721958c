package store

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// AliveError is returned for a run that another program records.
type AliveError struct{ Run string }

func (e *AliveError) Error() string { return "run " + e.Run + ": another program records it" }

// lockOf returns the lock that marks a run as being recorded. It covers one byte, at an offset that depends
// on the run, or all bytes if run is "". The lock is on a file beside the store rather than in a directory of
// the recording user, so that everyone who can read the store sees it. The kernel removes the lock when the
// process ends, even if it is killed.
func lockOf(run string) unix.Flock_t {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if run != "" {
		sum := sha256.Sum256([]byte(run))
		l.Start, l.Len = int64(binary.BigEndian.Uint64(sum[:])>>2), 1
	}
	return l
}

// openAlive opens the file of the locks.
func (s *Store) openAlive(how int) (*os.File, error) {
	return os.OpenFile(s.path+"-alive", how|unix.O_NOFOLLOW, 0o600)
}

// Record marks runs as being recorded by this process. The marks last until the caller closes end. Record
// returns an *AliveError if another program records one of the runs. A server has no such marks, because only
// runs that have ended are sent to it.
func (s *Store) Record(runs ...string) (end io.Closer, err error) {
	if s.server {
		return io.NopCloser(nil), nil
	}

	f, err := s.openAlive(os.O_RDWR | os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("record in %s: %w", s.path, err)
	}

	// Everyone who can read the store must be able to see which runs are being recorded.
	if info, err := os.Stat(s.path); err == nil {
		_ = f.Chmod(info.Mode().Perm()) // only the file's owner may change its mode
	}

	for _, run := range runs {
		l := lockOf(run)
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			err = &AliveError{run}
		}

		if err != nil {
			return nil, errors.Join(fmt.Errorf("record in %s: %w", s.path, err), f.Close())
		}
	}

	return f, nil
}

// Alive reports whether a program records a run, or any run if run is "". If the user has no permission to
// find out, it returns true.
func (s *Store) Alive(run string) (bool, error) {
	if s.server {
		return false, nil
	}

	f, err := s.openAlive(os.O_RDONLY)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, fs.ErrPermission):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("look who records in %s: %w", s.path, err)
	}
	defer f.Close()
	l := lockOf(run)
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l); err != nil {
		return false, fmt.Errorf("look who records in %s: %w", s.path, err)
	}

	return l.Type != unix.F_UNLCK, nil
}
