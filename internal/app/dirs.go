package app

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// Dirs holds the program's directories according to the XDG Base Directory Specification 0.8. FindDirs does
// not create them.
type Dirs struct {
	Data    string // the store and the reports
	State   string // journals of changes
	Cache   string // files that can be rebuilt, such as guest images
	Runtime string // sockets, which do not survive a reboot
	Note    string // reason why the directories are not in the usual places, or ""
	Store   string // URL of the server whose runs are read; "" means the store in Data
	Team    string // name of the store to which new runs are sent; "" means none

	shared *store.Shared // open store that all readers use; nil means that each reader opens the store
}

// StoreFile returns the path of this machine's store.
func (d Dirs) StoreFile() string { return filepath.Join(d.Data, "runs.db") }

// place returns the path or URL of the store in use.
func (d Dirs) place() string { return cmp.Or(d.Store, d.StoreFile()) }

// StoreName returns the path or URL of the store in use, without a password.
func (d Dirs) StoreName() string { return store.Shown(d.place()) }

// At returns a copy of d with its store at place, which is a directory or the URL of a server.
func (d Dirs) At(place string) Dirs {
	d.Store = place
	if !store.OnServer(place) {
		d.Store = ""
		d.Data = place
		if dir, err := filepath.Abs(place); err == nil {
			d.Data = dir
		}
	}
	return d
}

// CheckStore returns an ErrUsage if the URL of the store is not valid.
func (d Dirs) CheckStore() error { return Mark(ErrUsage, store.CheckURL(d.Store)) }

// Labs returns the directory that contains labs.
func (d Dirs) Labs() string { return filepath.Join(d.Runtime, "labs") }

// Journals returns the directory that contains journals of changes.
func (d Dirs) Journals() string { return filepath.Join(d.State, "journal") }

// VMCache returns the directory of guest images.
func (d Dirs) VMCache() string { return filepath.Join(d.Cache, "vm") }

// runDir returns the directory of a run or, without a run, the directory of all runs.
func (d Dirs) runDir(run string) string { return filepath.Join(d.Data, "runs", run) }

// ReportFile returns the default path of a run's report.
func (d Dirs) ReportFile(run string) string { return filepath.Join(d.runDir(run), reportName) }

const reportName = "report.html"

// Place returns the path of an output file of a run, and the function that creates the file. If file is not
// empty, it is the path. Otherwise, the file has the given name and is in the run's directory, which Place
// creates.
func (d Dirs) Place(run, file, name string) (path string, create func(string) (*userfile.File, error),
	err error) {
	if file != "" {
		return file, userfile.Create, nil
	}

	dir := d.runDir(run)
	return filepath.Join(dir, name), userfile.CreateReport, Prepare(dir)
}

// storeVariable is the name of the environment variable that contains the directory or URL of the store.
const storeVariable = "CHOKEPOINT_STORE"

// FindDirs determines the directories from the environment. If there is no writable home directory, it uses
// a directory of this user in /var/tmp.
func FindDirs(getenv func(string) string, uid int) Dirs {
	d := Dirs{}
	given := getenv
	// sudo may keep variables of the user who called it. Root must not store anything where another user
	// can modify it.
	getenv = func(name string) string {
		dir := given(name)
		if dir != "" && !filepath.IsAbs(dir) { // the specification requires absolute paths
			d.Note = fmt.Sprintf("%s is %s, which is no absolute path: it is ignored", name, dir)
			return ""
		}

		if uid == 0 && filepath.IsAbs(dir) && !rootOwns(dir) {
			d.Note = fmt.Sprintf("%s is %s, which is not root's: it is ignored", name, dir)
			return ""
		}
		return dir
	}
	homeDir := sync.OnceValue(func() string { // only used if a variable is not set
		home := getenv("HOME")
		if u, err := user.LookupId(strconv.Itoa(uid)); home == "" && err == nil {
			home = u.HomeDir
		}
		return home
	})
	spare := filepath.Join("/var/tmp", "chokepoint-"+strconv.Itoa(uid))
	place := func(variable, below, short string) string {
		if dir := getenv(variable); dir != "" {
			return filepath.Join(dir, "chokepoint")
		}

		home := homeDir()
		dir := filepath.Join(home, below, "chokepoint")
		if filepath.IsAbs(home) && CanWrite(dir) {
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
	note := d.Note
	d.Cache = place("XDG_CACHE_HOME", ".cache", "cache")
	d.Runtime = runtimeDir(getenv, uid)
	d.Note = note // omit a note about the cache, because users do not look for files there
	if place := given(storeVariable); place != "" {
		d = d.At(place)
	}
	return d
}

// rootOwns reports whether root owns dir or, if it does not exist, its nearest existing ancestor.
func rootOwns(dir string) bool {
	owner := uint32(0)
	_, err := host.Walk(dir, func(_ string, info fs.FileInfo) error {
		owner = info.Sys().(*syscall.Stat_t).Uid
		return nil
	})
	return err == nil && (owner == 0 || owner == host.OwnerOf("/"))
}

// Trusted returns an error if another user can modify one of the directories.
func (d Dirs) Trusted() error {
	return errors.Join(trusted(d.Data), trusted(d.State), trusted(d.Cache), trusted(d.Runtime))
}

// runtimeDir returns the runtime directory of the login session or, without a session, another directory of
// this user.
func runtimeDir(getenv func(string) string, uid int) string {
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && CanWrite(dir) {
		return filepath.Join(dir, "chokepoint")
	}

	usual := usualRuntimeDirs(uid)
	for _, dir := range usual[:len(usual)-1] {
		above := filepath.Dir(dir)
		if CanWrite(above) && userfile.Exists(above) {
			return dir
		}
	}

	return usual[len(usual)-1]
}

// usualRuntimeDirs returns the possible runtime directories of a user if XDG_RUNTIME_DIR is not set, for
// example in a cron job.
func usualRuntimeDirs(uid int) (dirs []string) {
	dirs = append(dirs, filepath.Join("/run/user", strconv.Itoa(uid), "chokepoint"))
	if uid == 0 {
		dirs = append(dirs, "/run/chokepoint")
	}
	return append(dirs, filepath.Join(os.TempDir(), "chokepoint-"+strconv.Itoa(uid), "run"))
}

// AllLabs returns all directories that may contain labs of this user. The first is the result of Labs. The
// others belong to sessions with another environment.
func (d Dirs) AllLabs() []string {
	list := []string{d.Labs()}
	for _, dir := range usualRuntimeDirs(os.Geteuid()) {
		if dir != d.Runtime && userfile.Exists(dir) && trusted(dir) == nil {
			list = append(list, Dirs{Runtime: dir}.Labs())
		}
	}
	return list
}

// CanWrite reports whether this user can create files in dir or, if it does not exist, in its nearest
// existing ancestor.
func CanWrite(dir string) bool {
	for !userfile.Exists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}

	info, err := os.Stat(dir)
	return err == nil && info.IsDir() && unix.Access(dir, unix.W_OK|unix.X_OK) == nil
}

// Prepare creates directories that only this user can access.
func Prepare(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return Hinted(
				"set XDG_DATA_HOME, XDG_STATE_HOME or XDG_RUNTIME_DIR to a directory that can be written to",
				"create directory %s: %v", dir, check.Underlying(err))
		}

		if err := trusted(dir); err != nil {
			return err
		}
	}
	return nil
}

// ClearRuntime removes empty runtime directories, so that no trace of a removed lab remains.
func (d Dirs) ClearRuntime() {
	if os.Remove(d.Labs()) == nil {
		_ = os.Remove(d.Runtime) // fails if the directory is in use or contains files of another program
	}
}

// trusted returns an error if another user can modify a directory or its ancestors (see host.TrustedDir). It
// also returns an error if the directory is in /tmp, where its name can be guessed, and another user has
// created it.
func trusted(dir string) error {
	guessed := filepath.Join(os.TempDir(), "chokepoint-"+strconv.Itoa(os.Geteuid()))
	err := host.TrustedDir(dir)
	taken := userfile.Exists(guessed) && int(host.OwnerOf(guessed)) != os.Geteuid()
	if taken && strings.HasPrefix(dir+"/", guessed+"/") {
		err = errors.Join(err, errors.New("others can change "+guessed))
	}

	if err != nil {
		return Hinted("remove it or mend its owner and mode, or set XDG_DATA_HOME, XDG_STATE_HOME, "+
			"XDG_CACHE_HOME or XDG_RUNTIME_DIR to another",
			"use directory %s: it is not this user's alone: %w", dir, err)
	}

	return nil
}
