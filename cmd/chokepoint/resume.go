package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

type resumeOptions struct {
	run    string
	report string
	force  bool
	json   bool
}

func newResumeCommand(p *program) *cobra.Command {
	var o resumeOptions
	cmd := &cobra.Command{
		Use:   "resume RUN [--force] [--report FILE] [--json]",
		Short: "Continue a run that was killed or interrupted",
		Long: "Run the trials that a killed or interrupted run has not finished, in the same\n" +
			"order; failed ones are tried again. If the program or the kernel is another than\n" +
			"before, resume refuses, because the numbers would not compare; --force goes on\n" +
			"and marks the run.",
		Args:              exactArgs("RUN"),
		ValidArgsFunction: completeRuns(p, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.run = args[0]
			return runResume(cmd.Context(), o, p)
		},
	}
	cmd.Flags().BoolVar(&o.force, "force", false, "go on with another program or kernel, and mark the run")
	cmd.Flags().StringVar(&o.report, "report", "",
		"write the HTML report to this `FILE` instead of the run's directory")
	cmd.Flags().BoolVar(&o.json, "json", false,
		"print one JSON object per event, and the document of show --json last")
	return cmd
}

func runResume(ctx context.Context, o resumeOptions, p *program) error {
	run, trials, err := loadRun(ctx, p.dirs, o.run)
	if err != nil {
		return err
	}
	if run.Lab == lab.KindPair {
		return &hinted{fmt.Errorf("resume run %s: it was made with a peer, whose code is gone", run.ID),
			"run the plan again with --peer; compare sets the two runs side by side"}
	}
	if _, living, err := journal.FindStale(journalDir(p.dirs)); err != nil {
		return err
	} else if slices.Contains(living, run.ID) {
		return &hinted{fmt.Errorf("resume run %s: it is still running", run.ID),
			"wait for it, or stop it with Ctrl-C"}
	}
	if err := restoreFirst(run.ID, p); err != nil {
		return err
	}
	if changes := changed(run); len(changes) > 0 {
		text := "resumed with " + strings.Join(changes, " and ")
		if !o.force {
			return &hinted{fmt.Errorf("resume run %s: %s", run.ID, strings.TrimPrefix(text, "resumed with ")),
				"its numbers would not compare with the earlier ones; --force goes on and marks the run"}
		}
		if err := mark(ctx, p, run.ID, text); err != nil {
			return err
		}
	}
	run.Status, run.Reason = record.RunRunning, ""
	x := &execution{p: p, plan: plan.New(run.Design), run: run, json: o.json, reportPath: o.report,
		resumed: true}
	return x.whole(ctx, trials)
}

// restoreFirst clears away what the killed run itself has left, whose journal would be in the way of the
// new one.
func restoreFirst(id string, p *program) error {
	stale, _, err := journal.FindStale(journalDir(p.dirs))
	if err != nil {
		return err
	}
	mine := false
	for _, s := range stale {
		mine = mine || s.Owner == id
		err = errors.Join(err, s.Release())
	}
	if err != nil {
		return err
	}
	if mine {
		return &hinted{fmt.Errorf("resume run %s: what it changed was not undone", id),
			"chokepoint lab restore, then resume again"}
	}
	return nil
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

func mark(ctx context.Context, p *program, id, text string) error {
	st, err := store.Open(ctx, p.dirs.storeFile())
	if err != nil {
		return err
	}
	err = st.AddNote(ctx, id, store.Note{Caveats: []record.Caveat{{Kind: "resumed-changed", Text: text}}})
	return errors.Join(err, st.Close())
}
