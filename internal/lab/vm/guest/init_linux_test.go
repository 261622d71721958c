package guest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// agentRole makes the test program an agent that says hello on its port, waits for one byte, and ends with
// that as its status.
const agentRole = "test-agent"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == agentRole {
		var b [1]byte
		fmt.Print("hello")
		if _, err := io.ReadFull(os.Stdin, b[:]); err != nil {
			os.Exit(99)
		}

		os.Exit(int(b[0]))
	}

	os.Exit(m.Run())
}

// pty is a pair of terminals: what is a serial line to one end, and a plain file to the other.
func pty(t *testing.T) (far *os.File, device string) {
	t.Helper()
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { far.Close() })
	must(t, unix.IoctlSetPointerInt(int(far.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(far.Fd()), unix.TIOCGPTN)
	must(t, err)
	return far, fmt.Sprintf("/dev/pts/%d", n)
}

// TestSerialLineIsBinaryClean: every byte passes in both directions as it is, and nothing is echoed.
func TestSerialLineIsBinaryClean(t *testing.T) {
	far, device := pty(t)
	near, err := openSerial(device)
	must(t, err)
	defer near.Close()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}

	for name, ends := range map[string][2]*os.File{"out": {near, far}, "in": {far, near}} {
		if _, err := ends[0].Write(all); err != nil {
			t.Fatal(err)
		}

		got := make([]byte, len(all))
		if _, err := io.ReadFull(ends[1], got); err != nil || !bytes.Equal(got, all) {
			t.Errorf("%s: got %q (%v), want all bytes", name, got, err)
		}
	}

	term, err := unix.IoctlGetTermios(int(near.Fd()), unix.TCGETS)
	must(t, err)
	if term.Cflag&unix.CBAUD != unix.B115200 || term.Cflag&unix.CSIZE != unix.CS8 ||
		term.Cflag&unix.CLOCAL == 0 {
		t.Errorf("line: got flags %#x, want 115200 bit/s, 8 bits, no modem", term.Cflag)
	}
}

func TestSerialLineMissing(t *testing.T) {
	if f, err := openSerial(filepath.Join(t.TempDir(), "ttyS9")); err == nil || f != nil {
		t.Errorf("no such line: got %v, %v; want an error", f, err)
	}

	if f, err := openSerial("/dev/null"); err == nil || f != nil {
		t.Errorf("no line at all: got %v, %v; want an error", f, err)
	}
}

// TestAgentIsKeptRunning: an agent that ends is started again on the same port, however it ended, until the
// order to end comes. It reaps every child of this process, so no test beside it may have any.
func TestAgentIsKeptRunning(t *testing.T) {
	far, device := pty(t)
	held, err := openSerial(device) // a terminal that nobody has open hangs up
	must(t, err)
	defer held.Close()
	console, err := os.Create(filepath.Join(t.TempDir(), "console"))
	must(t, err)
	defer console.Close()
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, initSignals...)
	defer signal.Stop(signals)
	g := &guest{
		signals:   signals,
		agentArgs: []string{agentRole},
		console:   console,
		open:      func() (*os.File, error) { return openSerial(device) },
	}
	lived := make(chan error, 1)
	go func() { lived <- g.live() }()

	hello := func() {
		t.Helper()
		b := make([]byte, 5)
		far.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadFull(far, b); err != nil || string(b) != "hello" {
			t.Fatalf("agent: got %q, %v; want its hello", b, err)
		}
	}
	for _, status := range []byte{3, 0, 7} {
		hello()
		if _, err := far.Write([]byte{status}); err != nil {
			t.Fatal(err)
		}
	}

	hello()
	signals <- syscall.SIGTERM
	if err := <-lived; err != nil {
		t.Errorf("first process: got %v, want nil when it is told to end", err)
	}

	if err := g.agent.Kill(); err != nil {
		t.Error(err)
	}

	g.agent.Wait()
	said, err := os.ReadFile(console.Name())
	must(t, err)
	want := "chokepoint: ready: kernel 0 ms, modules 0 ms\n" +
		"chokepoint: agent ended: exit status 3\nchokepoint: agent ended: exit status 7\n"
	if string(said) != want {
		t.Errorf("console: got %q, want %q", said, want)
	}
}

// TestPortIsMissing: why no agent runs is said once.
func TestPortIsMissing(t *testing.T) {
	console, err := os.Create(filepath.Join(t.TempDir(), "console"))
	must(t, err)
	defer console.Close()
	signals := make(chan os.Signal, 64)
	tries := make(chan bool)
	g := &guest{
		signals: signals,
		console: console,
		open: func() (*os.File, error) {
			tries <- true
			return nil, os.ErrPermission
		},
	}
	lived := make(chan error, 1)
	go func() { lived <- g.live() }()
	for range 3 {
		<-tries
	}

	go func() {
		for range tries {
		}
	}()
	signals <- syscall.SIGINT
	if err := <-lived; err != nil {
		t.Errorf("first process: got %v, want nil when it is told to end", err)
	}

	close(tries)
	said, err := os.ReadFile(console.Name())
	must(t, err)
	n := strings.Count(string(said), "start the agent: permission denied")
	if n != 1 ||
		strings.Contains(string(said), "ready") {
		t.Errorf("console: got %q, want the reason once", said)
	}
}
