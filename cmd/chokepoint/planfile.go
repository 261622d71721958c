package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// planOptions select and change a plan. The commands run, tune and plan share them.
type planOptions struct {
	app.PlanRequest
	seed string
}

func (o *planOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&o.Sets, "set", nil, "set the value at this path in the plan, as `PATH=VALUE`, "+
		"such as method.duration=5s or matrix.streams=1,4; may be repeated")
	cmd.RegisterFlagCompletionFunc("set", completeSet)
	flags.StringVar(&o.seed, "seed", "",
		"seed `N` for the random order of the trials (default: a random one)")
	flags.DurationVar(&o.Budget, "for", 0, "shorten the plan to this time `D`, such as 10m: first "+
		"reduce the repetitions, to no fewer than six, then the windows, to no less than "+
		plan.MinWindow.String()+", then drop the cells listed last")
	flags.BoolVar(&o.Strict, "strict", false,
		"with the plan rfc2544: use the standard's own durations: hours for each frame size")
	// Otherwise, pflag would print the zero duration as if it were a meaningful default.
	flags.Lookup("for").DefValue = "0"
}

// validate takes the plan's name from the arguments. It checks the flags before any file is opened.
func (o *planOptions) validate(flags *pflag.FlagSet, args []string) error {
	o.Name = append(args, "")[0]
	if flags.Changed("seed") {
		if _, err := strconv.ParseUint(o.seed, 10, 64); err != nil {
			return app.Usage("leave it out to have one drawn and printed",
				"--seed %q is not a number from 0 to %d", o.seed, uint64(1<<64-1))
		}

		o.Sets = append(o.Sets, "method.seed="+o.seed)
	}

	if flags.Changed("for") && o.Budget <= 0 {
		return app.Usage("give it with a unit, such as 90s or 10m", "--for %s is not a time to fit into",
			o.Budget)
	}

	if _, ok := plan.Strict(o.Name); o.Strict && !ok {
		return app.Usage("the plan rfc2544 does", "--strict is for plans that follow a standard")
	}

	return nil
}

// until returns the time at which --for will have elapsed, or the zero time if it is not set.
func (o *planOptions) until() time.Time {
	if o.Budget == 0 {
		return time.Time{}
	}
	return time.Now().Add(o.Budget)
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
	s := d.Method.Search
	if s != nil {
		searches := fmt.Sprintf("a search (preset %s) of as many trials as it takes", s.Preset)
		n := p.Searches()
		if n < len(p.Cells()) {
			trials += fmt.Sprintf(", those of %s each %s", unit.Count(n, "cell"), searches)
		} else {
			trials = "each " + searches
		}
	}

	return fmt.Sprintf("%s, %s, about %s", text, trials,
		unit.Seconds(p.Estimate(app.RowOverhead).Round(time.Second)))
}
