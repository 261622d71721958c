package meter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// command runs the meter's command once. Each line of the output is a reading. The command may print one
// line or continue to print. It is killed if it prints nothing for too long.
func (m *Meter) command(ctx context.Context) error {
	if err := host.TrustedCommand(m.spec.words); err != nil {
		return err
	}

	p, err := host.Local().Start(ctx, host.Command{Path: m.spec.words[0], Args: m.spec.words[1:]})
	if err != nil {
		return err
	}

	var said atomic.Value // last line of standard error
	talk := host.Lines(p.Stderr(), func(line string) { said.Store(line) })
	lines := make(chan string)
	stop := make(chan struct{})
	end := host.Lines(p.Stdout(), func(line string) {
		select {
		case lines <- line:
		case <-stop:
		}
	})
	told := false
	for err == nil {
		select {
		case line := <-lines:
			m.take(host.Monotonic(), line, nil)
			told = true
			continue
		case <-end:
			select { // the command is ending, and may still print a reason
			case <-talk:
			case <-ctx.Done():
			case <-time.After(patience):
			}
		case <-time.After(m.silence):
			err = fmt.Errorf("it printed no line for %s", m.silence)
		}
		break
	}

	close(stop)
	_ = p.Kill() // has no effect if the command has ended
	_, failed := p.Wait()
	<-end
	<-talk
	if err != nil || told && failed == nil {
		return err
	}

	what := "it printed no watts"
	if told {
		what = "it ended"
	}

	if line, ok := said.Load().(string); ok {
		return errors.New(what + "; it says " + quoted(line))
	}

	if failed != nil {
		what += ": " + failed.Error()
	}

	return errors.New(what)
}
