// Package store keeps runs and their finished trials in an SQLite file, or in a PostgreSQL database that a
// team shares. It returns data exactly as recorded. The rows of a run and its trials are never changed. They
// are deleted only together with the whole run. Triggers prevent other programs from breaking these rules.
// The headline of a run and the medians of its cells are derived data. They are stored because deriving them
// for a list of a thousand runs would take too long.
package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
	"modernc.org/sqlite" // registers the driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// ErrNone is returned if there is no store, because no run was ever recorded.
var ErrNone = errors.New("no run has been recorded yet")

// Store is an open store. It is safe for concurrent use. Processes that write to the same file wait for
// each other.
type Store struct {
	path   string // file path, or URL as returned by Shown
	server bool   // PostgreSQL
	team   string // store that new runs and notes have to be sent to, or ""
	db     *sql.DB
	enc    *zstd.Encoder
	dec    *zstd.Decoder
	frozen bool   // the store does not see what other programs write
	copied string // directory of the copy, which Close removes; "" if no copy is open
	// If readers share the store, Close calls leave instead of closing the store.
	leave func() error
}

// Open opens the store at a path or PostgreSQL URL for writing. If the store does not exist, Open creates it,
// including the directories of a file, which get mode 0700. On a server, Open upgrades an older schema. For
// any other version of the schema, it returns a *VersionError and does not change the store.
func Open(ctx context.Context, path string) (*Store, error) {
	if OnServer(path) {
		return open(ctx, path, modeWrite)
	}

	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %v", path, err)
	}

	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create directory of store %s: %w", path, err)
	}

	// SQLite would create the file readable by everyone. It gives its auxiliary files the mode of this file.
	// An existing file is not opened here, because closing it would release this process's locks on it
	// (sqlite.org/howtocorrupt.html §2.2).
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	}

	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("open store: %w", err)
	}

	s, err := open(ctx, path, modeWrite)
	if err != nil && cmp.Or(unix.Access(path, unix.W_OK), unix.Access(filepath.Dir(path), unix.W_OK)) != nil {
		err = check.WithHint(err, filepath.Dir(path)+
			" cannot be written to: list, show and report can read it")
	}

	return s, err
}

// OpenReadOnly opens an existing store for reading, even if its directory is read-only. It returns ErrNone if
// the store does not exist, or if no run was ever written to it.
func OpenReadOnly(ctx context.Context, path string) (*Store, error) {
	s, err := openToRead(ctx, path)
	if err != nil {
		return nil, err
	}

	// The one connection to a copy keeps the copy's files open, so they can be removed now. Nothing then
	// remains of the copy if the process is killed.
	if err := s.removeCopy(); err != nil {
		return nil, errors.Join(err, s.Close())
	}

	return s, nil
}

// openToRead is like OpenReadOnly. The files of a copy remain until the store is closed.
func openToRead(ctx context.Context, path string) (*Store, error) {
	if OnServer(path) {
		return open(ctx, path, modeRead)
	}

	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %v", path, err)
	}

	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && info.Size() == 0:
		return nil, ErrNone
	case err != nil:
		return nil, fmt.Errorf("open store: %w", err)
	}

	s, err := open(ctx, path, modeRead)
	if err == nil || !unwritable(err) {
		return s, err
	}

	// To read a file in WAL mode, SQLite must write to the file's directory. If SQLite cannot, other programs
	// cannot either. Without a write-ahead log, the file is then complete. With a log, a copy of both is
	// read.
	log, logErr := os.Stat(path + "-wal")
	if errors.Is(logErr, fs.ErrNotExist) || logErr == nil && log.Size() == 0 {
		s, err = open(ctx, path, modeFrozen)
	} else {
		s, err = openCopy(ctx, path)
	}

	if err != nil {
		return nil, err
	}

	s.frozen = true
	return s, nil
}

// unwritable reports whether SQLite failed because it could not write.
func unwritable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) ||
		slices.Contains([]int{sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR,
			sqlite3.SQLITE_FULL}, codeOf(err))
}

// codeOf returns SQLite's primary result code for err, or 0 if err is not an SQLite error.
func codeOf(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// openCopy opens a copy of the file.
func openCopy(ctx context.Context, path string) (s *Store, err error) {
	dir, err := os.MkdirTemp("", "chokepoint-store-")
	if err != nil {
		return nil, fmt.Errorf("copy store %s to read it: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	file := filepath.Join(dir, filepath.Base(path))
	for _, end := range []string{"", "-wal"} {
		if err := copyFile(file+end, path+end); err != nil && !(end != "" && errors.Is(err, fs.ErrNotExist)) {
			return nil, fmt.Errorf("copy store %s to read it: %w", path, err)
		}
	}

	if s, err = Open(ctx, file); err == nil {
		s.path = path
		s.copied = dir
	}

	return s, err
}

// removeCopy removes the files of a copy, if the store is one.
func (s *Store) removeCopy() error {
	if s.copied == "" {
		return nil
	}

	dir := s.copied
	s.copied = ""
	return os.RemoveAll(dir)
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// openFile opens the database in a file.
func openFile(path, mode string) (*sql.DB, error) { return sql.Open("sqlite", dsn(path, mode)) }

// open connects to the database and checks that it has this program's schema.
func open(ctx context.Context, path, mode string) (*Store, error) {
	server := OnServer(path)
	database := openFile
	if server {
		database = connect
	}

	db, err := database(path, mode)
	if err != nil {
		return nil, err
	}

	db.SetMaxOpenConns(1) // one writer
	path = Shown(path)
	s := &Store{path: path, server: server, db: db}
	if err = ping(ctx, db); err == nil {
		s.enc, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window),
			zstd.WithLowerEncoderMem(true))
	}

	if err == nil {
		s.dec, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBlob))
	}

	if err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", path, advise(err)), db.Close())
	}

	if server {
		err = s.prepareServer(ctx, mode)
	} else if err = checkVersion(ctx, db, path); errors.Is(err, ErrNone) && mode == modeWrite {
		err = s.createSchema(ctx)
	}

	if err != nil {
		return nil, errors.Join(err, s.Close())
	}

	return s, nil
}

// ping connects. It retries, because SQLite's busy timeout does not apply to the switch to WAL: if several
// programs open a new file at the same time, all except one get SQLITE_BUSY immediately.
func ping(ctx context.Context, db *sql.DB) error {
	return repeat(ctx, patience, 5*time.Millisecond, func() error { return db.PingContext(ctx) })
}

// patience is the maximum time to wait for other programs that lock the file.
const patience = 5 * time.Second

// maxBlob is the maximum size of a decoded blob in bytes. It limits the memory that a damaged blob can use.
const maxBlob = 1 << 30

// window is the window size of the encoder in bytes. The encoder uses about twice as much memory.
const window = 1 << 20

// Modes for opening a file.
const (
	modeWrite  = "rwc"
	modeRead   = "ro"
	modeFrozen = "frozen" // read-only, and no other program writes
)

// dsn returns the data source name with pragmas. With WAL and synchronous=FULL, no committed trial is lost in
// a power failure, and no incomplete trial remains if the program is killed.
func dsn(path, mode string) string {
	q := url.Values{}
	if mode == modeFrozen {
		mode = modeRead
		q.Set("immutable", "1")
	}

	q.Set("mode", mode)
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", patience.Milliseconds()))
	q.Add("_pragma", "foreign_keys(1)")
	if mode == modeWrite {
		q.Add("_pragma", "journal_mode(wal)")
		q.Add("_pragma", "synchronous(full)")
		q.Set("_txlock", "immediate")
	}

	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// Close closes the file or the connection.
func (s *Store) Close() error {
	if s.leave != nil {
		return s.leave()
	}

	s.dec.Close()
	return errors.Join(s.enc.Close(), s.db.Close(), s.removeCopy())
}

// inTx runs f in a transaction. If inTx returns nil, the changes are durable.
func (s *Store) inTx(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}

	if err := f(tx); err != nil {
		return advise(errors.Join(err, rollback(tx)))
	}

	return tx.Commit()
}

// rollback ends a transaction, unless a cancelled context has already done so.
func rollback(tx *sql.Tx) error {
	if err := tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

// Verify reads everything. In a file, it first runs SQLite's own check of structure and references. Then it
// reads every run, and every trial with its series. It returns nil only for an intact store.
func (s *Store) Verify(ctx context.Context) error {
	if !s.server {
		if err := s.verifyFile(ctx); err != nil {
			return fmt.Errorf("verify store %s: %w", s.path, err)
		}
	}

	ids, err := s.ids(ctx)
	for _, id := range ids {
		if err == nil {
			_, err = s.run(ctx, id)
		}

		if err == nil {
			_, err = s.Trials(ctx, id)
		}
	}

	if err != nil {
		return fmt.Errorf("verify store: %w", err)
	}

	return nil
}

func (s *Store) verifyFile(ctx context.Context) error {
	var verdict string
	err := s.db.QueryRowContext(ctx, `PRAGMA integrity_check(1)`).Scan(&verdict)
	if err == nil && verdict != "ok" {
		err = errors.New(verdict)
	}

	if err == nil {
		_, err = query(ctx, s.db, func(r *sql.Rows) (none any, err error) {
			var table, parent string
			var row, key any
			if err := r.Scan(&table, &row, &parent, &key); err != nil {
				return nil, err
			}

			return nil, fmt.Errorf("a row of %s refers to no row of %s", table, parent)
		}, `PRAGMA foreign_key_check`)
	}

	return err
}
