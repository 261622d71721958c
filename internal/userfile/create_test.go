package userfile

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

func TestOutFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "report.html")
	link := filepath.Join(dir, "link")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}

	if err := os.Symlink("report.html", link); err != nil {
		t.Fatal(err)
	}

	check := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("content: got %q, %v, want %q", got, err, want)
		}

		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
			t.Errorf("directory: got %v, %v, want the file and the link", entries, err)
		}
	}

	dropped, err := Create(path)
	if err != nil {
		t.Fatalf("Create: got %v, want nil", err)
	}

	if err := dropped.Abort(); err != nil {
		t.Errorf("abort: got %v, want nil", err)
	}

	check("old")

	// A file under way has no name yet, or one of its own.
	left, err := Create(path)
	if err != nil {
		t.Fatalf("Create: got %v, want nil", err)
	}

	if left.name == "" {
		check("old")
	}

	if err := left.Abort(); err != nil {
		t.Errorf("abort: got %v, want nil", err)
	}

	kept, err := Create(link)
	if err != nil {
		t.Fatalf("Create: got %v, want nil", err)
	}

	if err := kept.Commit([]byte("new")); err != nil {
		t.Errorf("commit: got %v, want nil", err)
	}

	if err := kept.Abort(); err != nil {
		t.Errorf("abort after commit: got %v, want nil", err)
	}

	check("new")
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("link: got %v, %v, want it kept", info.Mode(), err)
	}

	fresh := filepath.Join(t.TempDir(), "fresh.html")
	first, err := Create(fresh)
	if err != nil {
		t.Fatalf("Create: got %v, want nil", err)
	}

	if err := first.Commit([]byte("first")); err != nil {
		t.Errorf("commit: got %v, want nil", err)
	}

	if info, err := os.Stat(fresh); err != nil || info.Size() != 5 || info.Mode().Perm() != 0o644 {
		t.Errorf("fresh file: got %v, %v, want 5 bytes for all to read", info, err)
	}

	if _, err := Create(dir); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("directory: got %v, want an error", err)
	}

	if _, err := Create(filepath.Join(dir, "none", "x")); err == nil || !strings.Contains(err.Error(),
		"no such file") {
		t.Errorf("missing directory: got %v, want an error", err)
	}

	full, err := Create("/dev/full")
	if err != nil {
		t.Fatalf("device: got %v, want nil", err)
	}

	if err := full.Commit([]byte("x")); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("full device: got %v, want an error", err)
	}

	if _, err := os.Stat("/dev/full"); err != nil {
		t.Errorf("full device: got %v, want it still there", err)
	}
}

// TestOutFileFollowsNobodyElse: a link or pipe that another user has put in the way of root's report leads
// nowhere, in whatever part of the path.
func TestOutFileFollowsNobodyElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skip: only root can make another user's link")
	}

	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	const other = 4242
	for _, err := range []error{
		os.WriteFile(at("precious"), []byte("old"), 0o600), os.Mkdir(at("real"), 0o755),
		os.Symlink("precious", at("link")), os.Symlink("real", at("folder")),
		os.Symlink(at("link"), at("mine")), syscall.Mkfifo(at("pipe"), 0o666),
		os.Lchown(at("link"), other, other), os.Lchown(at("folder"), other, other),
		os.Lchown(at("pipe"), other, other),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	for _, name := range []string{"link", "folder/report.html", "mine", "pipe"} {
		o, err := Create(at(name))
		if err == nil {
			err = errors.Join(o.Commit([]byte("new")), o.Abort())
		}

		if err == nil || !strings.Contains(err.Error(), "of another user") || check.HintOf(err) == "" {
			t.Errorf("%s: got %v, want a refusal with a hint", name, err)
		}
	}

	if b, err := os.ReadFile(at("precious")); err != nil || string(b) != "old" {
		t.Errorf("what the link leads to: got %q, %v, want it as it was", b, err)
	}

	// Whoever made what is replaced does not say who reads root's report; of root's own, its mode does.
	if err := errors.Join(os.WriteFile(at("theirs"), nil, 0o600), os.Chmod(at("theirs"), 0o666),
		os.Chown(at("theirs"), other, other)); err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]os.FileMode{"theirs": 0o600, "fresh": 0o600} {
		o, err := CreateReport(at(name))
		if err == nil {
			err = o.Commit([]byte("new"))
		}

		info, statErr := os.Stat(at(name))
		if err != nil || statErr != nil || info.Mode().Perm() != want || !host.Owned(info) {
			t.Errorf("%s: got %v, %v, want mode %v and root's", name, info.Mode(), errors.Join(err, statErr),
				want)
		}
	}

	// A replaced file keeps its mode.
	o, err := Create(at("precious"))
	if err == nil {
		err = o.Commit([]byte("new"))
	}

	info, statErr := os.Stat(at("precious"))
	if err != nil || statErr != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("replaced: got %v, %v, want mode 0600", info.Mode(), errors.Join(err, statErr))
	}
}

// TestOutFileSeesWhatIsSwapped: the file that was checked is the one written to, or none is.
func TestOutFileSeesWhatIsSwapped(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{os.WriteFile(at("precious"), []byte("old"), 0o600),
		os.Mkdir(at("safe"), 0o755), os.Mkdir(at("folder"), 0o755), os.WriteFile(at("file"), nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}

	for name, swap := range map[string]func() error{
		"file":         func() error { return errors.Join(os.Remove(at("file")), os.Symlink("precious", at("file"))) },
		"none":         func() error { return os.Symlink("precious", at("none")) },
		"folder/fresh": func() error { return errors.Join(os.Remove(at("folder")), os.Symlink("safe", at("folder"))) },
	} {
		real, err := Resolve(at(name))
		if err == nil {
			err = swap()
		}

		if err != nil {
			t.Fatal(err)
		}

		o, err := openOutFile(at(name), real, 0o666)
		if err == nil {
			t.Errorf("%s: it is written to", name)
			o.Abort()
		}
	}

	// A link that comes later is replaced, and a directory that goes is still the one written to.
	o, err := Create(at("safe/late"))
	if err == nil {
		err = errors.Join(os.Symlink("../precious", at("safe/late")), o.Commit([]byte("new")))
	}

	info, statErr := os.Lstat(at("safe/late"))
	if err != nil || statErr != nil || !info.Mode().IsRegular() {
		t.Errorf("late link: got %v, %v, want it replaced", info, errors.Join(err, statErr))
	}

	if b, err := os.ReadFile(at("precious")); err != nil || string(b) != "old" {
		t.Errorf("what the links lead to: got %q, %v, want it as it was", b, err)
	}
}

// TestOutFileToWhatIsOpen: descriptors by their names in /dev and /proc, and pipes, are written to.
func TestOutFileToWhatIsOpen(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, name := range []string{"/dev/fd/", "/proc/self/fd/"} {
		o, err := Create(name + strconv.Itoa(int(w.Fd())))
		if err == nil {
			err = o.Commit([]byte("new"))
		}

		b := make([]byte, 3)
		if _, readErr := r.Read(b); err != nil || readErr != nil || string(b) != "new" {
			t.Fatalf("%s: got %q, %v", name, b, errors.Join(err, readErr))
		}
	}
}
