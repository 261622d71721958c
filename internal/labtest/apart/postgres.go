package apart

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Postgres returns the URL of an empty database on a PostgreSQL server that all tests of the process
// share. The server listens on a Unix socket below /tmp and stops when the process ends. If PostgreSQL is
// not installed, the test is skipped.
func Postgres(t testing.TB) string {
	t.Helper()
	if !HasPostgres() {
		t.Skip("skip: no postgres here")
	}

	place, err := NewDatabase()
	if err != nil {
		t.Fatal(err)
	}

	return place
}

// HasPostgres reports whether PostgreSQL is installed.
func HasPostgres() bool { return postgresPrograms() != "" }

// NewDatabase is like Postgres, for callers that are not tests.
func NewDatabase() (place string, err error) {
	s, err := theServer()
	if err != nil {
		return "", fmt.Errorf("start PostgreSQL: %w", err)
	}

	name := fmt.Sprintf("test%d", s.databases.Add(1))
	err = asOrdinary(exec.Command(filepath.Join(s.bin, "createdb"), "--host", s.dir, "--username",
		PostgresOwner, "--template", "template0", name))
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}

	u := url.URL{Scheme: "postgres", User: url.User(PostgresOwner), Path: "/" + name}
	return u.String() + "?host=" + url.QueryEscape(s.dir), nil
}

// postgres is a running server.
type postgres struct {
	bin, dir  string // directories of the server's programs, and of its socket and data
	databases atomic.Int64
	inputs    []*os.File // standard input of each shell that stops a server; open until this process ends
}

// PostgresOwner is the role that owns the databases of tests. PostgresWithPassword is a role that has to log
// in with a password. A test that needs this role has to create it.
const (
	PostgresOwner        = "owner"
	PostgresWithPassword = "guarded"
)

// postgresPrograms returns the directory with the programs of the newest installed server, or "" if none
// is installed.
func postgresPrograms() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(found[len(found)-1])
}

// nobody is the ID of the user that runs the server if the tests run as root, because PostgreSQL refuses
// to run as root.
const nobody = 65534

func asOrdinary(cmd *exec.Cmd) error {
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}

	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, out)
	}

	return nil
}

// theServer returns the server, which it starts on the first call.
var theServer = sync.OnceValues(func() (s *postgres, err error) {
	dir, err := os.MkdirTemp("/tmp", "chokepoint-postgres-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && s == nil { // otherwise the shell removes the directory
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			return nil, err
		}
	}

	server := &postgres{bin: postgresPrograms(), dir: dir}
	data := filepath.Join(dir, "data")
	err = asOrdinary(exec.Command(filepath.Join(server.bin, "initdb"), "--no-sync", "--auth", "trust",
		"--encoding", "UTF8", "--locale", "C.UTF-8", "--username", PostgresOwner, "--pgdata", data))
	if err != nil {
		return nil, err
	}

	hba := "local all " + PostgresWithPassword + " scram-sha-256\nlocal all all trust\n"
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(hba), 0o600); err != nil {
		return nil, err
	}

	return server, server.serve(data)
})

// serve starts the server below a shell. When this process ends, for whatever reason, the shell's input
// closes; then the shell stops the server and removes its directory.
func (s *postgres) serve(data string) error {
	const script = `"$@" >"$0/log" 2>&1 & read -r _; kill -QUIT $!; wait; rm -rf "$0"`
	cmd := exec.Command("sh", "-c", script, s.dir, filepath.Join(s.bin, "postgres"), "-D", data, "-k", s.dir,
		"-c", "listen_addresses=", "-c", "fsync=off", "-c", "synchronous_commit=off", "-c",
		"full_page_writes=off", "-c", "max_connections=50")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}

	in, out, err := os.Pipe()
	if err != nil {
		return err
	}

	cmd.Stdin = in
	cmd.Dir = "/"
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		return err
	}

	s.inputs = append(s.inputs, out)
	for range 200 {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		if strings.Contains(string(log), "ready to accept connections") {
			return nil
		}

		time.Sleep(50 * time.Millisecond)
	}

	log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return fmt.Errorf("it was not ready after ten seconds: %s", log)
}

// CrashPostgres kills the server that the tests share, as a power failure would, and starts it again.
func CrashPostgres() error {
	s, err := theServer()
	if err != nil {
		return err
	}

	data := filepath.Join(s.dir, "data")
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return err
	}

	first, _, _ := strings.Cut(string(text), "\n")
	id, err := strconv.Atoi(first)
	if err != nil {
		return err
	}

	if err := syscall.Kill(id, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill PostgreSQL: %w", err)
	}

	// Wait until the server's processes notice this and end. Then remove the locks, which look valid because
	// the shell has not waited for the server.
	time.Sleep(2 * time.Second)
	locks, err := filepath.Glob(filepath.Join(s.dir, ".s.PGSQL.*"))
	for _, file := range append(locks, filepath.Join(data, "postmaster.pid"), filepath.Join(s.dir, "log")) {
		err = errors.Join(err, os.Remove(file))
	}

	if err != nil {
		return err
	}

	return s.serve(data)
}
