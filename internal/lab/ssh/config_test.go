package ssh

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// TestCopyConfig: ssh reads a copy of what was looked at, and nothing that others can change, whether the
// configuration itself, a directory above it or what it includes.
func TestCopyConfig(t *testing.T) {
	home := t.TempDir()
	dir := t.TempDir()
	t.Setenv("HOME", home)
	file := filepath.Join(home, "config")
	more := filepath.Join(home, ".ssh", "more")
	text := "Host pc2\n ProxyCommand nc %h %p\nInclude more\nMatch host pc3 exec \"true\"\n" +
		"ProxyCommand none\n"
	for _, err := range []error{os.Mkdir(filepath.Join(home, ".ssh"), 0o700),
		os.WriteFile(file, []byte(text), 0o600),
		os.WriteFile(more, []byte("# ProxyCommand not this\nknownHostsCommand=/bin/keys\n"), 0o600)} {
		must(t, err)
	}

	own, err := CopyConfig(file, dir)
	if err != nil || filepath.Dir(own) != dir {
		t.Fatalf("got %q, %v, want it in %s", own, err, dir)
	}

	if b, err := os.ReadFile(own); string(b) != text || err != nil {
		t.Errorf("got %q, %v, want the same", b, err)
	}

	got, err := ConfigCommands(file)
	want := []string{"ProxyCommand nc %h %p", `Match host pc3 exec "true"`, "knownHostsCommand=/bin/keys"}
	if !slices.Equal(got, want) || err != nil {
		t.Errorf("commands: got %q, %v, want %q", got, err, want)
	}

	for _, path := range []string{file, more, filepath.Dir(more), home} {
		info, err := os.Stat(path)
		must(t, err)
		must(t, os.Chmod(path, info.Mode()|0o002))
		if got, err := CopyConfig(file, t.TempDir()); err == nil || check.HintOf(err) == "" {
			t.Errorf("others can change %s: got %q, %v, want a refusal with a hint", path, got, err)
		}

		must(t, os.Chmod(path, info.Mode()))
	}

	for _, line := range []string{"Include ${X}/config", "include \"my config\"", "Include %h"} {
		must(t, os.WriteFile(file, []byte(line), 0o600))
		_, err := CopyConfig(file, dir)
		expect.Error(t, line, err, "it is unknown who can change")
	}

	must(t, os.WriteFile(file, []byte("Include "+file), 0o600))
	if _, err := CopyConfig(file, dir); err == nil {
		t.Error("one that includes itself: got no error")
	}

	if got, err := CopyConfig("", dir); got != "" || err != nil {
		t.Errorf("the user's own: got %q, %v", got, err)
	}
}
