package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/pair"
)

// terminal is a pseudo-terminal: what a person would see, and the end that a program takes for its terminal.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}

	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}

	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { program.Close() })
	return person, program
}

// TestCodeIsAskedForUnseen types a code at the terminal, which must not show it; a mistyped one is refused
// without being repeated.
func TestCodeIsAskedForUnseen(t *testing.T) {
	chokepoint, err := exec.LookPath("chokepoint")
	if err != nil {
		t.Fatal(err)
	}

	good := pair.Text(pair.NewCode())
	for typed, want := range map[string]string{
		good:            "reach the peer at 127.0.0.1:9",
		"MISTYPED-CODE": "the peer's code, from the terminal: not a code",
	} {
		person, program := terminal(t)
		dir := t.TempDir()
		cmd := exec.Command(chokepoint, "run", "--peer", "127.0.0.1:9")
		cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_STATE_HOME="+dir+"/state",
			"XDG_RUNTIME_DIR="+dir, "GORACE="+noExitSleep)
		cmd.Stdin = program
		cmd.Stdout = program
		cmd.Stderr = program
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}

		stop := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
		program.Close()
		var seen strings.Builder
		buf := make([]byte, 4096)
		asked := false
		for {
			n, err := person.Read(buf)
			seen.Write(buf[:n])
			if !asked && strings.Contains(seen.String(), "Code that the peer at 127.0.0.1:9 shows: ") {
				asked = true
				time.Sleep(50 * time.Millisecond) // the echo is turned off behind the question
				if _, err := io.WriteString(person, typed+"\n"); err != nil {
					t.Fatal(err)
				}
			}

			if err != nil {
				break // the program has ended
			}
		}

		cmd.Wait() // its exit code is not the matter
		stop.Stop()
		got := seen.String()
		if !asked || !strings.Contains(got, want) || strings.Contains(got, typed) {
			t.Errorf("asked %v; the terminal showed %q, want %q and nothing of what was typed", asked, got,
				want)
		}
	}
}
