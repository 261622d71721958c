package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync/atomic"
	"time"
)

// Shared keeps a store open for many readers, such as the requests of a server. It opens the store again if
// the file was replaced. If a store shows only the state of its file at one moment, Shared also opens it
// again when the file has changed.
type Shared struct {
	place string
	turn  chan struct{} // held while the field open is read or replaced
	open  *reading      // nil before the first reader
}

// NewShared returns a Shared for the store at a path or PostgreSQL URL. It does not open the store yet.
func NewShared(place string) *Shared { return &Shared{place: place, turn: make(chan struct{}, 1)} }

// maxReaders is the maximum number of concurrent queries. Further queries wait.
const maxReaders = 4

// reading is a store that several readers use. The last reader closes it.
type reading struct {
	*Store
	users atomic.Int64 // number of users, including the Shared
	files [2]fs.FileInfo
}

// Open is like OpenReadOnly. The caller closes the store as usual.
func (s *Shared) Open(ctx context.Context) (*Store, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	files := s.files() // read these before the store's content
	if s.open != nil && s.open.current(files) {
		return s.open.use(), nil
	}

	st, err := openToRead(ctx, s.place)
	if err != nil {
		return nil, err
	}

	st.db.SetMaxOpenConns(maxReaders)
	st.db.SetMaxIdleConns(maxReaders)
	st.db.SetConnMaxIdleTime(time.Minute)
	old := s.open
	s.open = &reading{Store: st, files: files}
	s.open.users.Add(1)
	reader := s.open.use()
	if old != nil {
		if err := old.left(); err != nil {
			return nil, errors.Join(err, reader.Close())
		}
	}

	return reader, nil
}

// Close closes the store as soon as no reader uses it.
func (s *Shared) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	old := s.open
	s.open = nil
	if old == nil {
		return nil
	}

	return old.left()
}

// files returns information about the store's file and its log. An entry is nil if the file does not exist.
// On a server, both are nil.
func (s *Shared) files() (files [2]fs.FileInfo) {
	if OnServer(s.place) {
		return files
	}

	for i, end := range []string{"", "-wal"} {
		files[i], _ = os.Stat(s.place + end) // opening the store reports the error
	}

	return files
}

// current reports whether the open store still has the content of these files.
func (r *reading) current(files [2]fs.FileInfo) bool {
	if r.server {
		return true
	}

	if !os.SameFile(r.files[0], files[0]) {
		return false
	}

	for i, f := range files {
		was := r.files[i]
		same := f == nil && was == nil ||
			f != nil && was != nil && f.Size() == was.Size() && f.ModTime().Equal(was.ModTime())
		if r.frozen && !same {
			return false
		}
	}

	return true
}

// use returns the store for another reader.
func (r *reading) use() *Store {
	r.users.Add(1)
	st := *r.Store
	st.leave = r.left
	return &st
}

// left records that a user has left, and closes the store after the last one.
func (r *reading) left() error {
	if r.users.Add(-1) > 0 {
		return nil
	}
	return r.Store.Close()
}
