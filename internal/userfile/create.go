// Package userfile opens files that the user names. It writes a result completely or not at all, and never
// through another user's link. Reads do not block on a pipe without a writer.
package userfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// File is a result that is being written. The content goes to a temporary file that replaces the named file
// when it is complete, so a failure leaves the old file unchanged. Create returns an error if the directory
// is not writable, before the caller does any work.
type File struct {
	path string // as the user typed it
	f    *os.File
	dir  *os.File // nil if f is the destination itself
	base string   // name of the file in dir
	name string   // temporary name of f in dir; "" if it has none
}

// CreateReport is like Create, for a report whose path the user did not name. A file created by root is
// readable only by root, because a report describes the machine and its logs.
func CreateReport(path string) (*File, error) {
	if os.Geteuid() == 0 {
		return createFile(path, 0o600)
	}
	return Create(path)
}

// Create opens path for writing with mode 0666, before the umask.
func Create(path string) (*File, error) { return createFile(path, 0o666) }

// Put writes content to a file opened by create. It writes the whole file or leaves the old one unchanged.
func Put(create func(path string) (*File, error), path string, content []byte) error {
	o, err := create(path)
	if err != nil {
		return err
	}
	return o.Commit(content)
}

// createFile opens path for writing. It writes directly to anything but a regular file, such as /dev/stdout
// or a pipe. It does not follow links of other users, because they could make root write anywhere: it
// resolves and checks the path once, then opens it without following links.
func createFile(path string, mode uint32) (*File, error) {
	real, err := Resolve(path)
	if err != nil {
		return nil, err
	}

	o, err := openOutFile(path, real, mode)
	if err != nil && check.HintOf(err) == "" {
		err = fmt.Errorf("write %s: %w", path, check.Underlying(err))
	}

	return o, err
}

// openOutFile implements createFile for a path that has been resolved to real.
func openOutFile(path, real string, mode uint32) (*File, error) {
	o := &File{path: path, base: filepath.Base(real)}
	var err error
	if o.dir, err = openDir(filepath.Dir(real)); err != nil {
		return nil, err
	}

	failed := func(err error) (*File, error) { return nil, errors.Join(err, o.Abort()) }
	there, err := o.there()
	if errors.Is(err, fs.ErrNotExist) {
		if err := o.createAside(mode); err != nil {
			return failed(check.Underlying(err))
		}
		return o, nil
	}

	if err != nil {
		return failed(err)
	}
	defer there.Close()
	info, err := there.Stat()
	switch {
	case err != nil:
		return failed(err)
	case info.IsDir():
		return failed(check.Hinted("name a file in it", "write %s: it is a directory", path))
	case info.Mode()&fs.ModeSymlink != 0 || astray(info):
		return failed(errAstray(path, real))
	case !info.Mode().IsRegular(): // opens the inode that was checked, even if its name was reused since
		f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", there.Fd()), os.O_WRONLY, 0)
		if err != nil {
			return failed(check.Underlying(err))
		}
		return &File{path: path, f: f}, o.dir.Close()
	}

	// An existing file of this user keeps its permissions. The permissions of another user's file are not
	// kept.
	if err := o.createAside(mode); err != nil {
		return failed(err)
	}

	if host.Owned(info) {
		if err := o.f.Chmod(info.Mode().Perm()); err != nil {
			return failed(check.Underlying(err))
		}
	}

	return o, nil
}

// there opens the existing file without following a link. In /proc, it follows links, because the kernel's
// links there lead to a process's open files.
func (o *File) there() (*os.File, error) {
	dir := int(o.dir.Fd())
	flags := unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW
	var system unix.Statfs_t
	if unix.Fstatfs(dir, &system) == nil && system.Type == unix.PROC_SUPER_MAGIC {
		flags &^= unix.O_NOFOLLOW
	}

	fd, err := unix.Openat(dir, o.base, flags, 0)
	if err != nil {
		return nil, err
	}

	return os.NewFile(uintptr(fd), o.path), nil
}

// astray reports whether info describes another user's link, pipe or socket.
func astray(info fs.FileInfo) bool {
	return info.Mode()&(fs.ModeSymlink|fs.ModeNamedPipe|fs.ModeSocket) != 0 && !host.Owned(info)
}

func errAstray(path, at string) error {
	return check.Hinted("name a file in a place of your own",
		"write %s: %s is a link or pipe of another user", path, at)
}

// Resolve returns the absolute path without links. It returns an error for a link, pipe or socket that
// belongs neither to this user nor to root.
func Resolve(path string) (real string, err error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		real, err = host.Walk(abs, func(at string, info fs.FileInfo) error {
			if astray(info) {
				return errAstray(path, at)
			}
			return nil
		})
	}

	if err != nil && check.HintOf(err) == "" {
		err = fmt.Errorf("write %s: %w", path, check.Underlying(err))
	}

	return real, err
}

// openDir opens a directory by an absolute path. It returns an error if a component of the path has become a
// link.
func openDir(dir string) (*os.File, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW
	fd, err := unix.Open("/", flags, 0)
	for name := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if err != nil || name == "" {
			break
		}

		next, openErr := unix.Openat(fd, name, flags, 0)
		unix.Close(fd)
		fd, err = next, openErr
	}

	if err != nil {
		return nil, err
	}

	return os.NewFile(uintptr(fd), dir), nil
}

// createAside creates the temporary file. If the file system supports O_TMPFILE, the file has no name until
// it is complete, so a killed program leaves nothing behind.
func (o *File) createAside(mode uint32) error {
	fd, err := unix.Openat(int(o.dir.Fd()), ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, mode)
	if err != nil {
		o.name = o.aside()
		fd, err = unix.Openat(int(o.dir.Fd()), o.name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC,
			mode)
	}

	if err != nil {
		o.name = ""
		return err
	}

	o.f = os.NewFile(uintptr(fd), o.path)
	return nil
}

// aside returns an unpredictable name for the temporary file.
func (o *File) aside() string { return ".chokepoint-" + rand.Text() }

// Commit writes the content and puts the file in its place.
func (o *File) Commit(content []byte) error {
	_, err := o.f.Write(content)
	if err == nil && o.dir != nil {
		err = o.place()
	}

	if err == nil {
		o.name = ""
	}

	if err = errors.Join(err, o.Abort()); err != nil {
		return fmt.Errorf("write %s: %w", o.path, check.Underlying(err))
	}

	return nil
}

// place gives the complete file its name (see O_TMPFILE in open(2)). linkat cannot replace an existing file,
// so place replaces a file by renaming.
func (o *File) place() error {
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

// Abort discards the temporary file and leaves the old one unchanged. After Commit, it does nothing.
func (o *File) Abort() error {
	var err error
	if o.name != "" {
		err = unix.Unlinkat(int(o.dir.Fd()), o.name, 0)
	}

	for _, f := range []*os.File{o.f, o.dir} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}

	o.name = ""
	o.f = nil
	o.dir = nil
	return err
}
