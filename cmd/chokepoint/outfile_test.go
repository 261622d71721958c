package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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

	dropped, err := createOutFile(path)
	if err != nil {
		t.Fatalf("createOutFile: got %v, want nil", err)
	}
	if err := dropped.abort(); err != nil {
		t.Errorf("abort: got %v, want nil", err)
	}
	check("old")

	// What is under way has no name yet, or only one of its own.
	left, err := createOutFile(path)
	if err != nil {
		t.Fatalf("createOutFile: got %v, want nil", err)
	}
	if !left.named {
		check("old")
	}
	if err := left.abort(); err != nil {
		t.Errorf("abort: got %v, want nil", err)
	}

	kept, err := createOutFile(link)
	if err != nil {
		t.Fatalf("createOutFile: got %v, want nil", err)
	}
	if err := kept.commit([]byte("new")); err != nil {
		t.Errorf("commit: got %v, want nil", err)
	}
	if err := kept.abort(); err != nil {
		t.Errorf("abort after commit: got %v, want nil", err)
	}
	check("new")
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("link: got %v, %v, want it kept", info.Mode(), err)
	}

	fresh := filepath.Join(t.TempDir(), "fresh.html")
	first, err := createOutFile(fresh)
	if err != nil {
		t.Fatalf("createOutFile: got %v, want nil", err)
	}
	if err := first.commit([]byte("first")); err != nil {
		t.Errorf("commit: got %v, want nil", err)
	}
	if info, err := os.Stat(fresh); err != nil || info.Size() != 5 || info.Mode().Perm() != 0o644 {
		t.Errorf("fresh file: got %v, %v, want 5 bytes for all to read", info, err)
	}

	if _, err := createOutFile(dir); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("directory: got %v, want an error", err)
	}
	if _, err := createOutFile(filepath.Join(dir, "none", "x")); err == nil || !strings.Contains(err.Error(),
		"no such file") {
		t.Errorf("missing directory: got %v, want an error", err)
	}
	full, err := createOutFile("/dev/full")
	if err != nil {
		t.Fatalf("device: got %v, want nil", err)
	}
	if err := full.commit([]byte("x")); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("full device: got %v, want an error", err)
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Errorf("full device: got %v, want it still there", err)
	}
}
