package main

import (
	"fmt"
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
// /var/tmp, in a directory of this user.
func findDirs(getenv func(string) string, uid int) dirs {
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
	d.Note = said // nobody looks for what can be made again
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
	for !exists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
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

// trusted refuses a directory that another user may have put there: in a place where everybody may write,
// it must be this user's or root's. In the user namespace of a lab the owner of / is root, and has a number
// that others have, too: where this program itself would look is then not trusted.
func trusted(dir string) error {
	guessed := filepath.Join(os.TempDir(), "chokepoint-"+strconv.Itoa(os.Geteuid()))
	for d := dir; d != filepath.Dir(d); d = filepath.Dir(d) {
		above, err := os.Stat(filepath.Dir(d))
		if err != nil || above.Mode()&os.ModeSticky == 0 || !exists(d) {
			continue
		}
		info, err := os.Lstat(d)
		if err != nil {
			return fmt.Errorf("check directory %s: %v", dir, err)
		}
		owner := info.Sys().(*syscall.Stat_t).Uid
		roots := owner == 0 || owner == ownerOf("/") && d != guessed
		if !info.IsDir() || int(owner) != os.Geteuid() && !roots || info.Mode().Perm()&0o022 != 0 {
			return check.WithHint(fmt.Errorf("use directory %s: it is not this user's alone", d),
				"remove it, or set XDG_DATA_HOME and XDG_STATE_HOME")
		}
	}
	return nil
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
