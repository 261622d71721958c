package labgrid

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// These constants limit how much of a console's output is kept: the number of lines, counted from the end,
// and the length of each line in bytes.
const (
	consoleLines = 5
	consoleBytes = 200
)

// Console listens to the serial console of a board. A nil *Console is valid and receives no output.
type Console struct {
	p    host.Process
	ends []<-chan struct{}

	mu   sync.Mutex
	last []string
}

// listener is the program that labgrid-client runs to listen to a console without writing to it.
const listener = "microcom"

// Listen starts to listen to the place's serial console. It returns nil if the place has no serial port, or
// if microcom is not installed.
func (h *Held) Listen(ctx context.Context) *Console {
	serial := func(class string) bool { return strings.HasSuffix(class, "SerialPort") }
	if !slices.ContainsFunc(h.Classes, serial) || host.TrustedCommand([]string{listener}) != nil {
		return nil
	}

	p, err := h.host.Start(ctx, h.Command("", "console", "--listenonly"))
	if err != nil {
		return nil
	}

	c := &Console{p: p}
	c.ends = append(c.ends, host.Lines(p.Stdout(), c.add), host.Lines(p.Stderr(), func(string) {}))
	return c
}

func (c *Console) add(line string) {
	line = strings.TrimSpace(check.Plain(line))
	if line == "" || strings.HasPrefix(line, "connecting to ") || strings.HasPrefix(line, "connected to ") ||
		strings.HasPrefix(line, "Escape character:") {
		return // messages of labgrid-client and microcom themselves
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = append(c.last, line[:min(len(line), consoleBytes)])
	c.last = c.last[max(0, len(c.last)-consoleLines):]
}

// Close stops listening and returns the last lines.
func (c *Console) Close() []string {
	if c == nil {
		return nil
	}

	_ = c.p.Kill()
	for _, end := range c.ends {
		<-end
	}

	_, _ = c.p.Wait() // it was killed
	return c.last
}
