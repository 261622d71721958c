package progress

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// openPTY returns both ends of a pseudo terminal of 80 × 24.
func openPTY(t *testing.T) (master, tty *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("open pseudo terminal: %v", err)
	}

	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatalf("unlock pseudo terminal: %v", err)
	}

	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatalf("name pseudo terminal: %v", err)
	}

	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatalf("size pseudo terminal: %v", err)
	}

	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("open pseudo terminal: %v", err)
	}

	t.Cleanup(func() { tty.Close() })
	return master, tty
}

// TestLiveOnAPseudoTerminal draws on what the kernel says is a terminal, and finds its settings as they
// were.
func TestLiveOnAPseudoTerminal(t *testing.T) {
	tests := []struct {
		name, term, noColor string
		live, colours       bool
	}{
		{"terminal", "xterm", "", true, true},
		{"NO_COLOR", "xterm", "1", true, false},
		{"dumb", "dumb", "", false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("TERM", tt.term)
			t.Setenv("NO_COLOR", tt.noColor)
			t.Setenv("LC_ALL", "C.UTF-8")
			master, tty := openPTY(t)
			before, err := term.GetState(int(tty.Fd()))
			if err != nil {
				t.Fatalf("read terminal settings: %v", err)
			}

			s := Live(tty, nil)
			for _, e := range story() {
				s.Event(e)
			}

			got := readUntil(t, master, map[bool]string{true: "warm-up", false: "tunnel counters"}[tt.live])
			give(t, s, record.Event{Time: time.Now(), Event: RunEnded, Status: record.RunDone})
			got += readUntil(t, master, "r1 done")
			after, err := term.GetState(int(tty.Fd()))
			if err != nil || *after != *before {
				t.Errorf("terminal settings: got %v, %v, want them as before", after, err)
			}

			if live := strings.Contains(got, "\x1b[J"); live != tt.live {
				t.Errorf("repainted: got %v, want %v", live, tt.live)
			}

			colours := strings.Contains(got, "\x1b[1m")
			if colours != tt.colours {
				t.Errorf("colours: got %v, want %v", colours, tt.colours)
			}
		})
	}
}

// readUntil reads what is drawn until a word is on it.
func readUntil(t *testing.T, master *os.File, word string) string {
	t.Helper()
	var all strings.Builder
	found := make(chan struct{})
	go func() {
		defer close(found)
		b := make([]byte, 4096)
		for !strings.Contains(all.String(), word) {
			n, err := master.Read(b)
			if err != nil {
				return
			}

			all.Write(b[:n])
		}
	}()
	select {
	case <-found:
	case <-time.After(10 * time.Second):
		t.Fatalf("waited 10 s for %q on the terminal", word)
	}

	return all.String()
}
