package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

type runOptions struct {
	app.RunOptions
	plan   planOptions
	lab    labOptions
	labels runLabels
	meter  string
	prove  bool
	dry    bool
	// anywhere reports that no lab, machine or peer is selected.
	anywhere bool
}

func newRunCommand(p *program) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [PLAN]",
		Short: "Run a plan on a lab, store every trial, and write the report",
		Long: `Run a plan: a YAML file or a built-in plan. The default is quick, or path with --peer.
By default, the lab consists of network namespaces on this machine and is removed
afterwards. Every finished trial is stored before the next begins. The first Ctrl-C
stops the load, restores all settings and keeps the finished trials; the second stops
waiting. With the same seed, the trials are the same and in the same order.

With --peer, the lab is this machine, another machine that runs chokepoint peer, and
whatever lies between. It is measured as found, and nothing is changed.

A plan that measures only the router's ciphers needs no client and no server: --router
names the router. The plans crypto and crypto-full do not even need a lab: unless you
name one, they measure this machine as it is, and recommend a cipher and a VPN.`,
		Args:              optionalArg,
		ValidArgsFunction: completePlans,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := cmp.Or(o.plan.validate(cmd.Flags(), args), o.labels.check(), htmlFile(o.Report))
			if err != nil {
				return err
			}

			o.anywhere = !labAsked(cmd) && o.lab.machines == record.Machines{} && o.Attach+o.Peer.At == ""
			return runRun(cmd.Context(), o, p)
		},
	}
	o.plan.addFlags(cmd)
	addTarget(cmd, &o.lab, &o.RunOptions, useLab,
		"measure what lies between this machine and `HOST`, where the command peer runs")
	f := cmd.Flags()
	o.labels.addFlags(f)
	f.BoolVar(&o.prove, "prove", false, proveUsage)
	f.BoolVar(&o.dry, "dry-run", false, "print the trials in order and the time that they take, and run none")
	cmd.MarkFlagsMutuallyExclusive("prove", "dry-run")
	f.StringVar(&o.meter, "meter", "", "read the power of the router, or of the machine that it runs on, "+
		"from this `METER`: shelly://HOST, tasmota://HOST, command:PROGRAM ARGS or "+
		"typed:idle=WATTS,loaded=WATTS")
	addRunOutput(cmd, &o.Report)
	addMachines(cmd, &o.lab.machines)
	return cmd
}

// addRunOutput adds the flags for the output of a run.
func addRunOutput(cmd *cobra.Command, report *string) {
	addOutput(cmd, report, "write the HTML report to this `FILE` instead of the run's directory")
	addJSON(cmd, "print one JSON object per event, and the document of show --json last")
	cmd.Flags().Bool("quiet", false, "show no progress, only warnings, errors and the result")
}

func runRun(ctx context.Context, o runOptions, p *program) error {
	o.Until = o.plan.until()
	pl, err := o.plan.ReadFitting(o.Peer)
	if err != nil {
		return err
	}

	if routerAlone(pl) {
		o.lab.alone = true
		if o.anywhere && pl.Design.Source == plan.BuiltInSource {
			o.lab.machines.Router.At = record.LocalMachine
		}
	}

	err = cmp.Or(o.lab.readFile(), o.Peer.Check(), o.lab.readMeter(o.meter), o.lab.check(), o.lab.absolute())
	if err != nil {
		return err
	}

	o.lab.condition(&pl.Design)
	if o.dry {
		return p.document(expandPlan(pl), planHead(pl)+"\n"+rowTable(pl))
	}

	head := p.NewRun(pl)
	o.lab.describe(&head)
	o.labels.describe(&head.RunHead)
	result, err := p.Run(ctx, pl, head, o.RunOptions)
	if !o.prove || !p.json { // with --prove --json, the document is printed last
		err = p.result(result, err, "")
	}

	if !o.prove || result == nil || ctx.Err() != nil {
		return err
	}

	failed := p.ProveResult(ctx, result, app.ProveOptions{CodeFile: o.Peer.CodeFile, Until: o.Until})
	return errors.Join(err, failed, p.coloured(result.Document, p.laidOut(result.Document, report.Diagnosis)))
}

// routerAlone reports whether a plan only measures the router's ciphers and changes no settings, so that
// neither endpoints nor a lab are needed.
func routerAlone(pl *plan.Plan) bool {
	for _, c := range pl.Cells() {
		if !factor.Engine.Is(c, factor.CipherEngine) || !cipher.NodeFactor.Is(c, "router") {
			return false
		}

		for name := range c {
			d, known := registry.Catalogue().Lookup(name)
			if known && d.Kind == factor.Setting {
				return false
			}
		}
	}
	return len(pl.Cells()) > 0
}

// result prints the result of a run. It returns the errors of printing joined with err, the error of the run
// itself.
func (p *program) result(r *app.Result, err error, of string) error {
	if r == nil {
		return err
	}

	return errors.Join(err, p.coloured(r.Document, p.oneScreen(r.Document, r.Report, of)), r.Outcome)
}

// commandLine returns the command that repeats the run: the arguments as typed, and the seed.
func commandLine(args []string, seed uint64) string {
	command := typed(args)
	seeds := func(a string) bool { return a == "--seed" || strings.HasPrefix(a, "--seed=") }
	if !slices.ContainsFunc(args, seeds) {
		command += fmt.Sprintf(" --seed %d", seed)
	}

	return command
}

// typed quotes a command line for a shell. It omits the run's name, because names are unique, and the store,
// because its URL may contain a password.
func typed(args []string) string {
	words := []string{"chokepoint"}
	value := false // the next argument is the value of an omitted flag
	for _, a := range args[1:] {
		flag, _, whole := strings.Cut(a, "=")
		left := flag == "--name" || flag == "--store"
		if !value && !left {
			words = append(words, host.ShellWord(a))
		}

		value = !value && left && !whole
	}

	return strings.Join(words, " ")
}
