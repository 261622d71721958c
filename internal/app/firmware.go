package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// These are the limits of the command that installs firmware: its duration, and the number and length of the
// output lines that are shown.
const (
	installTime  = 30 * time.Minute
	maxLines     = 200
	maxLineBytes = 200 // bytes
)

// installer returns the function that installs other firmware on the router, either with the command in the
// lab file or by asking the user to do it. It returns nil if neither is possible.
func (x *execution) installer() func(ctx context.Context, level string) error {
	m := x.run.Machines
	switch {
	case m != nil && m.Firmware != nil:
		return func(ctx context.Context, level string) error {
			return x.install(ctx, *m.Firmware, level, installTime)
		}
	case m != nil && m.Flash != nil:
		return func(ctx context.Context, level string) error { return x.flash(ctx, *m.Flash, level) }
	}

	if x.Attended {
		return func(ctx context.Context, level string) error {
			return x.ask(ctx, record.Step{Prompt: "Install firmware " + level + " on the router"})
		}
	}

	return nil
}

// install runs a command without a shell, with the level as its last argument, and shows its output. If the
// router belongs to a labgrid place, labgrid-client finds the place in the command's environment. Cancelling
// ctx does not stop a running command, because an interrupted installation can leave a router that does not
// boot.
func (x *execution) install(ctx context.Context, command []string, level string, limit time.Duration) error {
	if err := host.TrustedCommand(command); err != nil {
		return err
	}
	return whole(ctx, host.Command{
		Path:  command[0],
		Args:  append(slices.Clone(command[1:]), level),
		Env:   x.held.Env(),
		Bound: true, // otherwise a second command could start while this one still runs
	}, limit, x.showFirmware(level))
}

// showFirmware returns a function that shows a line of the output of a command that installs firmware.
func (x *execution) showFirmware(level string) func(line string) {
	return func(line string) { x.emit(record.Event{Event: "lab", Text: "firmware " + level + ": " + line}) }
}

// flash installs firmware with commands of labgrid-client.
func (x *execution) flash(ctx context.Context, f record.Flash, level string) error {
	image := strings.ReplaceAll(f.Image, "LEVEL", level)
	if image != "" {
		file, err := host.OpenTrusted(image)
		if err != nil {
			return err
		}

		if err := file.Close(); err != nil {
			return err
		}
	}

	for _, command := range f.Commands {
		words := strings.Fields(command)
		for i, word := range words {
			words[i] = strings.ReplaceAll(strings.ReplaceAll(word, "LEVEL", level), "IMAGE", image)
		}

		err := whole(ctx, x.held.Command(image, words...), installTime, x.showFirmware(level))
		if err != nil {
			return err
		}
	}

	return nil
}

// whole is like shown, but cancelling ctx does not stop a running command.
func whole(ctx context.Context, c host.Command, limit time.Duration, show func(line string)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return shown(context.WithoutCancel(ctx), c, limit, show)
}

// shown runs a command on this machine, and calls show with each of the first lines of its output.
func shown(ctx context.Context, c host.Command, limit time.Duration, show func(line string)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %s",
		unit.Seconds(limit)))
	defer cancel()
	p, err := host.Local().Start(ctx, c)
	if err != nil {
		return err
	}

	var lines atomic.Int64
	var last atomic.Value // last line of standard error
	each := func(line string) {
		line = check.Plain(line)
		if lines.Add(1) <= maxLines {
			show(line[:min(len(line), maxLineBytes)])
		}
	}
	out := host.Lines(p.Stdout(), each)
	wrong := host.Lines(p.Stderr(), func(line string) { last.Store(check.Plain(line)); each(line) })
	<-out
	<-wrong
	if _, err = p.Wait(); err == nil {
		return nil
	}

	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", c.Path, context.Cause(ctx))
	}

	if line, ok := last.Load().(string); ok {
		return fmt.Errorf("%s: %w: %s", c.Path, err, line[:min(len(line), maxLineBytes)])
	}

	return fmt.Errorf("%s: %w", c.Path, err)
}

// learntAfter stores the inventories that were read after the last trial.
func (x *execution) learntAfter(ctx context.Context, after map[string]*record.Inventory) error {
	return x.addNote(ctx, x.run.ID, store.Note{Inventories: after})
}

// learnt stores skipped cells and caveats that become known during the run.
func (x *execution) learnt(ctx context.Context, skipped []record.Skipped, caveats []record.Caveat) error {
	return x.addNote(ctx, x.run.ID, store.Note{Skipped: skipped, Caveats: caveats})
}
