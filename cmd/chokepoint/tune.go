package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/tuning"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

type tuneOptions struct {
	app.TuneOptions
	plan    planOptions
	lab     labOptions
	try     []string
	listing bool
}

// Default safety budget.
const (
	usualAddedDelay = 50 * time.Millisecond
	usualLoss       = 1 // per cent
)

func newTuneCommand(p *program) *cobra.Command {
	var o tuneOptions
	cmd := &cobra.Command{
		Use:   "tune [PLAN]",
		Short: "Find router settings that help, and prove that they do",
		Long: `Measure a plan with the router as found, name what limits the traffic, and try changes:
each change alone and all at once, with the router as found in every block; then the
changes that helped, in new blocks. A change that helps by more than 2 % and harms no
other cell is proposed, with the commands that make it permanent. The router is left as
found. A change that adds more delay or loss than allowed, or stops the traffic, is not
tried again. Ring buffers are never enlarged.`,
		Args:              optionalArg,
		ValidArgsFunction: completePlans,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cmp.Or(o.plan.validate(cmd.Flags(), args), o.validate()); err != nil {
				return err
			}
			return runTune(cmd.Context(), o, p)
		},
	}
	o.plan.addFlags(cmd)
	addTarget(cmd, &o.lab, &o.RunOptions, useLab,
		"tune what this machine sends to `HOST`, where the command peer runs")
	f := cmd.Flags()
	f.StringArrayVar(&o.try, "try", nil, "also try this `CHANGE`: FACTOR=LEVEL, or several to apply "+
		"together, separated by semicolons; may be repeated")
	f.BoolVar(&o.Only, "only", false, "try only the changes that --try names")
	f.DurationVar(&o.MaxDelay, "max-added-delay", usualAddedDelay,
		"maximum delay `D` that a load may add (p99)")
	f.Float64Var(&o.MaxLoss, "max-loss", usualLoss, "maximum loss, in `PERCENT`")
	f.BoolVar(&o.Keep, "keep", false, "with --attach: keep the changes that helped in the lab")
	f.BoolVar(&o.listing, "dry-run", false, "list the changes to try, and measure nothing")
	addJSON(cmd, "print one JSON object per event, and the result last")
	f.Bool("quiet", false, "show no progress, only warnings, errors and the result")
	addMachines(cmd, &o.lab.machines)
	return cmd
}

func (o *tuneOptions) validate() error {
	switch {
	case o.Only && len(o.try) == 0:
		return app.Usage("name what to try: --try queue=fq_codel", "--only without --try")
	case o.MaxDelay <= 0:
		return app.Usage("a time such as 20ms", "--max-added-delay %s", o.MaxDelay)
	case !(o.MaxLoss >= 0 && o.MaxLoss <= 100):
		return app.Usage("per cent, from 0 to 100", "--max-loss %v", o.MaxLoss)
	case o.Keep && o.Attach == "":
		return app.Usage("make one that stays: chokepoint lab up",
			"--keep without --attach: the lab is gone afterwards")
	case o.Peer.At != "" && !o.Peer.ThirdParty() && o.Peer.CodeFile == "":
		return app.Usage("chokepoint peer --code-file FILE writes it",
			"--peer without --peer-code-file: its code is needed for each of several runs")
	}
	return nil
}

func runTune(ctx context.Context, o tuneOptions, p *program) error {
	o.Until = o.plan.until()
	base, err := o.plan.Read(o.Peer)
	if err != nil {
		return err
	}

	if err := cmp.Or(o.lab.settle(), o.Peer.Check()); err != nil {
		return err
	}

	o.lab.condition(&base.Design)
	if err := app.CanTune(base); err != nil {
		return err
	}

	if o.plan.Budget > 0 {
		if err := app.FitTune(base, o.plan.Budget); err != nil {
			return err
		}
	}

	o.MaxLoss /= 100
	for _, text := range o.try {
		c, err := app.ParseChange(text, o.Peer.Vocabulary())
		if err != nil {
			return err
		}

		o.Try = append(o.Try, c)
	}

	head := record.Run{}
	o.lab.describe(&head)
	if o.listing {
		changes := p.Changes(base, head, o.TuneOptions)
		return p.document(changes, changesText(changes))
	}

	tuned, err := p.Tune(ctx, base, head, o.TuneOptions)
	if tuned == nil {
		return err
	}

	text := tuned.Text()
	if len(tuned.Stays) > 0 {
		text += "\nkept in lab " + o.Attach + ": " + tuning.Change{Levels: tuned.Stays}.String() + "\n"
	}

	return errors.Join(err, p.line(tuned.Result, text))
}

// changesText lists changes and their reasons.
func changesText(all []tuning.Change) string {
	rows := heading("CHANGE | WHY | RISK")
	for _, c := range all {
		rows.add(c.String(), c.Why, cmp.Or(c.Risk, "–"))
	}
	return table(rows, 0)
}
