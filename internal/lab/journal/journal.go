// Package journal remembers what was changed and how to undo it, so that a machine can be put back after
// the program was killed. It undoes nothing itself, and no entry holds a secret.
package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Kinds of an Entry.
const (
	KindLab     = "lab"     // a lab was brought up: its directory and holder
	KindSetting = "setting" // a knob was turned: the state before
)

// Entry is one change. It is written before the change is made.
type Entry struct {
	Seq    int             `json:"seq"`
	Kind   string          `json:"kind"`
	Lab    string          `json:"lab"`
	Dir    string          `json:"dir,omitempty"`  // of a lab: its runtime directory
	Pid    int             `json:"pid,omitempty"`  // of a lab: its holder
	Born   uint64          `json:"born,omitempty"` // start time of that process, in clock ticks since boot
	Node   string          `json:"node,omitempty"` // of a setting
	Knob   string          `json:"knob,omitempty"`
	Place  json.RawMessage `json:"place,omitempty"`
	Before string          `json:"before,omitempty"` // canonical state to apply again
	After  string          `json:"after,omitempty"`
}

type line struct {
	Entry  *Entry `json:"entry,omitempty"`
	Undone int    `json:"undone,omitempty"`
}

// Journal is the open journal of one owner; an exclusive lock on its file says that the owner lives. It is
// safe for concurrent use. A nil one remembers nothing.
type Journal struct {
	path string

	mu   sync.Mutex
	file *os.File
	next int
	open map[int]bool
}

// Create starts the journal of owner in dir.
func Create(dir, owner string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create journal directory: %w", err)
	}
	path := filepath.Join(dir, owner+".jsonl")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock journal %s: %w", path, err)
	}
	return &Journal{path: path, file: f, open: map[int]bool{}}, nil
}

// Add writes e to stable storage and returns its number for Done, which is never 0. The change may be made
// only after Add has returned nil.
func (j *Journal) Add(e Entry) (int, error) {
	if j == nil {
		return 0, nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.next++
	e.Seq = j.next
	if err := j.write(line{Entry: &e}); err != nil {
		return 0, err
	}
	j.open[e.Seq] = true
	return e.Seq, nil
}

// Done says that the change was undone; 0 is one that was not written.
func (j *Journal) Done(seq int) error {
	if j == nil || seq == 0 {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.open, seq)
	return j.write(line{Undone: seq})
}

func (j *Journal) write(l line) error {
	b, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode journal entry: %w", err)
	}
	if _, err := j.file.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write journal %s: %w", j.path, err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("sync journal %s: %w", j.path, err)
	}
	return nil
}

// Close removes the journal if every change was undone; else it stays for restore, and Close says so.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.open) > 0 {
		err := fmt.Errorf("journal %s: %d changes are not undone", filepath.Base(j.path), len(j.open))
		return errors.Join(err, j.file.Close())
	}
	return errors.Join(os.Remove(j.path), j.file.Close())
}

// Stale is the journal of an owner that is gone.
type Stale struct {
	Owner   string
	Entries []Entry // not undone, in the order of undoing: last change first
	path    string
	file    *os.File // locked, so that two restores do not meet
}

// FindStale returns the journals in dir whose owners are gone, and the names of the owners that live. A
// torn last line, as a kill leaves it, belongs to a change that was never made and is ignored.
func FindStale(dir string) (stale []*Stale, living []string, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, nil, fmt.Errorf("list journals: %w", err)
	}
	for _, path := range paths {
		owner := strings.TrimSuffix(filepath.Base(path), ".jsonl")
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return stale, living, fmt.Errorf("open journal: %w", err)
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			living = append(living, owner)
			f.Close()
			continue
		}
		if _, err := os.Stat(path); err != nil {
			f.Close() // its owner removed it between our opening and locking
			continue
		}
		stale = append(stale, &Stale{Owner: owner, Entries: pending(f), path: path, file: f})
	}
	return stale, living, nil
}

func pending(f *os.File) []Entry {
	undone := map[int]bool{}
	var all []Entry
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		l, err := parseLine(s.Bytes())
		if err != nil {
			continue
		}
		if l.Entry != nil {
			all = append(all, *l.Entry)
		}
		undone[l.Undone] = true
	}
	slices.Reverse(all)
	return slices.DeleteFunc(all, func(e Entry) bool { return undone[e.Seq] })
}

func parseLine(b []byte) (l line, err error) {
	if err = json.Unmarshal(b, &l); err != nil {
		return line{}, fmt.Errorf("parse journal line: %w", err)
	}
	return l, nil
}

// Remove deletes the journal after everything in it was undone.
func (s *Stale) Remove() error { return errors.Join(os.Remove(s.path), s.file.Close()) }

// Release leaves the journal for a later attempt.
func (s *Stale) Release() error { return s.file.Close() }
