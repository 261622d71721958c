package probe

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Root holds the mount points of the kernel's file systems. Empty fields mean /proc, /sys and /dev. Tests use
// their own directory trees.
type Root struct{ Proc, Sys, Dev string }

func (root Root) proc(name string) string { return filepath.Join(cmp.Or(root.Proc, "/proc"), name) }
func (root Root) sys(name string) string  { return filepath.Join(cmp.Or(root.Sys, "/sys"), name) }
func (root Root) dev(name string) string  { return filepath.Join(cmp.Or(root.Dev, "/dev"), name) }

// absentError explains why a source does not exist on this machine. It wraps host.ErrUnsupported.
type absentError struct{ reason string }

func (e *absentError) Error() string        { return e.reason }
func (e *absentError) Is(target error) bool { return target == host.ErrUnsupported }

func absent(format string, args ...any) error { return &absentError{fmt.Sprintf(format, args...)} }

// file is an open file that is read from the start each time. Keeping it open saves 13–22 % of the time of
// a read. The buffer grows to the size of the file and is reused.
type file struct {
	f   *os.File
	fd  int // file descriptor of f
	buf []byte
}

// openFile opens a kernel file. If the file does not exist, the error includes the reason given in why.
func openFile(path, why string) (*file, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, absent("%s does not exist: %s", path, why)
	}

	if err != nil {
		return nil, err
	}

	return &file{f: f, fd: int(f.Fd()), buf: make([]byte, 1024)}, nil
}

// shortRead is a length in bytes. A read that returns less has reached the end of the file. The kernel
// returns whole records, in pages of at least 4 KiB, and returns less than requested only if the next record
// does not fit into the page (fs/seq_file.c, seq_read_iter). No record in our files is as long as 2 KiB, so
// another read after a shorter result would be wasted.
const shortRead = 2048

// read returns the contents of the file, valid until the next read.
func (f *file) read() ([]byte, error) {
	for have := 0; ; {
		if have == len(f.buf) { // start over, because two reads would show different moments
			f.buf = make([]byte, 2*len(f.buf))
			have = 0
		}

		n, err := pread(f.fd, f.buf[have:], int64(have))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: f.f.Name(), Err: err}
		case n == 0:
			return f.buf[:have], nil
		case have+n < min(shortRead, len(f.buf)):
			return f.buf[:have+n], nil
		default:
			have += n
		}
	}
}

func (f *file) Close() error {
	if f == nil {
		return nil
	}
	return f.f.Close()
}

// text is a file that is parsed after each read. now holds the last result, whose memory is reused.
type text[T any] struct {
	*file
	parse func(b []byte, reuse T) (T, error)
	now   T
}

func openText[T any](path, why string, parse func([]byte, T) (T, error)) (text[T], error) {
	f, err := openFile(path, why)
	return text[T]{file: f, parse: parse}, err
}

// update reads and parses the file.
func (t *text[T]) update() error {
	b, err := t.read()
	if err != nil {
		return err
	}

	now, err := t.parse(b, t.now)
	if err == nil {
		t.now = now
	}

	return err
}

// number reads a file that contains one integer. It returns NaN on error.
func (f *file) number() float64 {
	if b, err := f.read(); err == nil {
		w, _ := word(b)
		if v, ok := signed(w); ok {
			return v
		}
	}
	return nan
}

// readWord returns the first line of a small file, or "" on error.
func readWord(path string) string {
	b, _ := os.ReadFile(path)
	l, _ := line(b)
	return string(trim(l))
}

var nan = math.NaN()

func fill(dst []float64, v float64) {
	for i := range dst {
		dst[i] = v
	}
}
