package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// outFile is a result on its way into a file. It is written beside the file and takes its place when it is
// whole, so that a failure leaves the old one as it was. Opening it is the test of whether the place can be
// written to, before any work is done.
type outFile struct {
	path  string
	f     *os.File
	aside bool // f is a file of its own, to be put in the place of path
	named bool // f has a name in the directory of path
}

// createOutFile opens path for a result. What is no regular file, such as /dev/stdout or a pipe, is written
// to directly.
func createOutFile(path string) (*outFile, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, check.WithHint(fmt.Errorf("write %s: it is a directory", path), "name a file in it")
	case err == nil && !info.Mode().IsRegular():
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, fmt.Errorf("write %s: %v", path, underlying(err))
		}
		return &outFile{path: path, f: f}, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("write %s: %v", path, underlying(err))
	}
	// A link is followed, so that what it points to is replaced.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	f, named, err := createAside(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("write %s: %v", path, underlying(err))
	}
	return &outFile{path: path, f: f, aside: true, named: named}, nil
}

// createAside makes a file in dir; where the file system can, it has no name until it is finished, so that
// a killed program leaves no trace of it.
func createAside(dir string) (f *os.File, named bool, err error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(dir, "unnamed")), false, nil
	}
	f, err = os.CreateTemp(dir, ".chokepoint-*")
	return f, true, err
}

// commit writes the content and puts the file in its place.
func (o *outFile) commit(content []byte) error {
	_, err := o.f.Write(content)
	if err == nil && o.aside {
		// It was made for its owner's eyes; a report is there to be shown.
		err = o.f.Chmod(0o644)
	}
	if err == nil && o.aside && !o.named {
		err = o.giveName()
	}
	if err = errors.Join(err, o.f.Close()); err == nil && o.named {
		err = os.Rename(o.f.Name(), o.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %v", o.path, underlying(err)), o.remove())
	}
	o.f = nil
	return nil
}

// giveName links the finished file to its path (open(2), O_TMPFILE). Where a file is there already, only a
// rename can replace it.
func (o *outFile) giveName() error {
	link := func(name string) error {
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", o.f.Fd()), unix.AT_FDCWD, name,
			unix.AT_SYMLINK_FOLLOW)
	}
	err := link(o.path)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	aside := filepath.Join(filepath.Dir(o.path), fmt.Sprintf(".chokepoint-%d", os.Getpid()))
	if err := link(aside); err != nil {
		return err
	}
	if err := os.Rename(aside, o.path); err != nil {
		return errors.Join(err, os.Remove(aside))
	}
	return nil
}

// abort leaves everything as it was. After commit it does nothing.
func (o *outFile) abort() error {
	if o.f == nil {
		return nil
	}
	return errors.Join(o.f.Close(), o.remove())
}

func (o *outFile) remove() error {
	name := o.f.Name()
	o.f = nil
	if !o.named {
		return nil
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove unfinished %s: %v", name, underlying(err))
	}
	return nil
}
