package main

import (
	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
)

func newResumeCommand(p *program) *cobra.Command {
	var o app.ResumeOptions
	cmd := &cobra.Command{
		Use:   "resume [RUN]",
		Short: "Continue a run that was killed or interrupted",
		Long: `Run the trials that a killed or interrupted run has not finished, in the same order.
Failed trials are retried. Without RUN, it continues the latest unfinished run. First,
it undoes what a killed run has left behind.

If the program, the kernel or the machine that carries the lab has changed, resume
refuses, because the numbers would not be comparable. --force continues and marks the
run. A run in a lab that lab up started continues in that lab, or in the one that
--attach names. A run with --peer needs the peer's current code, and the same path:
addresses, routers, NAT and MTU.`,
		Args:              optionalArg,
		ValidArgsFunction: completeRuns(p, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := htmlFile(o.Report); err != nil {
				return err
			}
			result, err := p.Resume(cmd.Context(), append(args, "")[0], o)
			of := ""
			if len(args) > 0 {
				of = " " + args[0]
			}

			return p.result(result, err, of)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Force, "force", false,
		"continue with another program, kernel, machine or lab, and mark the run")
	f.StringVar(&o.Attach, "attach", "", "use this `LAB`, started by lab up")
	f.BoolVar(&o.AcceptNew, acceptNew, false, "trust and remember the host key of an unknown machine, "+
		"whether or not the run was started with this flag")
	addPeerFlags(f, &o.Peer, "the peer of the run is at `HOST` now")
	addRunOutput(cmd, &o.Report)
	return cmd
}
