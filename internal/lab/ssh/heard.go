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

// Bounds on standard error: how much of its end is kept, and how much may be written.
const (
	keptHeard    = 4 << 10
	heardAtOnce  = 8 << 20
	heardPerTime = 64 << 10 // per second, for as long as the connection lasts
)

// Bounds on the output of a command.
const (
	printedAtOnce  = 256 << 20
	printedPerTime = 4 << 20 // per second, for as long as the command runs
)

var errFlood = errors.New("the machine sends more than anything useful would be, and was hung up on")

// allowance bounds how much may be written.
type allowance struct {
	atOnce, perTime int64
	since           time.Time
	came            int64
}

// exceeded adds n bytes and reports whether that exceeds the allowance.
func (a *allowance) exceeded(n int) bool {
	if a.since.IsZero() {
		a.since = time.Now()
	}

	a.came += int64(n)
	return a.came > a.atOnce+int64(time.Since(a.since).Seconds()*float64(a.perTime))
}

// heard keeps the end of what processes write into a pipe. It is safe for concurrent use.
type heard struct {
	out, in *os.File // where we read, and where processes write; nil if they open it themselves
	done    chan struct{}

	mu      sync.Mutex
	end     host.Tail
	allowed allowance
	flooded bool
}

// hear starts to read a pipe; flood is called once when more arrives than is allowed.
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

		_ = raw.Read(func(fd uintptr) bool { // until it is closed
			if h.take(int(fd)) {
				flood()
			}
			return false
		})
	}()
	return h
}

// take reads what is in the pipe, and reports whether that exceeded the allowance for the first time.
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

// text returns the end of what was written so far, including by processes that have just ended.
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

// hearAll starts to read from the connection: ssh's own log, which is a named pipe, and separately what the
// machine, or a program on the way to it, writes to standard error.
func (c *Connection) hearAll() (err error) {
	if err := os.Remove(c.logFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	if err := syscall.Mkfifo(c.logFile(), 0o600); err != nil {
		return fmt.Errorf("make %s: %w", c.logFile(), err)
	}

	// Opened for both, it exists before ssh does, and remains when one side ends.
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

// hangUp ends the connection at once.
func (c *Connection) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flooded = true; c.master != nil {
		c.master.Kill()
	}
}

// carry makes a process the one that carries the sessions.
func (c *Connection) carry(master *host.Child) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.master = master; c.flooded {
		master.Kill()
	}
}

// flood returns an error once the connection was ended because too much was written.
func (c *Connection) flood() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flooded {
		return fmt.Errorf("%w: %w", host.ErrUnreachable, errFlood)
	}

	return nil
}

// said returns the end of what the machine, or a program on the way to it, wrote to standard error, in one
// line.
func (c *Connection) said() string { return inOneLine(lastLines(c.machine.text())) }

// words returns the end of ssh's log, and of standard error.
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

// lastLines returns the end of a text, from the beginning of a line if possible.
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

// inOneLine joins lines, without the frame of ssh's gravest warning.
func inOneLine(text string) string {
	var words []string
	for word := range strings.FieldsSeq(check.Plain(text)) {
		if strings.Trim(word, "@") != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}
