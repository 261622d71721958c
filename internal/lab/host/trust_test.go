package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// TestOwnGroup: others may be in a group, also in the one that this user works in.
func TestOwnGroup(t *testing.T) {
	const groups = "root:x:0:\nusers:x:100:\nana:x:1000:\nben:x:1001:ana\nsame:x:1002:same\nname:x:2000:\n"
	for _, tt := range []struct {
		user     string
		uid, gid uint32
		want     bool
	}{{"root", 0, 0, true}, {"ana", 1000, 1000, true}, {"ana", 1000, 100, false}, {"ben", 1001, 1001, false},
		{"same", 1002, 1002, true}, {"name", 1003, 2000, true}, {"", 1004, 1004, true},
		{"", 1004, 2000, false}, {"ana", 1000, 3000, false}} {
		got := groupOf(groups, tt.user, tt.uid, tt.gid)
		if got != tt.want {
			t.Errorf("group %d of %s: got %v, want %v", tt.gid, tt.user, got, tt.want)
		}
	}
}

// TestOpenTrusted: a file is opened if nobody else can change it, or put another in its place.
func TestOpenTrusted(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, mode := range map[string]os.FileMode{"fine": 0o755, "open": 0o757,
		"shared": 0o777 | os.ModeSticky} {
		must(t, errors.Join(os.MkdirAll(at(name+"/deep"), 0o700), os.Chmod(at(name), mode)))
		for _, file := range []string{name + "/file", name + "/deep/file"} {
			must(t, os.WriteFile(at(file), []byte(file), 0o644))
		}
	}

	must(t, errors.Join(os.WriteFile(at("fine/writable"), nil, 0o600), os.Chmod(at("fine/writable"), 0o666),
		syscall.Mkfifo(at("fine/pipe"), 0o600)))
	tests := map[string]bool{"fine/file": true, "fine/deep/file": true, "open/file": false,
		"open/deep/file": false, "shared/file": true, "fine/writable": false, "fine": false, "fine/pipe": false,
		"fine/none": false, "fine/link": true, "shared/link": false, "fine/astray": false, "fine/folder/file": false}
	links := map[string]string{"fine/link": "deep/file", "shared/link": "../fine/file",
		"fine/astray": "../open/file", "fine/folder": "../open/deep"}
	if os.Geteuid() == 0 {
		tests["fine/theirs"], tests["shared/theirs"] = false, false
		for _, file := range []string{"fine/theirs", "shared/theirs"} {
			err := errors.Join(os.WriteFile(at(file), nil, 0o644), os.Chown(at(file), 4242, 4242))
			must(t, err)
		}
	}

	for name, to := range links {
		must(t, os.Symlink(to, at(name)))
	}

	for name, want := range tests {
		began := time.Now()
		f, err := OpenTrusted(at(name))
		if (err == nil) != want {
			t.Errorf("%s: got %v, want it opened: %v", name, err, want)
		}

		if err == nil {
			f.Close()
		} else if check.HintOf(err) == "" && strings.Contains(err.Error(), "others can") {
			t.Errorf("%s: got %v without a hint", name, err)
		}

		spent := time.Since(began)
		if spent > 5*time.Second {
			t.Errorf("%s: took %s", name, spent)
		}
	}

	if os.Geteuid() == 0 {
		t.Setenv("SUDO_UID", "4242")
		f, err := OpenTrusted(at("fine/theirs"))
		if err != nil {
			t.Fatalf("a file of the user who called sudo: %v", err)
		}

		f.Close()
		if err := TrustedDir(at("fine/theirs")); err == nil {
			t.Error("root keeps something where that user can change it")
		}
	}
}

// TestPassword: one that others can read is refused, whoever asks for it.
func TestPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	for _, tt := range []struct {
		text string
		mode os.FileMode
		want string
		err  string
	}{
		{"hunter2\r\nsecond\n", 0o600, "hunter2", ""},
		{"hunter2", 0o400, "hunter2", ""},
		{"hunter2\n", 0o640, "", "others can read"},
		{"hunter2\n", 0o604, "", "others can read"},
		{"hunter2\n", 0o602, "", "others can change"},
		{"\nhunter2\n", 0o600, "", "first line"},
		{strings.Repeat("x", 5000), 0o600, "", "bytes"},
	} {
		_ = os.Remove(file)
		err := errors.Join(os.WriteFile(file, []byte(tt.text), 0o600), os.Chmod(file, tt.mode))
		must(t, err)
		got, err := Password(file)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) ||
				strings.Contains(err.Error(), "hunter") {
				t.Errorf("%q with mode %o: got %v, want %q", tt.text, tt.mode, err, tt.err)
			}
			continue
		}

		if err != nil || string(got.read()) != tt.want {
			t.Errorf("%q with mode %o: got %q, %v", tt.text, tt.mode, got.read(), err)
		}
	}
}

// TestTrustedCommand: neither a program nor a script that its arguments name is one that others can change.
func TestTrustedCommand(t *testing.T) {
	dir := t.TempDir()
	ours := filepath.Join(dir, "ours.sh")
	theirs := filepath.Join(dir, "theirs.sh")
	for file, mode := range map[string]os.FileMode{ours: 0o755, theirs: 0o777} {
		err := errors.Join(os.WriteFile(file, []byte("#!/bin/sh\n"), 0o700), os.Chmod(file, mode))
		must(t, err)
	}

	for _, words := range [][]string{{ours}, {"sh", ours, "24.10"}, {"sh", "-c", "exit"},
		{"true", "/dev/null"}} {
		if err := TrustedCommand(words); err != nil {
			t.Errorf("%q: %v", words, err)
		}
	}

	for _, words := range [][]string{{theirs}, {"sh", theirs}, {"sh", "-x", theirs, "a"},
		{"no-such-program"}} {
		if err := TrustedCommand(words); err == nil {
			t.Errorf("%q: got no error", words)
		}
	}
}
