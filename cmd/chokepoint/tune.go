package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/tuning"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

type tuneOptions struct {
	plan    planOptions
	lab     labOptions
	other   otherEnd
	attach  string
	try     []string
	only    bool
	delay   time.Duration
	loss    float64
	keep    bool
	listing bool
}

// Safety budget where none is given.
const (
	usualAddedDelay = 50 * time.Millisecond
	usualLoss       = 1 // per cent
)

func newTuneCommand(p *program) *cobra.Command {
	var o tuneOptions
	cmd := &cobra.Command{
		Use: "tune [PLAN] [--set PATH=VALUE]… [--seed N] [--budget D] [--lab KIND] [--attach LAB] " +
			"[--peer HOST] [--router ssh://HOST] [--try CHANGE]… [--only] [--max-added-delay D] " +
			"[--max-loss PERCENT] [--keep] [--dry-run] [--json] [--quiet]",
		Short: "Find the settings of a router that help, and prove that they do",
		Long: "Measure a plan as it is, name what holds the traffic back, and try what may help:\n" +
			"each change alone and all at once, in blocks in which they alternate with the router\n" +
			"as found; then what helped, in fresh blocks. What helps by more than 2 % and harms no\n" +
			"other cell is proposed, with the commands that make it permanent. The router is left\n" +
			"as found. A change that adds more delay or loss than allowed, or with which the\n" +
			"traffic stops, is not tried again. Rings are never made larger.",
		Args: optionalArg, ValidArgsFunction: completePlans,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.plan.name = append(args, "")[0]
			if err := cmp.Or(o.plan.validate(cmd.Flags()), o.validate()); err != nil {
				return err
			}
			return runTune(cmd.Context(), o, p)
		},
	}
	o.plan.addFlags(cmd)
	o.lab.addFlags(cmd.Flags())
	o.other.addFlags(cmd.Flags(), "tune what this machine sends to `HOST`, which runs chokepoint peer")
	f := cmd.Flags()
	f.StringVar(&o.attach, "attach", "", "use the `LAB` that lab up has made")
	f.StringArrayVar(&o.try, "try", nil, "try this `CHANGE`, too: FACTOR=LEVEL, or several that belong "+
		"together,\nseparated by semicolons; may be repeated")
	f.BoolVar(&o.only, "only", false, "try nothing but what --try names")
	f.DurationVar(&o.delay, "max-added-delay", usualAddedDelay, "longest delay `D` that a load may add, p99")
	f.Float64Var(&o.loss, "max-loss", usualLoss, "greatest loss, in `PERCENT`")
	f.BoolVar(&o.keep, "keep", false, "with --attach: leave what helped in the lab")
	f.BoolVar(&o.listing, "dry-run", false, "print what would be tried, and measure nothing")
	addJSON(cmd, "print one JSON object per event, and the result last")
	f.Bool("quiet", false, "show no progress: warnings, errors and the result alone")
	oneLab(cmd)
	addMachines(cmd, &o.lab.machines)
	return cmd
}

func (o *tuneOptions) validate() error {
	switch {
	case o.only && len(o.try) == 0:
		return &usageError{"--only without --try", "name what to try: --try queue=fq_codel"}
	case o.delay <= 0:
		return &usageError{fmt.Sprintf("--max-added-delay %s", o.delay), "a time such as 20ms"}
	case !(o.loss >= 0 && o.loss <= 100):
		return &usageError{fmt.Sprintf("--max-loss %v", o.loss), "per cent, from 0 to 100"}
	case o.keep && o.attach == "":
		return &usageError{"--keep without --attach: the lab is gone afterwards",
			"make one that stays: chokepoint lab up"}
	case o.other.peer != "" && !o.other.thirdParty() && o.other.codeFile == "":
		return &usageError{"--peer without --peer-code-file: its code is needed for each of several runs",
			"chokepoint peer --code-file FILE writes it"}
	}
	return nil
}

func runTune(ctx context.Context, o tuneOptions, p *program) error {
	base, err := o.plan.readWhole(o.other)
	if err != nil {
		return err
	}
	if err := cmp.Or(o.lab.settle(), o.other.check()); err != nil {
		return err
	}
	o.lab.condition(&base.Design)
	m := &base.Design.Method
	if m.Search != nil || m.Soak > 0 {
		return &usageError{"tune a plan that searches or soaks", "leave out method.search and method.soak"}
	}
	m.Adaptive, m.Runs = nil, max(m.Runs, statistics.MinInterval)
	if err := o.fit(base); err != nil {
		return err
	}
	t := &tuner{o: o, base: base}
	t.p, t.other, t.until = p, o.other, o.plan.until
	o.lab.describe(&t.on)
	t.on.Attached = o.attach
	if o.other.peer != "" {
		t.on.Lab, t.on.Peer = record.LabPair, o.other.peer
	}
	t.result = tuning.Result{Format: record.Format, When: time.Now().UTC(), Plan: base.Design.Name,
		Lab: cmp.Or(o.attach, t.on.Peer, o.lab.machines.Router.At, t.on.Lab), Ended: "done",
		Budget: tuning.Budget{AddedDelayNs: float64(o.delay), LossRatio: o.loss / 100}}
	for _, text := range o.try {
		c, err := parseChange(text, t.other.vocabulary())
		if err != nil {
			return err
		}
		t.search.Candidates = append(t.search.Candidates, c)
	}
	if o.listing {
		t.choose()
		return p.document(t.search.Candidates, candidateText(t.search.Candidates))
	}
	return t.whole(ctx)
}

// usualChanges limits for how many changes a plan cut to --budget leaves time, if its windows can be
// shortened so far.
const usualChanges = 6

// fit cuts the plan of one block after another until the budget has time for it as found, for each of some
// changes alone and all at once, and for what is kept.
func (o *tuneOptions) fit(base *plan.Plan) error {
	if o.plan.budget == 0 {
		return nil
	}
	const fixed = 3 * (labTime + endTime)
	runs := time.Duration(base.Design.Method.Runs)
	rows := func(changes time.Duration) time.Duration { return blocksAsFound + runs*(2+changes) + runs*2 }
	for changes := time.Duration(usualChanges); changes > 0; changes-- {
		if o.plan.fit(base, (o.plan.budget-fixed)*runs/rows(changes)) == nil {
			return nil
		}
	}
	least := base.Design
	least.Cells, least.Method.Duration = least.Cells[:1], min(least.Method.Duration, plan.LeastWindow)
	takes := fixed + plan.New(least).Estimate(rowOverhead)*rows(1)/runs
	return &usageError{fmt.Sprintf("tune within %s: one cell as found, with one change, and once more with "+
		"what is kept take about %s", unit.Seconds(o.plan.budget), unit.Seconds(takes.Round(time.Second))),
		"give a longer --budget, or a shorter method.duration"}
}
