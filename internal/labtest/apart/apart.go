// Package apart serves tests with special needs: a longer time limit, installed programs, or a separate
// process or network namespace.
package apart

import (
	"flag"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// longVariable enables long tests if set to any value.
const longVariable = "CHOKEPOINT_LONG"

// Wanted reports whether long tests were requested.
func Wanted() bool { return os.Getenv(longVariable) != "" }

// Long skips a test unless long tests were requested. It is meant for tests that boot guests, or that need
// more than the package's share of the time for "go test ./...". The reason must be listed in
// .ci/allowed-skips.
func Long(t testing.TB, reason string) {
	t.Helper()
	if !Wanted() {
		t.Skip("skip: " + reason + "; " + longVariable + "=1 asks for it")
	}
}

// SideBySide sets the number of parallel tests in a package whose tests mostly wait. Call it before the
// tests begin. It overrides go test's default; the flag -parallel takes precedence.
func SideBySide(tests int) {
	if err := flag.Set("test.parallel", strconv.Itoa(tests)); err != nil {
		panic(err)
	}
}

// Needs skips the test unless the programs are installed.
func Needs(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip("skip: no " + p + " here")
		}
	}
}

// processVariable is set to the name of the test in a process started by Process.
const processVariable = "CHOKEPOINT_TEST_PROCESS"

// Process runs the calling test again in a separate process, and returns false. In the separate process, it
// returns true, and the test may change what all tests of a process share, such as resource limits. In the
// shared process, a limit on file sizes would truncate the log of package testing.
func Process(t testing.TB) bool {
	t.Helper()
	if os.Getenv(processVariable) == t.Name() {
		return true
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatalf("find the test program: %v", err)
	}

	only := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), self, "-test.v", "-test.run="+only)
	cmd.Env = append(os.Environ(), processVariable+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Fatalf("%s in a process of its own: got %v, want it passed:\n%s", t.Name(), err, out)
	}

	return false
}
