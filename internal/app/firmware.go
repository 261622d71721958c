package app

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Limits of the command that installs firmware: its duration, and the number and length of the output lines
// that are shown.
const (
	installTime  = 30 * time.Minute
	maxLines     = 200
	maxLineBytes = 200 // bytes
)

// installer returns the function that installs other firmware on the router: with the command in the lab
// file, or by asking the user to do it. It returns nil if neither is possible.
func (x *execution) installer() func(ctx context.Context, level string) error {
	m := x.run.Machines
	if m != nil && m.Firmware != nil {
		return func(ctx context.Context, level string) error {
			return x.install(ctx, *m.Firmware, level, installTime)
		}
	}

	if x.Attended {
		return func(ctx context.Context, level string) error {
			return x.ask(ctx, record.Step{Prompt: "Install firmware " + level + " on the router"})
		}
	}

	return nil
}

// install runs a command without a shell, with the level as its last argument, and shows its output.
func (x *execution) install(ctx context.Context, command []string, level string, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %s",
		unit.Seconds(limit)))
	defer cancel()
	if err := host.TrustedCommand(command); err != nil {
		return err
	}

	p, err := host.Local().Start(ctx, host.Command{
		Path: command[0],
		Args: append(slices.Clone(command[1:]), level),
	})
	if err != nil {
		return err
	}

	var lines atomic.Int64
	var last atomic.Value // last line of standard error
	show := func(line string) {
		line = check.Plain(line)
		line = line[:min(len(line), maxLineBytes)]
		if lines.Add(1) <= maxLines {
			x.emit(record.Event{Event: "lab", Text: "firmware " + level + ": " + line})
		}
	}
	out := host.Lines(p.Stdout(), show)
	wrong := host.Lines(p.Stderr(), func(line string) { last.Store(check.Plain(line)); show(line) })
	<-out
	<-wrong
	if _, err = p.Wait(); err == nil {
		return nil
	}

	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", command[0], context.Cause(ctx))
	}

	if line, ok := last.Load().(string); ok {
		return fmt.Errorf("%s: %w: %s", command[0], err, line[:min(len(line), maxLineBytes)])
	}

	return fmt.Errorf("%s: %w", command[0], err)
}

// learntAfter stores the inventories that were read after the last trial.
func (x *execution) learntAfter(ctx context.Context, after map[string]*record.Inventory) error {
	return x.addNote(ctx, x.run.ID, store.Note{Inventories: after})
}

// learnt stores skipped cells and caveats that are found during the run.
func (x *execution) learnt(ctx context.Context, skipped []record.Skipped, caveats []record.Caveat) error {
	return x.addNote(ctx, x.run.ID, store.Note{Skipped: skipped, Caveats: caveats})
}
