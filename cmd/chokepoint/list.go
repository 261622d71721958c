package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// listed holds a run as list --json prints it.
type listed struct {
	store.Head
	Alive bool `json:"alive"` // its program is running
}

func newListCommand(p *program) *cobra.Command {
	return addJSON(&cobra.Command{
		Use:   "list",
		Short: "List the stored runs, newest first",
		Long: `List the stored runs, the most recently stored first. If there are none, it prints
nothing. For an imported run, PLAN is the program that measured it and its file, and
STARTED is the time of the measurement, if the file contains it.

The store is $XDG_DATA_HOME/chokepoint/runs.db, else ~/.local/share/chokepoint/runs.db.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			runs, unread := p.Dirs.Runs(cmd.Context())
			if len(runs) == 0 {
				return unread
			}

			var list []listed
			for _, r := range runs {
				r.Started = r.Started.UTC().Truncate(time.Second)
				list = append(list, listed{r, r.Status == record.RunRunning})
			}

			return errors.Join(unread, printList(p, list,
				[]string{"RUN", "STARTED", "PLAN", "LAB", "TRIALS", "STATUS"}, listed.row))
		},
	}, "print one JSON object per run")
}

func (l listed) row() []string {
	trials := strconv.Itoa(l.Trials)
	if l.Failed > 0 {
		trials += fmt.Sprintf(" (%d failed)", l.Failed)
	}

	status := l.Status
	if l.Damaged != "" {
		status = "damaged"
	}

	started := l.Started.Local().Format("2006-01-02 15:04")
	return []string{app.ShownID(l.ID), started, l.Plan, l.Lab, trials, status}
}
