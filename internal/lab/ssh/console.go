package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// RouterOS is Facts.System of a machine where ssh sessions run commands on the RouterOS console instead of in
// a shell.
const RouterOS = "RouterOS"

// unknownCommand matches the error of the RouterOS console for an unknown command.
var unknownCommand = check.Pattern(
	`(bad command name|expected (command name|end of command)|syntax error).*\(line \d+ column \d+\)`)

func onConsole(said string) bool { return unknownCommand().MatchString(said) }

// dialConsole connects again, but without a session, because a session on the console would have to run a
// command as long as the connection lasts. dialConsole then asks the machine for its facts.
func (c *Connection) dialConsole(ctx context.Context) (err error) {
	master, err := c.start("-MN", "")
	if err != nil {
		return err
	}

	c.carry(master)
	c.held = make(chan struct{})
	go func() {
		defer close(c.held)
		_, _ = io.Copy(io.Discard, master) // returns when the process exits
	}()
	defer context.AfterFunc(ctx, func() { master.Kill() })()
	if err = c.awaitSocket(ctx); err == nil {
		var out string
		out, err = c.do(ctx, runTime, "/system/resource/print", strings.NewReader(""))
		if c.Facts = parseResource(out); c.System == RouterOS { // ignore err, which may be an exit code
			return nil
		}

		err = errors.Join(fmt.Errorf("the machine says %q of itself", check.Plain(out[:min(len(out), 80)])),
			err)
	}

	master.Kill()
	<-c.held
	_ = master.Wait() // error ignored: the process was killed
	return err
}

// awaitSocket waits until ssh has created its socket, through which sessions share the connection.
func (c *Connection) awaitSocket(ctx context.Context) error {
	const patience = 30 * time.Second // longer than the ConnectTimeout of ssh
	for begun := time.Now(); ; {
		_, err := os.Stat(filepath.Join(c.options.Dir, c.options.Name))
		if err == nil {
			return nil
		}

		select {
		case <-c.held:
			return errors.New("the connection has ended")
		default:
		}

		if time.Since(begun) > patience {
			return fmt.Errorf("no connection after %s: %w", patience, err)
		}

		if err := host.Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// parseResource parses the output of /system/resource/print, which contains a line "name: value" for each
// property.
func parseResource(text string) (f Facts) {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		values[strings.TrimSpace(name)] = check.Plain(strings.TrimSpace(value))
	}

	if values["platform"] == "MikroTik" && values["version"] != "" {
		f.System = RouterOS
		f.Arch = values["architecture-name"]
	}

	return f
}

// Commands returns the machine as a host that runs commands on its RouterOS console, each in a separate
// session. The Path of a command is the line to execute, and its Args must be empty. The host does not
// support files.
func (c *Connection) Commands() host.Host {
	return host.ByCommand(c.String(), func(ctx context.Context, run host.Command) (host.Process, error) {
		if len(run.Args)+len(run.Env) > 0 {
			return nil, fmt.Errorf("start %s on %s: %w: it has no shell", run.Path, c, host.ErrUnsupported)
		}
		return c.session(ctx, run.Path, run.Stdin)
	})
}
