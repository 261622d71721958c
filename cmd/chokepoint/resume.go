package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

func newResumeCommand(p *program) *cobra.Command {
	var report string
	var force bool
	cmd := &cobra.Command{
		Use:   "resume RUN [--force] [--report FILE] [--json] [--quiet]",
		Short: "Continue a run that was killed or interrupted",
		Long: "Run the trials that a killed or interrupted run has not finished, in the same\n" +
			"order; failed ones are tried again. If the program or the kernel is another than\n" +
			"before, resume refuses, because the numbers would not compare; --force goes on\n" +
			"and marks the run.",
		Args: exactArgs("RUN"), ValidArgsFunction: completeRuns(p, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := htmlFile(report); err != nil {
				return err
			}
			return resume(cmd.Context(), args[0], report, force, p)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "go on with another program or kernel, and mark the run")
	addRunOutput(cmd, &report)
	return cmd
}

func resume(ctx context.Context, name, report string, force bool, p *program) error {
	run, trials, err := loadRun(ctx, p.dirs, name)
	if err != nil {
		return err
	}
	if record.WithPeer(run.Lab) {
		return check.WithHint(fmt.Errorf("resume run %s: it was made with a peer, whose code is gone",
			run.ID), "run the plan again with --peer; compare sets the two runs side by side")
	}
	stale, living, err := journal.FindStale(journalDir(p.dirs))
	mine := false // what the killed run has left: its journal would be in the way of the new one
	for _, s := range stale {
		mine = mine || s.Owner == run.ID
		err = errors.Join(err, s.Release())
	}
	switch {
	case err != nil:
		return err
	case slices.Contains(living, run.ID):
		return check.WithHint(fmt.Errorf("resume run %s: it is still running", run.ID),
			"wait for it, or stop it with Ctrl-C")
	case mine:
		return check.WithHint(fmt.Errorf("resume run %s: what it changed was not undone", run.ID),
			"chokepoint lab restore, then resume again")
	}
	if changes := strings.Join(changed(run), " and "); changes != "" {
		if !force {
			return check.WithHint(fmt.Errorf("resume run %s: %s", run.ID, changes),
				"its numbers would not compare with the earlier ones; --force goes on and marks the run")
		}
		st, err := store.Open(ctx, p.dirs.storeFile())
		if err != nil {
			return err
		}
		err = st.AddNote(ctx, run.ID, store.Note{Caveats: []record.Caveat{
			{Kind: "resumed-changed", Text: "resumed with " + changes}}})
		if err := errors.Join(err, st.Close()); err != nil {
			return err
		}
	}
	run.Status, run.Reason = record.RunRunning, ""
	x := &execution{p: p, plan: plan.New(run.Design), run: run, reportPath: report, resumed: true}
	return x.whole(ctx, trials)
}

// changed lists what would make the new trials differ from the old ones.
func changed(run record.Run) []string {
	var out []string
	if h := binaryHash(); run.BinaryHash != h {
		out = append(out, fmt.Sprintf("another build of the program (was %s, is %s)", short(run.BinaryHash),
			short(h)))
	}
	if k := kernelRelease(); run.Kernel != k {
		out = append(out, fmt.Sprintf("another kernel (was %s, is %s)", run.Kernel, k))
	}
	return out
}

func short(hash string) string { return hash[:min(12, len(hash))] }
