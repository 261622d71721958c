package lab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// terminal logs in on a serial console. It reads the output of the console as a human would.
type terminal struct {
	conn interface {
		io.ReadWriter
		SetReadDeadline(t time.Time) error
	}
	said  []byte        // output since the last line was typed
	quiet time.Duration // duration of silence that marks the end of the output; 0 means quietTime
}

// quietTime is the duration of silence after which a line at the end of the output may be a prompt. After
// nudgeAfter such silences, Enter is pressed, because a message may hide the prompt or the console may wait
// for Enter.
const (
	quietTime  = 500 * time.Millisecond
	nudgeAfter = 6
)

// maxShown is the maximum size in bytes of the output between two typed lines.
const maxShown = 1 << 20

// control matches escape sequences for colours and cursor movement.
var control = check.Pattern("\x1b(\\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>78])")

// shown returns the output since the last line was typed, without escape sequences.
func (t *terminal) shown() string {
	return strings.ReplaceAll(string(control().ReplaceAll(t.said, nil)), "\r", "")
}

// settle reads until the console is silent. It reports whether there was any output.
func (t *terminal) settle(ctx context.Context) (news bool, err error) {
	quiet := cmp.Or(t.quiet, quietTime)
	buf := make([]byte, 4096)
	for {
		if ctx.Err() != nil {
			return news, context.Cause(ctx)
		}

		t.conn.SetReadDeadline(time.Now().Add(quiet))
		n, err := t.conn.Read(buf)
		t.said = append(t.said, bytes.ReplaceAll(buf[:n], []byte{0}, nil)...)
		news = news || n > 0
		if len(t.said) > maxShown {
			return news, fmt.Errorf("it shows more than %d kB", maxShown>>10)
		}

		if errors.Is(err, os.ErrDeadlineExceeded) {
			return news, nil
		}

		if err != nil {
			return news, err
		}
	}
}

func (t *terminal) enter(line string) error {
	t.said = nil
	_, err := io.WriteString(t.conn, line+"\r")
	return err
}

// shellQuestion is a command that detects a shell, and shellAnswer is its output. A terminal without a shell
// echoes the command, but does not print this output.
const (
	shellQuestion = "echo chokepoint-$((6*7))-shell"
	shellAnswer   = "chokepoint-42-shell"
)

// login logs in, and returns once a shell responds.
func (t *terminal) login(ctx context.Context, user, password string) error {
	silent := 0
	asked := false
	named := false
	for {
		news, err := t.settle(ctx)
		if err != nil {
			return fmt.Errorf("log in on the serial console: %w", err)
		}

		shown := t.shown()
		prompt := strings.TrimSpace(shown[strings.LastIndexByte(shown, '\n')+1:])
		lower := strings.ToLower(prompt)
		silent++
		if news {
			silent = 0
		}

		line := ""
		switch {
		case asked && strings.Contains(shown, shellAnswer):
			return nil
		case strings.Contains(shown, "Login incorrect"):
			return errLogin(fmt.Sprintf("the serial console refuses user %s", user),
				"--image-login serial:USER and --image-password FILE")
		case strings.HasSuffix(lower, "login:"):
			line, named = user, true
		case strings.HasSuffix(lower, "password:") && named && password == "":
			return errLogin(fmt.Sprintf("the serial console wants a password of user %s", user),
				"--image-password FILE names a file that holds it")
		case strings.HasSuffix(lower, "password:") && named:
			line = password
		case strings.ContainsAny(prompt[max(0, len(prompt)-1):], "#$>%") && (news || silent%nudgeAfter == 0):
			line, asked = shellQuestion, true
		case silent < nudgeAfter:
			continue
		default:
			silent = 0
		}

		if err := t.enter(line); err != nil {
			return fmt.Errorf("log in on the serial console: %w", err)
		}
	}
}

// These marks surround the output of a command. The typed command composes them from a variable, so that its
// echo does not contain them.
const (
	beginMark = "chokepoint-begin"
	endMark   = "chokepoint-end "
)

// run makes a shell run a script, and returns the output of the script. It types the script line by line,
// because shells of small systems do not accept long lines.
func (t *terminal) run(ctx context.Context, shell, script string) (said string, err error) {
	if err := t.enter("stty -echo 2>/dev/null; PS1= PS2= b=chokepoint"); err != nil {
		return "", err
	}

	if _, err := t.settle(ctx); err != nil {
		return "", err
	}

	lines := "echo $b-begin; " + shell + " <<'end of script'\n" + strings.TrimRight(script, "\n") +
		"\nend of script\necho $b-end $?"
	if err := t.enter(strings.ReplaceAll(lines, "\n", "\r")); err != nil {
		return "", err
	}

	for {
		if _, err := t.settle(ctx); err != nil {
			return "", fmt.Errorf("on the serial console: %w", err)
		}

		_, rest, began := strings.Cut(t.shown(), beginMark+"\n")
		said, code, ended := strings.Cut(rest, endMark)
		code, _, whole := strings.Cut(code, "\n")
		if !began || !ended || !whole {
			continue
		}

		if said = strings.TrimSpace(said); code != "0" {
			return said, fmt.Errorf("on the serial console: exit status %s: %s", code, said)
		}

		return said, nil
	}
}
