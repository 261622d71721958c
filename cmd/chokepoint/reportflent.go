package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/foreign"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// flentFormat writes a flent data file per trial. flentSuffix is the extension of these files.
const (
	flentFormat = "flent"
	flentSuffix = ".flent.gz"
)

// writeFlent writes a file for each trial with a series, by default beside the run's report. If there are
// several files, their names contain the ids of the trials.
func (p *program) writeFlent(ctx context.Context, doc *analysis.Document, file string) error {
	run := doc.Run.ID
	var ids []string
	for _, t := range doc.Trials {
		if t.Failure == nil && (t.Series != nil || len(doc.Run.ImportedFrom) > 0) {
			ids = append(ids, t.ID)
		}
	}

	if file == standard && len(ids) > 1 {
		return app.Usage("name a file: each trial's name is put before "+flentSuffix,
			"flent has a file for each trial, and run %s has %d", run, len(ids))
	}

	file, create, err := p.Dirs.Place(run, file, "chokepoint-"+run+flentSuffix)
	if err != nil {
		return err
	}

	written := 0
	words := report.TrialWords(doc)
	labels := report.CellLabels(doc)
	err = p.Dirs.WithRun(ctx, run, func(st *store.Store, _ record.Run) error {
		for _, id := range ids {
			t, err := st.Trial(ctx, run, id)
			if err != nil {
				return err
			}

			var b bytes.Buffer
			note := fmt.Sprintf("chokepoint run %s, trial %s; round trips are of %s", run, id,
				probeWords(&t))
			if words[id] != "" {
				note += "; " + words[id]
			}

			if foreign := report.ForeignWords(doc); len(foreign) > 0 {
				note += "; " + strings.Join(foreign, "; ")
			}

			err = foreign.WriteFlent(&b, &t, labels[t.Row.Cell()], note)
			if errors.Is(err, foreign.ErrNoSeries) {
				continue
			}

			if err != nil {
				return err
			}

			of := file
			if len(ids) > 1 {
				of = strings.TrimSuffix(file, flentSuffix) + "-" + id + flentSuffix
			}

			if err := p.put(create, of, b.Bytes()); err != nil {
				return err
			}

			written++
		}
		return nil
	})
	if err == nil && written == 0 {
		err = app.Hinted("csv holds what there is", "write run %s for flent: no trial has a series",
			run)
	}

	return err
}

// probeWords describes the probe that measured a trial's round-trip times.
func probeWords(t *record.Trial) string {
	for _, l := range []*record.Latency{t.Loaded, t.Idle} {
		switch {
		case l != nil && l.Probe == "icmp":
			return "ICMP echo"
		case l != nil:
			return "UDP echo, whatever their series is called"
		}
	}
	return "nothing"
}
