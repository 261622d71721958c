package main

import (
	"crypto/rand"
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
	path string // as typed
	f    *os.File
	dir  *os.File // nil: f is what is written to, not a file of its own to be put in the place of another
	base string   // the name in dir
	name string   // that f has in dir until then, or ""
}

// createOutFile opens path for a result. What is no regular file, such as /dev/stdout or a pipe, is written
// to directly. No link of another user's is followed: it would have root write where that user says.
func createOutFile(path string) (*outFile, error) {
	failed := func(err error) (*outFile, error) {
		return nil, fmt.Errorf("write %s: %w", path, underlying(err))
	}
	if err := ownWay(path); err != nil {
		return nil, check.WithHint(fmt.Errorf("write %s: %w", path, err),
			"name a file in a place of your own")
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, check.WithHint(fmt.Errorf("write %s: it is a directory", path), "name a file in it")
	case err == nil && !info.Mode().IsRegular():
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return failed(err)
		}
		if now, err := f.Stat(); err != nil || now.Mode().IsRegular() {
			return failed(errors.Join(errors.New("it has just become another file"), err, f.Close()))
		}
		return &outFile{path: path, f: f}, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return failed(err)
	}
	// A link is followed, so that what it points to is replaced.
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	o := &outFile{path: path, base: filepath.Base(real)}
	if o.dir, err = openDir(filepath.Dir(real)); err != nil {
		return failed(err)
	}
	// The umask says who may read a new file; an old one's readers keep what they had.
	if err = o.createAside(); err == nil && info != nil {
		err = o.f.Chmod(info.Mode().Perm())
	}
	if err != nil {
		return failed(errors.Join(err, o.abort()))
	}
	return o, nil
}

// ownWay says whether a path leads only over links of this user or root, and not to a pipe of another's.
func ownWay(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	return walk(path, func(at string, info fs.FileInfo) error {
		if info.Mode()&(fs.ModeSymlink|fs.ModeNamedPipe|fs.ModeSocket) != 0 && !ours(info) {
			return fmt.Errorf("%s is a link or pipe of another user", at)
		}
		return nil
	})
}

// openDir opens a directory. Where the kernel can (5.6), nobody may have put a link into its path meanwhile.
func openDir(dir string) (*os.File, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, err
	}
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{Flags: flags,
		Resolve: unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		fd, err = unix.Open(dir, flags, 0)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// createAside makes a file in the directory; where the file system can, it has no name until it is finished,
// so that a killed program leaves no trace of it.
func (o *outFile) createAside() error {
	fd, err := unix.Openat(int(o.dir.Fd()), ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o666)
	if err != nil {
		o.name = o.aside()
		fd, err = unix.Openat(int(o.dir.Fd()), o.name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC,
			0o666)
	}
	if err != nil {
		o.name = ""
		return err
	}
	o.f = os.NewFile(uintptr(fd), o.path)
	return nil
}

// aside is a name beside the file's that nobody knows beforehand.
func (o *outFile) aside() string { return ".chokepoint-" + rand.Text() }

// commit writes the content and puts the file in its place.
func (o *outFile) commit(content []byte) error {
	_, err := o.f.Write(content)
	if err == nil && o.dir != nil {
		err = o.place()
	}
	if err == nil {
		o.name = ""
	}
	if err = errors.Join(err, o.abort()); err != nil {
		return fmt.Errorf("write %s: %w", o.path, underlying(err))
	}
	return nil
}

// place gives the finished file its name (open(2), O_TMPFILE). Where a file is there already, only a rename
// can replace it.
func (o *outFile) place() error {
	dir := int(o.dir.Fd())
	link := func(name string) error {
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", o.f.Fd()), dir, name,
			unix.AT_SYMLINK_FOLLOW)
	}
	if o.name == "" {
		if err := link(o.base); !errors.Is(err, fs.ErrExist) {
			return err
		}
		aside := o.aside()
		if err := link(aside); err != nil {
			return err
		}
		o.name = aside
	}
	return unix.Renameat(dir, o.name, dir, o.base)
}

// abort leaves everything as it was. After commit it does nothing.
func (o *outFile) abort() error {
	var err error
	if o.name != "" {
		err = unix.Unlinkat(int(o.dir.Fd()), o.name, 0)
	}
	for _, f := range []*os.File{o.f, o.dir} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	o.name, o.f, o.dir = "", nil, nil
	return err
}
