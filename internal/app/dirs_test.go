package app

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

func TestFindDirs(t *testing.T) {
	home := t.TempDir()
	data := t.TempDir()
	noDir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(noDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		name  string
		env   map[string]string
		data  string
		state string
		note  string
	}{
		{"home", map[string]string{"HOME": home},
			home + "/.local/share/chokepoint", home + "/.local/state/chokepoint", ""},
		{"variables", map[string]string{"HOME": home, "XDG_DATA_HOME": data, "XDG_STATE_HOME": data + "/s"},
			data + "/chokepoint", data + "/s/chokepoint", ""},
		{"variables without a home", map[string]string{"HOME": noDir, "XDG_DATA_HOME": data,
			"XDG_STATE_HOME": data},
			data + "/chokepoint", data + "/chokepoint", ""},
		{"relative variable", map[string]string{"HOME": home, "XDG_DATA_HOME": "data"},
			home + "/.local/share/chokepoint", home + "/.local/state/chokepoint",
			"XDG_DATA_HOME is data, which is no absolute path: it is ignored"},
		{"relative home that nothing needs", map[string]string{"HOME": "home", "XDG_DATA_HOME": data,
			"XDG_STATE_HOME": data},
			data + "/chokepoint", data + "/chokepoint", ""},
		{"home is no directory", map[string]string{"HOME": noDir},
			"/var/tmp/chokepoint-4242/data", "/var/tmp/chokepoint-4242/state", "cannot be written to"},
		{"no home", map[string]string{},
			"/var/tmp/chokepoint-4242/data", "/var/tmp/chokepoint-4242/state", "there is no home directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := FindDirs(func(name string) string { return tt.env[name] }, 4242)
			if got.Data != tt.data || got.State != tt.state {
				t.Errorf("directories: got %s and %s, want %s and %s", got.Data, got.State, tt.data, tt.state)
			}

			if !strings.Contains(got.Note, tt.note) || tt.note == "" && got.Note != "" {
				t.Errorf("note: got %q, want one with %q", got.Note, tt.note)
			}

			if !filepath.IsAbs(got.Runtime) {
				t.Errorf("runtime directory: got %q, want an absolute path", got.Runtime)
			}
		})
	}
}

func TestPrepare(t *testing.T) {
	shared := t.TempDir()
	if err := os.Chmod(shared, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}

	mine := filepath.Join(shared, "mine")
	if err := Prepare(filepath.Join(mine, "deep")); err != nil {
		t.Fatalf("prepare: got %v, want nil", err)
	}

	info, err := os.Stat(mine)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("mode: got %v, %v, want 0700", info.Mode().Perm(), err)
	}

	open := filepath.Join(shared, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}

	link := filepath.Join(shared, "link")
	if err := os.Symlink(mine, link); err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(mine, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for name, dir := range map[string]string{"open to others": open, "link": filepath.Join(link, "x"),
		"below a file": filepath.Join(file, "x")} {
		t.Run(name, func(t *testing.T) {
			err := Prepare(dir)
			if err == nil || check.HintOf(err) == "" {
				t.Errorf("prepare %s: got %v, want an error with a hint", name, err)
			}
		})
	}
}

// TestTrusted: no element of a directory's path may be one that others can change, as sshd has it.
func TestTrusted(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, mode := range map[string]os.FileMode{"fine": 0o755, "open": 0o757, "shared": 0o777 |
		os.ModeSticky, "private": 0o700} {
		if err := errors.Join(os.MkdirAll(at(name+"/deep/x"), 0o700), os.Chmod(at(name), mode)); err != nil {
			t.Fatal(err)
		}
	}

	tests := map[string]bool{"fine/deep/x": true, "open/deep/x": false, "open/none/yet": false,
		"shared/deep/x": true, "private/deep": true, "fine/link/x": true, "shared/link/x": false,
		"fine/astray/x": false}
	links := map[string]string{"fine/link": "../private/deep", "shared/link": "../private/deep",
		"fine/astray": "../open/deep"}
	if os.Geteuid() == 0 {
		links["fine/theirs"], tests["fine/theirs/x"], tests["theirs/x"] = "../private/deep", false, false
		if err := errors.Join(os.Mkdir(at("theirs"), 0o755), os.Chown(at("theirs"), 4242, 4242)); err != nil {
			t.Fatal(err)
		}
	}

	for name, to := range links {
		if err := os.Symlink(to, at(name)); err != nil {
			t.Fatal(err)
		}
	}

	if os.Geteuid() == 0 {
		if err := os.Lchown(at("fine/theirs"), 4242, 4242); err != nil {
			t.Fatal(err)
		}
	}

	for name, want := range tests {
		if err := trusted(at(name)); (err == nil) != want || err != nil && check.HintOf(err) == "" {
			t.Errorf("%s: got %v, want trusted: %v", name, err, want)
		}
	}
}

// TestRootIgnoresOthersDirectories: sudo may leave the variables of the user who typed it.
func TestRootIgnoresOthersDirectories(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skip: only root can make another user's directory")
	}

	theirs := t.TempDir()
	if err := os.Chown(theirs, 4242, 4242); err != nil {
		t.Fatal(err)
	}

	env := map[string]string{"HOME": theirs, "XDG_DATA_HOME": theirs + "/data", "XDG_RUNTIME_DIR": theirs}
	got := FindDirs(func(name string) string { return env[name] }, 0)
	for _, dir := range []string{got.Data, got.State, got.Cache, got.Runtime} {
		if strings.HasPrefix(dir, theirs) {
			t.Errorf("directories: got %+v, want none in %s", got, theirs)
		}
	}

	if !strings.Contains(got.Note, "not root's") {
		t.Errorf("note: got %q, want that it is said", got.Note)
	}
}

// TestLabsDirs: what a job has left is found from a login, unless others can change it.
func TestLabsDirs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := filepath.Join(os.TempDir(), "chokepoint-"+strconv.Itoa(os.Geteuid()), "run")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}

	d := Dirs{Runtime: filepath.Join(t.TempDir(), "chokepoint")}
	if got := d.AllLabs(); got[0] != d.Labs() || !slices.Contains(got, dir+"/labs") {
		t.Errorf("got %q, want %s first, and %s/labs", got, d.Labs(), dir)
	}

	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}

	if got := d.AllLabs(); slices.Contains(got, dir+"/labs") {
		t.Errorf("got %q, want none that others can change", got)
	}
}

// TestOthersGroup: a directory that a group of several can change is not trusted.
func TestOthersGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skip: only root can make another user's directory")
	}

	dir := filepath.Join(t.TempDir(), "shared")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o770), os.Chown(dir, 0, 100)); err != nil {
		t.Fatal(err)
	}

	if err := trusted(dir); err == nil {
		t.Error("a directory of the group users is trusted")
	}
}
