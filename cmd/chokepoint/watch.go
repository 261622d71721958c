package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/serve"
)

type watchOptions struct {
	app.WatchOptions
	machines record.Machines // only the router
	metrics  string          // address to serve metrics at, or ""
}

// Time between two glances. A router without an agent is sampled once a second.
const (
	minGlance   = time.Second
	usualGlance = 2 * time.Second
)

func newWatchCommand(p *program) *cobra.Command {
	var o watchOptions
	cmd := &cobra.Command{
		Use:   "watch MACHINE",
		Short: "Show what a router does while traffic flows, and what may limit it",
		Long: `Show what a machine does while any traffic flows through it: its cores and their
softirqs, packets and drops of its devices, clock, temperature and power, and a
candidate for the limit. First it lists the queues, filters, rules and taps on the
packets' path. It changes nothing, and leaves nothing behind. MACHINE is local or
ssh://[USER@]HOST[:PORT].`,
		Args: exactArgs("MACHINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.machines.Router.At = args[0]
			if err := o.check(); err != nil {
				return err
			}
			return runWatch(cmd.Context(), o, p)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.Every, "interval", usualGlance, "print every `D`")
	f.DurationVar(&o.For, "for", 0, "end after `D` (default: at Ctrl-C)")
	f.StringVar(&o.machines.Router.Driver, "driver", "",
		"sample through the machine's shell, without an agent, with this `DRIVER`, such as linux")
	f.StringVar(&o.metrics, "metrics", "", "also show the last sample to Prometheus on this machine, "+
		"at this `ADDRESS:PORT` and path /metrics; port 0 is any free one")
	addSSHFlags(f, &o.machines)
	return addJSON(cmd, "print a JSON object of the configuration, then one per sample")
}

func (o watchOptions) check() error {
	if err := app.CheckPlace(o.machines.Router.At); err != nil {
		return app.Usage(check.HintOf(err), "%v", err)
	}

	switch {
	case o.Every < minGlance:
		return app.Usage("at least "+minGlance.String(), "--interval %s", o.Every)
	case o.For < 0:
		return app.Usage("a time such as 30s", "--for %s", o.For)
	}

	_, err := app.WrongMachines(o.machines, flagOf)
	return err
}

func runWatch(ctx context.Context, o watchOptions, p *program) error {
	s := &glances{p: p, of: o.machines.Router.At, fresh: staleAfter * o.Every}
	o.Found, o.Show = s.found, s.show
	watch := func(ctx context.Context) error { return p.Watch(ctx, o.machines, o.WatchOptions) }
	if o.metrics == "" {
		return watch(ctx)
	}

	return s.exposed(ctx, o.metrics, watch)
}

// exposed calls watch and, while it runs, serves metrics for Prometheus at an address of this machine.
func (s *glances) exposed(ctx context.Context, address string, watch func(context.Context) error) error {
	at, err := parseListen("metrics", address, "127.0.0.1:9600")
	if err != nil {
		return err
	}

	at.hint = "use an address of this machine alone, such as 127.0.0.1"
	if !at.local {
		return at.reachable()
	}

	ln, err := at.listen(ctx)
	if err != nil {
		return err
	}

	if err := at.onlyHere(ln.Addr()); err != nil {
		return errors.Join(err, ln.Close())
	}

	s.p.note("metrics are at http://%s/metrics", ln.Addr())
	serving, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- serve.NewMetrics(&s.p.App, s.families).Serve(serving, ln) }()
	err = watch(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// families returns the last glance as metrics. It returns none if the glance is too old.
func (s *glances) families() []report.Family {
	last := s.last.Load()
	if last == nil || time.Since(last.at) > s.fresh {
		return nil
	}
	return report.GlanceFamilies(last.Glance)
}

// glances prints one glance after another. On a terminal, each glance replaces the previous one.
type glances struct {
	p     *program
	of    string
	lines int // number of lines of the glance that is on the terminal

	last  atomic.Pointer[timedGlance]
	fresh time.Duration // maximum age at which last is exposed
}

// timedGlance is a glance with the time at which it was made.
type timedGlance struct {
	*analysis.Glance
	at time.Time
}

// staleAfter is the number of intervals after which a glance is out of date.
const staleAfter = 3

// pipeWidth is the width without a terminal. It is so large that no line is cut.
const pipeWidth = 1000

// found prints, once, what may affect packets on their path.
func (s *glances) found(v *record.Inventory) error {
	lines, unknown := report.Found(v, true)
	text := report.FoundTitle + "\n"
	for _, line := range lines {
		text += "  " + line + "\n"
	}

	for _, why := range unknown {
		text += "  not known: " + why + "\n"
	}

	return s.p.line(map[string]*record.Inventory{"inventory": v}, text+"\n")
}

func (s *glances) show(g *analysis.Glance) error {
	s.last.Store(&timedGlance{g, time.Now()})
	if s.p.json {
		return printLine(s.p.Out, g)
	}

	width, live, colour := s.p.screen()
	text := check.Plain(s.of) + ", " + time.Now().Format(time.TimeOnly) + "\n" +
		report.Glance(g, cmp.Or(width, pipeWidth), colour)
	if live && s.lines > 0 {
		text = fmt.Sprintf("\x1b[%dA\x1b[J", s.lines) + text // move up and erase to the end (ECMA-48)
	} else if !live {
		text += "\n"
	}

	s.lines = strings.Count(text, "\n")
	return s.p.print(text)
}
