package ssh

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// hostileSSH plays ssh to a machine that answers hello, and floods whatever comes next.
const hostileSSH = `#!/bin/sh
case "$*" in
*-M*"exec /bin/sh -s")
	printf '\nchokepoint-hello\nLinux\nx86_64\n0\nnone\nconnection\n' |
		sed 's/^connection/connection 192.0.2.1 50000 192.0.2.2 22/'
	echo chokepoint-ready
	case $HOSTILE in
	stderr) exec yes "$HOSTILE" >&2;;
	log) while [ "$1" != -E ]; do shift; done; exec yes "$HOSTILE" >"$2";;
	esac
	exec cat >/dev/null;;
esac
case $HOSTILE in
silent)
	sleep 10 & # which has the output open, as ssh's master has
	exec sleep 600;;
session) exec yes "$HOSTILE";;
command) exec yes "$HOSTILE" >&2;;
esac
`

// playSSH has what is started as ssh be a script.
func playSSH(t *testing.T, script, hostile string) {
	t.Helper()
	bin := t.TempDir()
	must(t, os.WriteFile(filepath.Join(bin, "ssh"), []byte(script), 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("HOSTILE", hostile)
}

// TestAFloodEndsTheConnection: a machine that writes without end, on standard error, into ssh's log or as
// the output of a command, is hung up on, and little of it is kept.
func TestAFloodEndsTheConnection(t *testing.T) {
	for _, hostile := range []string{"stderr", "log", "session", "command"} {
		t.Run(hostile, func(t *testing.T) {
			playSSH(t, hostileSSH, hostile)
			o := Options{Dir: t.TempDir(), Name: "router"}
			c, err := Dial(t.Context(), Destination{Host: "router"}, o)
			if err == nil {
				switch hostile {
				case "session":
					_, err = c.Run(t.Context(), "true\n")
				case "command":
					_, err = host.Run(t.Context(), c.Shell(), host.Command{Path: "true"})
				default:
					for err = c.flood(); err == nil; err = c.flood() {
						if host.Pause(t.Context(), 10*time.Millisecond) != nil {
							break
						}
					}
				}

				kept := len(c.log.text()) + len(c.machine.text())
				if kept > 2*keptHeard {
					t.Errorf("%d bytes are kept, want at most %d", kept, 2*keptHeard)
				}

				if closeErr := c.Close(); closeErr != nil {
					t.Error(closeErr)
				}
			}

			long := err != nil && strings.Contains(err.Error(), "it prints more than")
			switch {
			case hostile == "session" && !long:
				t.Errorf("run: got %v", err)
			case hostile != "session" && !errors.Is(err, errFlood):
				t.Errorf("got %v, want %v", err, errFlood)
			}
		})
	}
}

// TestASilentMachineIsGivenUp: neither a machine that lets us in and then says nothing is waited for without
// end, nor one whose sessions do so.
func TestASilentMachineIsGivenUp(t *testing.T) {
	const within = 300 * time.Millisecond
	playSSH(t, "#!/bin/sh\nexec sleep 600\n", "")
	o := Options{Dir: t.TempDir(), Name: "router"}
	_, err := dialWithin(t.Context(), Destination{Host: "router"}, o, within)
	expect.Error(t, "connect", err, host.ErrUnreachable, "no answer within")
	playSSH(t, hostileSSH, "silent")
	c, err := Dial(t.Context(), Destination{Host: "router"}, Options{Dir: t.TempDir(), Name: "router"})
	must(t, err)
	defer c.Close()
	begun := time.Now()
	_, err = c.do(t.Context(), within, "true", strings.NewReader(""))
	expect.Error(t, "a session that says nothing", err, host.ErrUnreachable)
	took := time.Since(begun)
	if took > 8*time.Second {
		t.Errorf("it was waited for %v, as long as somebody has its output open", took)
	}
}
