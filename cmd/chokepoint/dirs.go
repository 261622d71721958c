package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// dirs are the program's directories, after the XDG base directory specification 0.8. None is created by
// finding it.
type dirs struct {
	Data    string // the store and the reports
	State   string // the journal of what was changed
	Cache   string // what can be made again: images of guests
	Runtime string // sockets; gone after a reboot
	Note    string // why they are not where they are expected, or ""
}

func (d dirs) storeFile() string { return filepath.Join(d.Data, "runs.db") }

func (d dirs) vmCache() string { return filepath.Join(d.Cache, "vm") }

// reportFile is where the report of a run is put unless told otherwise.
func (d dirs) reportFile(run string) string {
	return filepath.Join(d.Data, "runs", run, "report.html")
}

// findDirs reads the environment. Without a home directory that can be written to, everything is kept below
// /var/tmp, in a directory of this user. For root, another user's directories are none: sudo may have left
// them in the environment.
func findDirs(environment func(string) string, uid int) dirs {
	ignored := ""
	getenv := func(name string) string {
		dir := environment(name)
		if uid == 0 && filepath.IsAbs(dir) && ownerOf(nearest(dir)) != 0 {
			if name != "XDG_RUNTIME_DIR" { // which nobody looks into
				ignored = fmt.Sprintf("%s=%s is ignored: it is another user's, and this is root", name, dir)
			}
			return ""
		}
		return dir
	}
	home := getenv("HOME")
	if home == "" {
		if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
			home = u.HomeDir
		}
	}
	spare := filepath.Join("/var/tmp", "chokepoint-"+strconv.Itoa(uid))
	d := dirs{}
	place := func(variable, below, short string) string {
		// The specification says to ignore a relative path.
		if dir := getenv(variable); filepath.IsAbs(dir) {
			return filepath.Join(dir, "chokepoint")
		}
		dir := filepath.Join(home, below, "chokepoint")
		if filepath.IsAbs(home) && canWrite(dir) {
			return dir
		}
		why := "there is no home directory"
		if home != "" {
			why = "the home directory " + home + " cannot be written to"
		}
		d.Note = fmt.Sprintf("%s; results are kept in %s (set XDG_DATA_HOME and XDG_STATE_HOME to choose)",
			why, spare)
		return filepath.Join(spare, short)
	}
	d.Data = place("XDG_DATA_HOME", ".local/share", "data")
	d.State = place("XDG_STATE_HOME", ".local/state", "state")
	said := d.Note
	d.Cache = place("XDG_CACHE_HOME", ".cache", "cache")
	d.Note = cmp.Or(said, ignored) // nobody looks for what can be made again
	d.Runtime = runtimeDir(getenv, uid)
	return d
}

// runtimeDir is the session's own directory where there is one.
func runtimeDir(getenv func(string) string, uid int) string {
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && canWrite(dir) {
		return filepath.Join(dir, "chokepoint")
	}
	if dir := filepath.Join("/run/user", strconv.Itoa(uid)); canWrite(dir) && exists(dir) {
		return filepath.Join(dir, "chokepoint")
	}
	if uid == 0 && canWrite("/run") {
		return "/run/chokepoint"
	}
	return filepath.Join(os.TempDir(), "chokepoint-"+strconv.Itoa(uid), "run")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// canWrite says whether files can be made in dir, or dir itself in the nearest directory above it that
// exists.
func canWrite(dir string) bool {
	dir = nearest(dir)
	info, err := os.Stat(dir)
	return err == nil && info.IsDir() && unix.Access(dir, unix.W_OK|unix.X_OK) == nil
}

// prepare makes directories for this user alone.
func prepare(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return check.WithHint(fmt.Errorf("create directory %s: %v", dir, underlying(err)), "set "+
				"XDG_DATA_HOME, XDG_STATE_HOME or XDG_RUNTIME_DIR to a directory that can be written to")
		}
		if err := trusted(dir); err != nil {
			return err
		}
	}
	return nil
}

// clearRuntime removes the runtime directories if they are empty, so that nothing is left of a lab that is
// gone.
func clearRuntime(d dirs) {
	if os.Remove(labsDir(d)) == nil {
		_ = os.Remove(d.Runtime) // holds another program's files, or is in use
	}
}

// trusted refuses a directory that another user may have put there or may change: as sshd does, it wants
// every part of the path to be this user's or root's and closed to others' writing. A group may write if it
// is this user's own. Where everybody may write because of the sticky bit, a link is refused as well.
func trusted(dir string) error {
	paths := []string{dir}
	if real, err := filepath.EvalSymlinks(nearest(dir)); err == nil {
		paths = append(paths, real)
	}
	for _, path := range paths {
		for d := path; ; d = filepath.Dir(d) {
			if err := trustedPart(d); err != nil {
				return check.WithHint(fmt.Errorf("use directory %s: %w", dir, err),
					"remove it, or set XDG_DATA_HOME, XDG_STATE_HOME and XDG_RUNTIME_DIR")
			}
			if d == filepath.Dir(d) {
				break
			}
		}
	}
	return nil
}

// trustedPart judges one part of a path. In the user namespace of a lab the owner of / is root, and has a
// number that others have, too: where this program itself would look is then not trusted.
func trustedPart(d string) error {
	info, err := os.Lstat(d)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("check %s: %v", d, underlying(err))
	}
	above, err := os.Stat(filepath.Dir(d))
	shared := err == nil && above.Mode()&os.ModeSticky != 0 && d != "/"
	link := info.Mode().Type() == os.ModeSymlink
	is := info.Sys().(*syscall.Stat_t)
	guessed := filepath.Join(os.TempDir(), "chokepoint-"+strconv.Itoa(os.Geteuid()))
	roots := is.Uid == 0 || is.Uid == ownerOf("/") && d != guessed
	open := info.Mode().Perm()&0o002 != 0 || info.Mode().Perm()&0o020 != 0 && int(is.Gid) != os.Getegid()
	switch {
	case !info.IsDir() && !link:
		return fmt.Errorf("%s is no directory", d)
	case int(is.Uid) != os.Geteuid() && !roots:
		return fmt.Errorf("%s belongs to user %d: it is not this user's alone", d, is.Uid)
	case link && shared:
		return fmt.Errorf("%s is a link where everybody may make one", d)
	case !link && open && info.Mode()&os.ModeSticky == 0:
		return fmt.Errorf("%s can be written to by others: it is not this user's alone", d)
	}
	return nil
}

// nearest is the path itself, or the nearest directory above it that exists.
func nearest(path string) string {
	for !exists(path) && path != filepath.Dir(path) {
		path = filepath.Dir(path)
	}
	return path
}

// ownerOf is root where it cannot be read.
func ownerOf(path string) uint32 {
	var info syscall.Stat_t
	if syscall.Stat(path, &info) != nil {
		return 0
	}
	return info.Uid
}

// underlying is the system's own word for what happened to a path.
func underlying(err error) error {
	if e, ok := err.(*os.PathError); ok {
		return e.Err
	}
	return err
}
