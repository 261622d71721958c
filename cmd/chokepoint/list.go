package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

type listOptions struct{ json bool }

func newListCommand(p *program) *cobra.Command {
	var o listOptions
	cmd := &cobra.Command{
		Use:   "list [--json]",
		Short: "List the stored runs, newest first",
		Long: "List the stored runs, newest first. Without any it prints nothing.\n\n" +
			"The store is $XDG_DATA_HOME/chokepoint/runs.db, else ~/.local/share/chokepoint/runs.db.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runList(cmd.Context(), o, p.dirs, p.streams)
		},
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object per run")
	return cmd
}

// listed is a run as list --json prints it.
type listed struct {
	ID      string `json:"id"`
	Started string `json:"started"`
	Plan    string `json:"plan"`
	Lab     string `json:"lab"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Trials  int    `json:"trials"`
	Failed  int    `json:"failed"`
	Alive   bool   `json:"alive"` // its program is at it; a run without an end that is not was killed
}

func runList(ctx context.Context, o listOptions, d dirs, s streams) error {
	st, err := readStore(ctx, d)
	if errors.Is(err, store.ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	runs, err := st.Runs(ctx)
	if err := errors.Join(err, st.Close()); err != nil {
		return err
	}
	alive, err := living(d)
	if err != nil {
		return err
	}
	if o.json {
		return printRunLines(s, runs, alive)
	}
	return printRuns(s, runs, alive)
}

func printRunLines(s streams, runs []store.Head, alive []string) error {
	var b strings.Builder
	for _, r := range runs {
		line, err := jsonLine(listed{
			ID: r.ID, Started: r.Started.UTC().Format("2006-01-02T15:04:05Z"), Plan: r.Design.Name,
			Lab: r.Lab, Status: r.Status, Reason: r.Reason, Trials: r.Trials, Failed: r.Failed,
			Alive: slices.Contains(alive, r.ID),
		})
		if err != nil {
			return err
		}
		b.Write(line)
	}
	return write(s.Out, b.String())
}

func printRuns(s streams, runs []store.Head, alive []string) error {
	if len(runs) == 0 {
		return nil
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tSTARTED\tPLAN\tLAB\tTRIALS\tSTATUS")
	for _, r := range runs {
		trials := fmt.Sprint(r.Trials)
		if r.Failed > 0 {
			trials += fmt.Sprintf(" (%d failed)", r.Failed)
		}
		status := r.Status
		if status == record.RunRunning && !slices.Contains(alive, r.ID) {
			status = "killed"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.ID,
			r.Started.Local().Format("2006-01-02 15:04"), r.Design.Name, r.Lab, trials, status)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("lay out the list: %v", err)
	}
	return write(s.Out, b.String())
}
