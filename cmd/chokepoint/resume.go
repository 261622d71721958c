package main

import (
	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
)

func newResumeCommand(p *program) *cobra.Command {
	var o app.ResumeOptions
	cmd := &cobra.Command{
		Use: "resume [RUN] [--attach LAB] [--peer HOST] [--accept-new] [--force] [--report FILE] " +
			"[--json] [--quiet]",
		Short: "Continue a run that was killed or interrupted",
		Long: `Run the trials that a killed or interrupted run has not finished, in the same
order; failed ones are tried again. Without RUN it is the latest run that did not
come to its end. What a killed run has left behind is put back first.

If the program, the kernel or what the lab stands on is another than before, resume
refuses, because the numbers would not compare; --force goes on and marks the run.
A run that used a lab of lab up goes on in that one, or in the one that --attach
names. A run with --peer needs the code that the peer shows now, and the same
path: addresses, routers, NAT and MTU.`,
		Args: optionalArg, ValidArgsFunction: completeRuns(p, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := htmlFile(o.Report); err != nil {
				return err
			}
			return p.result(p.Resume(cmd.Context(), append(args, "")[0], o))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Force, "force", false,
		"go on with another program, kernel, machine or lab, and mark the run")
	f.StringVar(&o.Attach, "attach", "", "use the `LAB` that lab up has made")
	f.BoolVar(&o.AcceptNew, acceptNew, false, "trust and remember the host key of a machine that "+
		"is not known, whatever the run was begun with")
	addPeerFlags(f, &o.Peer, "the peer of the run is at `HOST` now")
	addRunOutput(cmd, &o.Report)
	return cmd
}
