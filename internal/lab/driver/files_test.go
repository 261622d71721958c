package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put writes a file, with the folders above it.
func put(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// get reads a file.
func get(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return os.IsNotExist(err)
}

// waitFor waits until something holds, and reports whether it does.
func waitFor(patience time.Duration, holds func() bool) bool {
	for end := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// same compares what is got with what is wanted.
func same(t testing.TB, want, got any, what string, args ...any) {
	t.Helper()
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf(what+" (-want +got):\n%s", append(args, diff)...)
	}
}

// parses wants texts to be read as these states, "" for an error.
func parses(t testing.TB, parse func(text string) (string, error), states map[string]string) {
	t.Helper()
	for text, want := range states {
		got, err := parse(text)
		if got != want || (err == nil) != (want != "") || strings.Contains(fmt.Sprint(err), "\x1b") {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}
