package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/labgrid"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

func newLabConformCommand(p *program) *cobra.Command {
	var o labOptions
	var file string
	cmd := &cobra.Command{
		Use:   "conform",
		Short: "Try on a router everything that a run may need",
		Long: `Try on a router everything that a run may need. Each setting is applied, read back and
undone; counters are read; samples are taken. The router is that of --lab, a disk image
(--image), or a real router, alone or between two machines as for run. The ports of a
router that is alone are the devices of its default route and of its route to this
machine. All settings are restored. Do not use this on a router that others use.

--output writes the results as JSON, so that others can see what the router can do. With
a driver, the file also contains the output of the driver's read commands. It contains
no addresses, no host names and no keys.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.image.File != "" && !cmd.Flags().Changed("lab") {
				o.kind = record.LabVM
			}

			o.alone = o.machines.Router.At != record.LocalMachine
			return p.conform(cmd.Context(), o, file)
		},
	}
	o.addFlags(cmd.Flags())
	addMachines(cmd, &o.machines)
	addOutput(cmd, &file, "write the results to this `FILE`, too")
	return addJSON(cmd, "print one JSON object per item tried")
}

func (p *program) conform(ctx context.Context, o labOptions, file string) (err error) {
	if err := o.settle(); err != nil {
		return err
	}

	var out *userfile.File
	if file != "" {
		if out, err = userfile.Create(file); err != nil {
			return err
		}
		defer app.Closing(&err, out.Abort)
	}

	var asked record.Run
	if o.describe(&asked); asked.Machines != nil {
		return p.WithMachines(ctx, *asked.Machines,
			func(l *lab.Lab, _ *labgrid.Held) error { return p.tried(ctx, l, out) })
	}

	guest, err := o.guest(ctx, p)
	if err != nil {
		return err
	}

	id := "conform-" + app.NewID()
	return p.WithJournal(id, func(j *journal.Journal) error {
		own := p.Local(id, j)
		own.Guest = guest
		own.Driver = o.driver
		own.Queues = o.queues
		l, err := own.Up(ctx)
		if err != nil {
			return err
		}

		return errors.Join(p.tried(ctx, l, out), app.Dirty(l.Close(context.WithoutCancel(ctx))))
	})
}

// tried tests the capabilities of a router, prints each result, and writes them to bundle unless it is nil.
// It returns an error if a test failed unexpectedly.
func (p *program) tried(ctx context.Context, l *lab.Lab, bundle *userfile.File) error {
	if len(l.Topology.Routers) == 0 {
		return app.Usage("name one by --router", "lab conform: the lab has no router")
	}

	if l.Note != "" {
		p.note("%s", l.Note)
	}

	counts := map[check.State]int{}
	found, err := trial.Conform(ctx, l, l.Topology.Routers[0], node.Probes(), func(c trial.Capability) error {
		counts[c.Answer.State]++
		return p.line(c, fmt.Sprintf("%-9s %-47s  %-14s  %s\n", c.Area, c.Name, c.Answer.State,
			check.Plain(c.Answer.Reason)))
	})
	if err != nil {
		return app.Dirty(err)
	}

	p.note("driven by %s: of %d items, %d work, %d are missing, %d failed; everything was restored",
		found.Driven, len(found.Tried), counts[check.Yes], counts[check.No], counts[check.Unknown])
	if bundle != nil {
		text, err := json.MarshalIndent(found, "", "  ")
		if err == nil {
			err = bundle.Commit(append(text, '\n'))
		}

		if err != nil {
			return err
		}
	}

	if counts[check.Unknown] > 0 { // everything is already printed
		return exitError(codeError)
	}

	return nil
}
