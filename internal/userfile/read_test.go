package userfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRead: a pipe is read while somebody writes into it; one that nobody writes into, or whose writer
// says nothing, keeps nobody waiting, and neither does a device.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	pipe := filepath.Join(dir, "pipe")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]string{pipe: "a pipe that nobody writes into", "/dev/zero": "neither",
		dir: "is a directory", filepath.Join(dir, "none"): "no such file"} {
		if _, err := Read(name, 10); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}

	if got, err := Read(file, 4); err != nil || string(got) != "text" {
		t.Errorf("a file: got %q, %v", got, err)
	}

	if got, err := Read(file, 3); err != nil || string(got) != "tex" {
		t.Errorf("the beginning of a file: got %q, %v", got, err)
	}

	w, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteString("text"); err != nil {
		t.Fatal(err)
	}

	if _, err := Read(pipe, 10); err == nil || !strings.Contains(err.Error(), "silent") {
		t.Errorf("a pipe whose writer stays: got %v", err)
	}
}
