package apart

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLimited leaves files no room at all, in a process of its own.
func TestLimited(t *testing.T) {
	if !Process(t) {
		return
	}

	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Max: unix.RLIM_INFINITY}); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(t.TempDir(), "file"), []byte("text"), 0o600); err == nil {
		t.Error("write a file: got nil, want that it is too large")
	}
}

// TestLimitsLeaveTheTestLogAlone gives TestLimited what go test does: a file to note in what a test reads.
func TestLimitsLeaveTheTestLogAlone(t *testing.T) {
	log := filepath.Join(t.TempDir(), "testlog.txt")
	cmd := exec.Command(os.Args[0], "-test.run=^TestLimited$", "-test.testlogfile="+log, "-test.paniconexit0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("got %v, want that the log could be written:\n%s", err, out)
	}

	text, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(text), "getenv "+processVariable) {
		t.Errorf("the log: got %q, %v, want it whole", text, err)
	}
}

// TestAFailureInItsProcessFailsTheTest runs this test once more, where it plants a fault.
func TestAFailureInItsProcessFailsTheTest(t *testing.T) {
	const planted = "CHOKEPOINT_TEST_FAULT"
	if os.Getenv(planted) != "" {
		if Process(t) {
			t.Error("a planted fault")
		}
		return
	}

	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), planted+"=1")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "a planted fault") {
		t.Errorf("got %v, want a failure that shows the fault:\n%s", err, out)
	}
}

// skipped notes why a test is skipped.
type skipped struct {
	testing.TB
	reason string
}

func (s *skipped) Helper()          {}
func (s *skipped) Skip(args ...any) { s.reason = fmt.Sprint(args...) }

func TestNeeds(t *testing.T) {
	s := skipped{TB: t}
	if Needs(&s, "sh"); s.reason != "" {
		t.Errorf("got %q, want a shell found", s.reason)
	}

	if Needs(&s, "sh", "no-such-program"); s.reason != "skip: no no-such-program here" {
		t.Errorf("got %q, want the missing program", s.reason)
	}
}

func TestLong(t *testing.T) {
	for value, want := range map[string]string{
		"":  "skip: boots a guest; CHOKEPOINT_LONG=1 asks for it",
		"1": "",
	} {
		t.Setenv(longVariable, value)
		s := skipped{TB: t}
		if Long(&s, "boots a guest"); s.reason != want {
			t.Errorf("with %q: got %q, want %q", value, s.reason, want)
		}
	}
}
