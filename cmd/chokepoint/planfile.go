package main

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// maxPlanBytes is one byte more than a plan may have, so that the reader sees an oversize file.
const maxPlanBytes = 1<<20 + 1

// planOptions choose a plan and change it; run and plan share them.
type planOptions struct {
	name   string // a built-in plan or a file; "" is the default plan
	sets   []string
	seed   string
	budget time.Duration
	until  time.Time // when the budget is spent; zero: there is none
	strict bool
}

func (o *planOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&o.sets, "set", nil, "replace a value of the plan by its full path, "+
		"`PATH=VALUE`,\nsuch as method.duration=5s or matrix.streams=1,4; may be repeated")
	cmd.RegisterFlagCompletionFunc("set", completeSet)
	flags.StringVar(&o.seed, "seed", "", "order the trials by this number `N` (default: random)")
	flags.DurationVar(&o.budget, "budget", 0, "shorten the plan to this time `D`, such as 10m: "+
		"first\nrepetitions, to six if there are more, then windows,\nto "+plan.MinWindow.String()+
		" if they are longer, then the cells listed last")
	flags.BoolVar(&o.strict, "strict", false,
		"with the plan rfc2544: use the standard's own times, hours\nfor each frame size")
	// pflag shows a zero duration as a default that means something.
	flags.Lookup("budget").DefValue = "0"
}

// validate takes the plan's name from the arguments and checks the flags before any file is opened.
func (o *planOptions) validate(flags *pflag.FlagSet, args []string) error {
	o.name = append(args, "")[0]
	if flags.Changed("seed") {
		if _, err := strconv.ParseUint(o.seed, 10, 64); err != nil {
			return app.Usage("leave it out to have one drawn and printed",
				"--seed %q is not a number from 0 to %d", o.seed, uint64(1<<64-1))
		}
	}
	if flags.Changed("budget") && o.budget <= 0 {
		return app.Usage("give it with a unit, such as 90s or 10m", "--budget %s is not a time to fit into",
			o.budget)
	}
	if _, ok := plan.Strict(o.name); o.strict && !ok {
		return app.Usage("the plan rfc2544 does", "--strict is for plans that follow a standard")
	}
	return nil
}

// read reads the plan, orders it by its seed and fits it into the budget. Every error is the user's:
// nothing has been touched.
func (o *planOptions) read(other app.Peer) (*plan.Plan, error) {
	p, err := o.readWhole(other)
	if err == nil && o.budget > 0 {
		err = app.Mark(app.ErrUsage, p.Fit(o.budget, app.RowOverhead))
	}
	return p, err
}

// readWhole reads the plan and orders it by its seed. The time of --budget begins.
func (o *planOptions) readWhole(other app.Peer) (*plan.Plan, error) {
	if o.name == "" && other.At != "" {
		o.name = plan.PathPlan
	}
	sets := o.sets
	if standard, ok := plan.Strict(o.name); o.strict && ok {
		sets = append(standard, sets...)
	}
	p, err := readPlan(o.name, other.Vocabulary(), sets)
	if err != nil {
		return nil, usageErrors(err)
	}
	switch {
	case o.seed != "":
		seed, _ := strconv.ParseUint(o.seed, 10, 64) // validate has read it
		p = p.WithSeed(seed)
		p.SeedGiven = true
	case !p.SeedGiven:
		p = p.WithSeed(uint64(rand.Uint32())) // short enough to be typed again
	}
	if o.budget > 0 {
		o.until = time.Now().Add(o.budget)
	}
	return p, nil
}

func readPlan(name string, v plan.Vocabulary, sets []string) (*plan.Plan, error) {
	name = cmp.Or(name, plan.BuiltIns()[0])
	if _, ok := plan.BuiltIn(name); ok {
		return plan.ReadBuiltIn(name, v, sets)
	}
	data, err := planBytes(name)
	if err != nil {
		return nil, err
	}
	return plan.Read(name, data, v, sets)
}

func planBytes(name string) ([]byte, error) {
	data, err := userfile.Read(name, maxPlanBytes)
	if errors.Is(err, os.ErrNotExist) {
		return nil, app.Hinted("built-in plans: "+list(plan.BuiltIns()),
			"read plan %s: no such file, and no built-in plan has "+
				"this name", name)
	}
	if err != nil {
		return nil, fmt.Errorf("read plan %s: %v", name, err)
	}
	return data, nil
}

// planSize describes the size of a plan.
func planSize(p *plan.Plan) string {
	d := p.Design
	most := ""
	if d.Method.Adaptive != nil {
		most = "at most "
	}
	text := fmt.Sprintf("%s × %s", unit.Count(len(p.Cells()), "cell"), most+unit.Count(d.Method.Runs, "run"))
	if n := len(p.Skipped()); n > 0 {
		text += fmt.Sprintf(", %d skipped", n)
	}
	trials := most + unit.Count(len(p.Rows()), "trial")
	if s := d.Method.Search; s != nil {
		searches := fmt.Sprintf("a search (preset %s) of as many trials as it takes", s.Preset)
		if n := p.Searches(); n < len(p.Cells()) {
			trials += fmt.Sprintf(", those of %s each %s", unit.Count(n, "cell"), searches)
		} else {
			trials = "each " + searches
		}
	}
	return fmt.Sprintf("%s, %s, about %s", text, trials,
		unit.Seconds(p.Estimate(app.RowOverhead).Round(time.Second)))
}
