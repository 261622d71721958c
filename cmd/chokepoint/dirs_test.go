package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
			home + "/.local/share/chokepoint", home + "/.local/state/chokepoint", ""},
		{"home is no directory", map[string]string{"HOME": noDir},
			"/var/tmp/chokepoint-4242/data", "/var/tmp/chokepoint-4242/state", "cannot be written to"},
		{"no home", map[string]string{},
			"/var/tmp/chokepoint-4242/data", "/var/tmp/chokepoint-4242/state", "there is no home directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := findDirs(func(name string) string { return tt.env[name] }, 4242)
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
	if err := prepare(filepath.Join(mine, "deep")); err != nil {
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
			err := prepare(dir)
			if err == nil || len(hints(err)) == 0 {
				t.Errorf("prepare %s: got %v, want an error with a hint", name, err)
			}
		})
	}
}
