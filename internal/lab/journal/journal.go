// Package journal records changes to machines and how to undo them, so that they can be undone even if the
// program was killed. It does not undo anything itself. No entry contains a secret.
//
// A journal is a text file. Each line consists of the CRC-32 of a JSON object in hexadecimal, a space, and
// the object. The first line identifies the owner and the machine. The owner locks the file exclusively
// before it gives the file its final name, and keeps the lock until it exits. Other processes only take a
// shared lock for a short time.
package journal

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// version is the version of the format. A journal with another version can be undone only by the version of
// the program that wrote it.
const version = 2

// These are the kinds of an Entry.
const (
	KindLab     = "lab"     // a lab was started; the entry identifies its holder
	KindSetting = "setting" // a knob was set; the entry contains the previous state
	// KindMachines records the locations of a lab's real machines. There is nothing to undo.
	KindMachines = "machines"
	// KindGuard records a guard that a driver installed on a machine. Unless the guard is dismissed, it
	// undoes settings there.
	KindGuard = "guard"
	// KindPlace records that a labgrid place is about to be reserved and acquired.
	KindPlace = "place"
)

// Entry describes one change. It is written to the journal before the change is made.
type Entry struct {
	Seq    int             `json:"seq"`
	Kind   string          `json:"kind"`
	Lab    string          `json:"lab"`
	Pid    int             `json:"pid,omitempty"`    // process ID of a lab's holder
	Born   uint64          `json:"born,omitempty"`   // start time of process Pid in clock ticks since boot
	Node   string          `json:"node,omitempty"`   // node of the setting or guard
	Driver string          `json:"driver,omitempty"` // driver that made the setting; "" means an agent
	Knob   string          `json:"knob,omitempty"`
	Place  json.RawMessage `json:"place,omitempty"`
	Before string          `json:"before,omitempty"` // canonical state to restore
	After  string          `json:"after,omitempty"`
	Guard  string          `json:"guard,omitempty"` // name of the guard on the machine
	// Machines describes the machines of a KindMachines entry.
	Machines *record.Machines `json:"machines,omitempty"`
	// Labgrid describes the place of a KindPlace entry. Holder is the HOST/USER that acquires the place. No
	// other run has the same Holder.
	Labgrid *record.Place `json:"labgrid,omitempty"`
	Holder  string        `json:"holder,omitempty"`
}

// head is the first line of a journal. It identifies the owner, the machine and the boot.
type head struct {
	Version int    `json:"journal"`
	Owner   string `json:"owner"`
	Host    string `json:"host"`
	Boot    string `json:"boot"`           // boot_id of the kernel, or "" if unavailable
	Labs    string `json:"labs,omitempty"` // runtime directory for the labs of the owner
}

type line struct {
	Head   *head  `json:"head,omitempty"`
	Entry  *Entry `json:"entry,omitempty"`
	Undone int    `json:"undone,omitempty"`
}

func headOf(owner, labs string) head {
	name, _ := os.Hostname()
	return head{version, owner, name, host.BootID(), labs}
}

// ids matches valid names of owners and labs. The names are used as elements of file paths.
var ids = check.Pattern(`^[a-z0-9-]+$`)

// holders matches valid names of a labgrid client.
var holders = check.Pattern(`^[^/\s]+/[^/\s]+$`)

// ValidID reports whether name is a valid name of an owner or a lab.
func ValidID(name string) bool { return ids().MatchString(name) }

// file is a journal that is open for writing.
type file struct {
	path string
	f    interface {
		io.WriterAt
		io.Closer
		Truncate(size int64) error
		Sync() error
	}
	size   int64 // size of the complete lines in bytes
	broken error // error if an incomplete last line could not be removed
}

// write appends a line, and returns nil once the line is on stable storage. If writing fails, for example
// because the disk is full, write removes the partial line.
func (w *file) write(l line) error {
	if w.broken != nil {
		return w.broken
	}

	b, err := encode(l)
	if err != nil {
		return err
	}

	n, err := w.f.WriteAt(b, w.size)
	if err == nil {
		err = w.f.Sync()
	}

	if err == nil {
		w.size += int64(n)
		return nil
	}

	err = fmt.Errorf("write journal %s: %w", w.path, err)
	cut := w.f.Truncate(w.size)
	if cut != nil {
		err = errors.Join(err, cut)
		w.broken = err
	}

	return err
}

func encode(l line) ([]byte, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("encode journal entry: %w", err)
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(b), b), nil
}

// Journal is the open journal of one owner. It is safe for concurrent use. A nil *Journal is valid and
// records nothing.
type Journal struct {
	mu   sync.Mutex
	file file
	next int
	open map[int]bool
}

// fresh is the file name prefix of a journal that is being created.
const fresh = ".new-"

// Create creates the journal of owner in dir. labs is the directory for the labs of the owner; "" means the
// user's default. The error is fs.ErrExist if the journal exists.
func Create(dir, owner, labs string) (*Journal, error) {
	if !ValidID(owner) {
		return nil, fmt.Errorf("create journal: %q is no name of an owner", owner)
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create journal directory: %w", err)
	}

	path := filepath.Join(dir, owner+".jsonl")
	var j *Journal
	var err error
	for range 100 { // retry, because a concurrent Sweep may remove the file before it is locked
		if j, err = create(path, headOf(owner, labs)); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}

	if err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}

	return j, nil
}

// create writes the head to a temporary file, locks the file, and links it to path once the head is on disk.
func create(path string, h head) (j *Journal, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), fresh+h.Owner+"-*") // created with mode 0600
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	// This waits for locks of other processes, which are held only briefly.
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	j = &Journal{file: file{path: path, f: f}, open: map[int]bool{}}
	if err == nil {
		err = j.file.write(line{Head: &h})
	}

	if err == nil {
		err = os.Link(f.Name(), path)
	}

	left := os.Remove(f.Name())
	if !errors.Is(left, fs.ErrNotExist) {
		err = cmp.Or(err, left)
	}

	return j, cmp.Or(err, syncDir(filepath.Dir(path)))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Add writes e to stable storage and returns a number to pass to Done. The number is 0 only for a nil
// Journal. Make the change only after Add has returned nil.
func (j *Journal) Add(e Entry) (int, error) {
	if j == nil {
		return 0, nil
	}

	j.mu.Lock()
	defer j.mu.Unlock()
	e.Seq = j.next + 1
	if err := e.check(); err != nil {
		return 0, fmt.Errorf("write journal %s: %w", j.file.path, err)
	}

	if err := j.file.write(line{Entry: &e}); err != nil {
		return 0, err
	}

	j.next = e.Seq
	j.open[e.Seq] = true
	return e.Seq, nil
}

// Done records that change seq was undone. It ignores seq 0, because that change was not journalled.
func (j *Journal) Done(seq int) error {
	if j == nil || seq == 0 {
		return nil
	}

	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.open, seq)
	return j.file.write(line{Undone: seq})
}

// Open returns the number of changes that are not undone.
func (j *Journal) Open() int {
	if j == nil {
		return 0
	}

	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.open)
}

// Close removes the journal if all changes were undone. Otherwise, it keeps the journal for a later restore
// and returns an error.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.open) > 0 {
		err := fmt.Errorf("journal %s: %d changes are not undone", filepath.Base(j.file.path), len(j.open))
		return errors.Join(err, j.file.f.Close())
	}

	return errors.Join(os.Remove(j.file.path), j.file.f.Close())
}

// Stale is the journal of an owner that is no longer running.
type Stale struct {
	Owner    string
	Entries  []Entry // entries whose changes have yet to be undone, the latest first
	Rebooted bool    // whether the machine has rebooted since, which has undone changes to its kernel
	Labs     string  // directory for the labs of the owner; "" means the default
	file     file
}

// Lock locks the journals in dir against concurrent restores until the returned file is closed. It waits for
// the lock until ctx ends. If dir does not exist, Lock returns a nil file.
func Lock(ctx context.Context, dir string) (*os.File, error) {
	f, err := openOwn(dir, unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("open journal directory %s: %w", dir, err)
	}

	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}

		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock journal directory %s: %w", dir, err)
		}

		if err := host.Pause(ctx, 10*time.Millisecond); err != nil {
			f.Close()
			return nil, err
		}
	}
}

// Living returns the owners of journals in dir that are running.
func Living(dir string) (living []string, err error) {
	err = each(dir, func(owner, _ string) error {
		if Lives(dir, owner) { // error ignored: restore reports damaged journals
			living = append(living, owner)
		}
		return nil
	})
	return living, err
}

// Lives reports whether the owner of a journal in dir is running.
func Lives(dir, owner string) bool {
	f, err := openOwn(filepath.Join(dir, owner+".jsonl"), unix.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	return locked(f)
}

// FindStale returns the journals in dir whose owners are not running, and the names of the running owners. It
// considers only owners for which wanted returns true, or all owners if wanted is nil. It ignores an
// incomplete last line, which remains if the owner was killed while writing, because the change was not made.
// If a journal is damaged in another way, err describes the damage, and the other journals are still
// returned. To undo entries, the caller must hold Lock.
func FindStale(dir string, wanted func(owner string) bool) (stale []*Stale, living []string, err error) {
	var faults []error
	err = each(dir, func(owner, path string) error {
		if wanted != nil && !wanted(owner) {
			return nil
		}

		s, lives, err := read(owner, path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // another process removed it in the meantime
		case err != nil:
			faults = append(faults, check.WithHint(fmt.Errorf("read journal %s: %w; nothing in it was undone",
				path, err), "a run's lab ends with it, what is set in a lab that stays up "+
				"with lab down; once nothing is left, remove the file"))
		case lives:
			living = append(living, owner)
		default:
			stale = append(stale, s)
		}

		return nil
	})
	return stale, living, errors.Join(append(faults, err)...)
}

// each calls f for each journal in dir.
func each(dir string, f func(owner, path string) error) error {
	d, err := openOwn(dir, unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("list journals in %s: %w", dir, err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list journals: %w", err)
	}

	slices.Sort(names)
	for _, name := range names {
		if owner, ok := strings.CutSuffix(name, ".jsonl"); ok {
			if err := f(owner, filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}

	return nil
}

// openOwn opens a file or directory that belongs to this user. It rejects links, files that others can write
// to, and special files, because these could block a reader.
func openOwn(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, how|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, unix.ELOOP) {
			err = errors.New("it is a link")
		}
		return nil, err
	}

	info, err := f.Stat()
	if err == nil {
		owner := info.Sys().(*syscall.Stat_t).Uid
		isDir := how&unix.O_DIRECTORY != 0
		switch {
		case isDir != info.IsDir() || !isDir && !info.Mode().IsRegular():
			err = fmt.Errorf("it is no such thing but %s", info.Mode().Type())
		case int(owner) != os.Geteuid():
			err = fmt.Errorf("it belongs to user %d", owner)
		case info.Mode().Perm()&0o022 != 0:
			err = errors.New("it can be written to by others")
		}
	}

	if err != nil {
		f.Close()
		return nil, err
	}

	return f, nil
}

// locked reports whether an owner has locked the file. If not, f has a shared lock until it is closed.
func locked(f *os.File) bool { return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil }

func read(owner, path string) (s *Stale, lives bool, err error) {
	f, err := openOwn(path, unix.O_RDWR)
	if err != nil {
		return nil, false, err
	}

	lives = locked(f)
	if !lives {
		err = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	}

	_, gone := os.Lstat(path)
	if err == nil && !lives {
		err = gone // the owner removed the file after openOwn had opened it
	}

	if err != nil || lives {
		f.Close()
		return nil, lives, err
	}

	if !ValidID(owner) {
		err = errors.New("its name is no owner's")
	}

	var h head
	s = &Stale{Owner: owner, file: file{path: path, f: f}}
	if err == nil {
		h, s.Entries, s.file.size, err = parse(f)
	}

	now := headOf(owner, "")
	if err == nil {
		s.Rebooted = h.Boot != now.Boot
		s.Labs = h.Labs
		switch {
		case h.Owner != owner:
			err = fmt.Errorf("it is the journal of %s", h.Owner)
		case s.Rebooted && h.Host != now.Host:
			err = fmt.Errorf("it was written on another machine, %s", h.Host)
		}
	}

	if err != nil {
		f.Close()
		return nil, false, err
	}

	return s, false, nil
}

// maxLine is the maximum length of a line in bytes.
const maxLine = 1 << 20

// parse reads a journal. It returns the head, the entries that have not been undone (the latest first), and
// the size of the complete lines. A KindMachines entry remains as long as another entry of its lab has not
// been undone. parse returns an error for anything that Create, Add and Done do not write.
func parse(from io.Reader) (h head, pending []Entry, size int64, err error) {
	in := bufio.NewReaderSize(from, maxLine)
	open := map[int]Entry{}
	ended := map[int]Entry{}
	for n, last := 1, 0; ; n++ {
		b, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			if n == 1 {
				err = errors.New("it has no head")
			} else {
				err = nil
			}

			for seq, e := range ended {
				for _, o := range open {
					if e.Kind == KindMachines && o.Lab == e.Lab {
						open[seq] = e
						break
					}
				}
			}

			for _, seq := range slices.Backward(slices.Sorted(maps.Keys(open))) {
				pending = append(pending, open[seq])
			}

			return h, pending, size, err
		}

		var l line
		if err == nil {
			l, err = parseLine(b[:len(b)-1])
		}

		switch {
		case err != nil:
		case (n == 1) != (l.Head != nil):
			err = errors.New("a head belongs in the first line, and only there")
		case l.Head != nil && l.Head.Version != version:
			err = fmt.Errorf("it is of version %d of the format, this program writes %d", l.Head.Version,
				version)
		case l.Head != nil:
			h = *l.Head
		case l.Entry != nil && l.Entry.Seq != last+1:
			err = fmt.Errorf("change %d follows change %d", l.Entry.Seq, last)
		case l.Entry != nil:
			last++
			err = l.Entry.check()
			open[last] = *l.Entry
		default:
			e, is := open[l.Undone]
			if is {
				ended[l.Undone] = e
				delete(open, l.Undone)
			} else if _, is := ended[l.Undone]; !is { // the end of a KindMachines entry may be recorded twice
				err = fmt.Errorf("change %d was undone that was not made", l.Undone)
			}
		}

		if err != nil {
			return h, nil, 0, fmt.Errorf("line %d: %w", n, err)
		}

		size += int64(len(b))
	}
}

// parseLine parses a line. It must contain exactly one of head, entry and undone.
func parseLine(b []byte) (l line, err error) {
	sum, text, ok := bytes.Cut(b, []byte(" "))
	if !ok || !bytes.Equal(sum, fmt.Appendf(nil, "%08x", crc32.ChecksumIEEE(text))) {
		return l, errors.New("its checksum is wrong")
	}

	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return l, err
	}

	parts := 0
	for _, is := range []bool{l.Head != nil, l.Entry != nil, l.Undone != 0} {
		if is {
			parts++
		}
	}

	if parts != 1 || d.More() {
		return l, errors.New("it is not one of a journal")
	}

	return l, nil
}

// check returns an error if the entry contains a path outside the directories of labs, or lacks a value that
// is required to undo it.
func (e Entry) check() error {
	nothing := e.Node+e.Driver+e.Knob+e.Before+e.After+e.Guard == "" && len(e.Place) == 0
	process := e.Pid != 0 || e.Born != 0
	held := e.Labgrid != nil || e.Holder != ""
	there := e.Node != "" && !strings.ContainsAny(e.Node, "/\x00") && e.Node != "." && e.Node != ".." &&
		!process && e.Machines == nil && !held
	machines := e.Machines != nil && nothing && !process && !held
	place := e.Labgrid != nil && holders().MatchString(e.Holder) && nothing && !process && e.Machines == nil
	setting := there && e.Knob != "" && len(e.Place) > 0 && e.Guard == ""
	guard := there && e.Guard != "" && e.Driver != "" && e.Knob+e.Before+e.After == "" && len(e.Place) == 0
	lab := nothing && e.Pid >= 0 && e.Machines == nil && !held
	switch {
	case !ValidID(e.Lab):
		return fmt.Errorf("change %d is of lab %q, which is no lab's name", e.Seq, e.Lab)
	case e.Kind == KindLab && lab, e.Kind == KindSetting && setting, e.Kind == KindMachines && machines,
		e.Kind == KindGuard && guard, e.Kind == KindPlace && place:
		return nil
	}

	return fmt.Errorf("change %d is no %s that could be undone", e.Seq, cmp.Or(e.Kind, "change"))
}

// Done records that change seq was undone, so that a later attempt skips the change.
func (s *Stale) Done(seq int) error { return s.file.write(line{Undone: seq}) }

// Path returns the path of the journal's file.
func (s *Stale) Path() string { return s.file.path }

// Remove deletes the journal. It must be called only after all changes were undone.
func (s *Stale) Remove() error { return errors.Join(os.Remove(s.file.path), s.file.f.Close()) }

// Release closes the journal but keeps its file for a later attempt.
func (s *Stale) Release() error { return s.file.f.Close() }

// Sweep removes journals in dir that are incomplete because their creators were killed.
func Sweep(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, fresh+"*"))
	for _, path := range left {
		f, openErr := openOwn(path, unix.O_RDONLY)
		if openErr != nil {
			continue // another process has renamed it in the meantime, or it is not ours
		}

		if !locked(f) {
			if left := os.Remove(path); !errors.Is(left, fs.ErrNotExist) {
				err = errors.Join(err, left)
			}
		}

		f.Close()
	}
	return err
}
