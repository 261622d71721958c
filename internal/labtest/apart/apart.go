// Package apart requests what a test needs for itself: a longer run, programs, a process.
package apart

import (
	"flag"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Any value of longVariable requests long tests.
const longVariable = "CHOKEPOINT_LONG"

// Wanted reports whether long tests were requested.
func Wanted() bool { return os.Getenv(longVariable) != "" }

// Long skips a test that boots guests, or takes longer than a package's share of go test ./..., unless such
// tests were requested. Reason begins the test's reason, as listed in .ci/allowed-skips.
func Long(t testing.TB, reason string) {
	t.Helper()
	if !Wanted() {
		t.Skip("skip: " + reason + "; " + longVariable + "=1 asks for it")
	}
}

// SideBySide lets n parallel tests of a package run at once, if they mostly wait. Call it before the tests
// begin; the flag -parallel of go test overrides it.
func SideBySide(tests int) {
	if err := flag.Set("test.parallel", strconv.Itoa(tests)); err != nil {
		panic(err)
	}
}

// Needs skips a test unless these programs are installed.
func Needs(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip("skip: no " + p + " here")
		}
	}
}

// processVariable holds the name of the test that has a process of its own.
const processVariable = "CHOKEPOINT_TEST_PROCESS"

// Process runs the calling test again in a process of its own and returns false, or returns true if this is
// that process. There the test may change what all tests share, such as resource limits: in the common
// process a limit on file sizes would truncate the log that the testing package writes.
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
