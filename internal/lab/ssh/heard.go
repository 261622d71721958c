package ssh

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// These limits apply to ssh's own log and to standard error: the number of bytes kept from the end, and the
// number of bytes accepted.
const (
	keptHeard    = 4 << 10
	heardAtOnce  = 8 << 20
	heardPerTime = 64 << 10 // bytes per second while the connection lasts
)

// These limits apply to the standard output of a command, in bytes.
const (
	printedAtOnce  = 256 << 20
	printedPerTime = 4 << 20 // bytes per second while the command runs
)

var errFlood = errors.New("the machine sends more than anything useful would be, and was hung up on")

// allowance limits the number of received bytes to atOnce plus perTime for each second that has passed.
type allowance struct {
	atOnce, perTime int64
	since           time.Time
	came            int64
}

// exceeded adds n bytes to the number of received bytes, and reports whether this number exceeds the limit.
func (a *allowance) exceeded(n int) bool {
	if a.since.IsZero() {
		a.since = time.Now()
	}

	a.came += int64(n)
	return a.came > a.atOnce+int64(time.Since(a.since).Seconds()*float64(a.perTime))
}

// heard keeps the end of what processes write to a pipe. It is safe for concurrent use.
type heard struct {
	out, in *os.File // read end and write end of the pipe; in is nil for a named pipe
	done    chan struct{}

	mu      sync.Mutex
	end     host.Tail
	allowed allowance
	flooded bool
}

// hear starts to read a pipe. If it receives more bytes than allowed, it calls flood once.
func hear(out, in *os.File, flood func()) *heard {
	h := &heard{
		out:     out,
		in:      in,
		done:    make(chan struct{}),
		allowed: allowance{atOnce: heardAtOnce, perTime: heardPerTime},
	}
	go func() {
		defer close(h.done)
		raw, err := out.SyscallConn()
		if err != nil {
			return
		}

		_ = raw.Read(func(fd uintptr) bool { // returns when the pipe is closed
			if h.take(int(fd)) {
				flood()
			}
			return false
		})
	}()
	return h
}

// take reads the bytes that are in the pipe. It reports whether these bytes are the first to exceed the
// allowance.
func (h *heard) take(fd int) (flood bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for buf := make([]byte, 32<<10); !flood; {
		n, err := syscall.Read(fd, buf)
		if n <= 0 || err != nil {
			return false
		}

		h.end.Add(buf[:n], keptHeard)
		flood = h.allowed.exceeded(n) && !h.flooded
		h.flooded = h.flooded || flood
	}

	return flood
}

// text returns the end of what was written so far. This includes what a process wrote just before it exited.
func (h *heard) text() string {
	if raw, err := h.out.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { h.take(int(fd)) })
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.end.Bytes())
}

func (h *heard) close() error {
	err := h.out.Close()
	if h.in != nil {
		err = errors.Join(err, h.in.Close())
	}

	<-h.done
	return err
}

// hearAll starts to read ssh's own log from a named pipe and, separately, the standard error of ssh, which
// contains output of the machine and of proxy commands.
func (c *Connection) hearAll() (err error) {
	if err := os.Remove(c.logFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	if err := syscall.Mkfifo(c.logFile(), 0o600); err != nil {
		return fmt.Errorf("make %s: %w", c.logFile(), err)
	}

	// Open the pipe for both reading and writing, so that reading does not end when ssh closes the pipe.
	log, err := os.OpenFile(c.logFile(), os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}

	out, in, err := os.Pipe()
	if err != nil {
		return errors.Join(err, log.Close())
	}

	c.log, c.machine = hear(log, nil, c.hangUp), hear(out, in, c.hangUp)
	return nil
}

// hangUp kills the connection.
func (c *Connection) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flooded = true; c.master != nil {
		c.master.Kill()
	}
}

// carry sets the ssh process that carries the sessions.
func (c *Connection) carry(master *host.Child) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.master = master; c.flooded {
		master.Kill()
	}
}

// flood returns an error if the connection was killed because too many bytes were received.
func (c *Connection) flood() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flooded {
		return fmt.Errorf("%w: %w", host.ErrUnreachable, errFlood)
	}

	return nil
}

// said returns the end of standard error as one line.
func (c *Connection) said() string { return inOneLine(lastLines(c.machine.text())) }

// words returns the ends of ssh's log and of standard error as one line.
func (c *Connection) words() string {
	own := inOneLine(lastLines(c.log.text()))
	said := c.said()
	switch {
	case own == "":
		return said
	case said == "":
		return own
	}

	return own + "; on standard error: " + said
}

// lastLines returns the last 600 bytes of text, or all of a shorter text. It omits an incomplete first line
// unless nothing else remains.
func lastLines(text string) string {
	const most = 600
	if len(text) <= most {
		return text
	}

	text = text[len(text)-most:]
	_, whole, _ := strings.Cut(text, "\n")
	if whole != "" {
		return whole
	}

	return text
}

// inOneLine replaces line breaks with spaces, and removes the frames of "@" around ssh's warnings.
func inOneLine(text string) string {
	var words []string
	for word := range strings.FieldsSeq(check.Plain(text)) {
		if strings.Trim(word, "@") != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}
