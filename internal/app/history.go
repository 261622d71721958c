package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/history"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// HistoryOptions select the cells and runs of a history. If Plan or Device is empty, it is taken from the
// newest matching run.
type HistoryOptions struct {
	Plan, Device string
	Cell         string // id of a cell, with or without the factor firmware, or words of its label
	Metric       string
	Firmware     string // only results with this firmware; "" means all
	Canary       string // firmware that is never changed, for comparison
	Since        time.Time
	// MaxResults, if not 0, limits cells × runs. Above the limit, the error is a *ManyResultsError, unless
	// there is only one cell.
	MaxResults int
	// Derived returns the results of a run without stored results, or nil if the run has no trials. If
	// Derived is nil, the results are derived from the trials and stored.
	Derived func(ctx context.Context, run string) (*record.Results, error)
}

// History returns the results of cells over time, from the stored runs of one plan on one device. It reads
// trials only of runs without stored results, and stores their results if possible. It leaves out runs that
// are still running, and runs of chokepoint upgrade and bisect, which alternate between versions.
func (a *App) History(ctx context.Context, o HistoryOptions) (h *history.History, err error) {
	st, err := a.Dirs.OpenStore(ctx)
	if err != nil {
		return nil, err
	}
	defer Closing(&err, st.Close)
	r := results{st, map[string]*record.Results{}}
	runs, err := a.historyRuns(ctx, r, &o)
	if err != nil {
		return nil, err
	}

	h = &history.History{
		Format: "chokepoint-history/1",
		Plan:   o.Plan,
		Device: o.Device,
		Canary: o.Canary,
		Runs:   len(runs),
		Cells:  []history.Cell{},
	}
	cells, err := r.newestCells(ctx, runs, o)
	if err == nil && o.MaxResults > 0 && len(cells) > 1 && len(cells)*len(runs) > o.MaxResults {
		return nil, &ManyResultsError{Plan: o.Plan, Device: o.Device, Cells: cells, Runs: len(runs)}
	}

	for _, c := range cells {
		if err == nil {
			err = r.addCell(ctx, h, c, runs, o)
		}
	}

	if err == nil && len(h.Cells) == 0 {
		err = Usage("chokepoint history without --metric and --firmware shows what there is",
			"history: no run of plan %s on %s has such a number", o.Plan, o.Device)
	}

	if err == nil {
		err = addCauses(ctx, st, h)
	}

	return h, err
}

// ManyResultsError is returned instead of a history with too many results. Cells holds the cells of that
// history, and Runs is its number of runs.
type ManyResultsError struct {
	Plan, Device string
	Cells        []record.CellResult
	Runs         int
}

func (e *ManyResultsError) Error() string {
	return fmt.Sprintf("history of plan %s on %s: %s in %s are too many", e.Plan, e.Device,
		unit.Count(len(e.Cells), "cell"), unit.Count(e.Runs, "run"))
}

// results reads the results of runs. derived holds the results that were just derived, by run id.
type results struct {
	*store.Store
	derived map[string]*record.Results
}

// ofRun returns the results of a run's cells.
func (r results) ofRun(ctx context.Context, id string) ([]record.CellResult, error) {
	if d := r.derived[id]; d != nil {
		return d.Cells, nil
	}
	return r.CellsOfRun(ctx, id)
}

// ofCell returns the results of a cell, by run id.
func (r results) ofCell(ctx context.Context, f record.Factors) (map[string][]record.CellResult, error) {
	byRun, err := r.RunsOfCell(ctx, f)
	if err != nil {
		return nil, err
	}

	for id, d := range r.derived {
		byRun[id] = nil
		for _, c := range d.Cells {
			if c.Factors.ID() == f.ID() {
				byRun[id] = append(byRun[id], c)
			}
		}
	}

	return byRun, nil
}

// historyRuns returns the runs of a plan on a device that have results, newest first. If the options name no
// plan or no device, it sets them to the plan and device of the newest of these runs.
func (a *App) historyRuns(ctx context.Context, r results, o *HistoryOptions) ([]store.ResultHead, error) {
	all, err := r.ResultHeads(ctx)
	if err != nil {
		return nil, err
	}

	derived := o.Derived
	if derived == nil {
		derived = a.derived
	}

	var runs []store.ResultHead
	var sizes map[string]store.Size
	for _, h := range all {
		if err := reckon(r.Store, h.ID, &h.Status); err != nil {
			return nil, err
		}

		if h.Status == record.RunRunning || o.Plan != "" && h.Plan != o.Plan || h.Started.Before(o.Since) {
			continue
		}

		if h.Derivation != analysis.ResultsDerivation {
			if sizes == nil { // read the sizes first, because trials may be added while the trials are read
				if sizes, err = r.Sizes(ctx); err != nil {
					return nil, err
				}
			}

			found, err := derived(ctx, h.ID)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}

			if err != nil {
				a.note("run %s is left out: %v", h.ID, err)
				continue
			}

			if found == nil { // the run was killed before its first trial
				continue
			}

			r.derived[h.ID] = found
			h.ResultFacts = found.ResultFacts
		}

		if h.Series == "" && (o.Device == "" || h.Device == o.Device) {
			o.Plan, o.Device = h.Plan, h.Device
			runs = append(runs, h)
		}
	}

	if len(runs) == 0 {
		return nil, Usage("chokepoint list shows runs with their plans and devices",
			"history: no run has ended that fits%s", fitting(*o))
	}

	if len(r.derived) > 0 && o.Derived == nil {
		what := "the results of " + unit.Count(len(r.derived), "run") + " were derived from the trials"
		if err := a.keepResults(ctx, r.derived, sizes); err != nil {
			a.note("%s, and cannot be kept: %v", what, err)
		} else {
			a.note("%s, and are kept", what)
		}
	}

	return runs, nil
}

// derived derives the results of a run from its trials. It returns nil if the run has no trials.
func (a *App) derived(ctx context.Context, run string) (*record.Results, error) {
	doc, err := a.Dirs.Document(ctx, run)
	if err != nil || len(doc.Trials) == 0 {
		return nil, err
	}
	return doc.Results(), nil
}

// fitting describes the runs that match the options.
func fitting(o HistoryOptions) string {
	text := ""
	for _, x := range [][2]string{{"plan", o.Plan}, {"device", o.Device}} {
		if x[1] != "" {
			text += ", " + x[0] + " " + x[1]
		}
	}

	if !o.Since.IsZero() {
		text += ", since " + o.Since.Format(time.DateOnly)
	}

	return text
}

// keepResults stores derived results, so that the next history is faster.
func (a *App) keepResults(ctx context.Context, derived map[string]*record.Results,
	sizes map[string]store.Size) error {
	st, err := store.Open(ctx, a.Dirs.place())
	if err != nil {
		return err
	}

	for id, r := range derived {
		err = errors.Join(err, st.KeepResults(ctx, id, r, sizes[id]))
	}

	return errors.Join(err, st.Close())
}

// newestCells returns the requested cells of the newest run that has cells.
func (r results) newestCells(ctx context.Context, runs []store.ResultHead,
	o HistoryOptions) (cells []record.CellResult, err error) {
	for _, head := range runs {
		cells, err = r.ofRun(ctx, head.ID)
		if err != nil {
			return nil, err
		}

		if len(cells) > 0 {
			break
		}
	}

	var labels []string
	seen := map[string]bool{}
	cells = slices.DeleteFunc(slices.Clone(cells), func(c record.CellResult) bool {
		id := c.Factors.ID()
		full := factor.Firmware.With(c.Factors, c.Firmware).ID()
		labels = append(labels, c.Label)
		if seen[id] || o.Cell != id && o.Cell != full && !HasWords(c.Label, o.Cell) {
			return true
		}

		seen[id] = true // omit results of the same cell with another firmware
		return false
	})
	if len(cells) == 0 {
		return nil, Usage("cells: "+strings.Join(labels, "; "), "--cell %q: run %s has no such cell",
			o.Cell, runs[0].ID)
	}

	return cells, nil
}

// HasWords reports whether a label contains all of the words, in any order. It ignores case.
func HasWords(label, words string) bool {
	label = strings.ToLower(label)
	for w := range strings.FieldsSeq(strings.ToLower(words)) {
		if !strings.Contains(label, w) {
			return false
		}
	}
	return true
}

// addCell adds the history of a cell, unless no run has a number for it.
func (r results) addCell(ctx context.Context, h *history.History, newest record.CellResult,
	heads []store.ResultHead, o HistoryOptions) error {
	byRun, err := r.ofCell(ctx, newest.Factors)
	if err != nil {
		return err
	}

	var runs []history.Run
	for _, head := range heads {
		of := slices.DeleteFunc(byRun[head.ID], func(c record.CellResult) bool {
			firmware := cmp.Or(c.Firmware, head.Firmware)
			return o.Firmware != "" && !factor.Tells(firmware, o.Firmware) &&
				!(o.Canary != "" && factor.Tells(firmware, o.Canary))
		})
		if len(of) > 0 {
			runs = append(runs, history.Run{
				ID:          head.ID,
				Name:        head.Name,
				Started:     head.Started,
				ResultFacts: head.ResultFacts,
				Results:     of,
			})
		}

		if newest.Metric == "" && len(of) > 0 {
			newest.Metric = of[0].Metric // the newest run has no number for the cell
		}
	}

	c := history.Of(newest, runs, o.Metric, o.Canary)
	if slices.ContainsFunc(c.Points, func(p history.Point) bool { return p.Value != nil }) {
		h.Cells = append(h.Cells, c)
	}

	return nil
}

// addCauses adds the known differences between the runs before and after each change point. It does not read
// the trials of these runs.
func addCauses(ctx context.Context, st *store.Store, h *history.History) error {
	heads := map[string]*analysis.Document{}
	head := func(id string) (*analysis.Document, error) {
		if heads[id] == nil {
			run, err := st.Find(ctx, id)
			if err != nil {
				return nil, err
			}

			heads[id] = analysis.Begin(run, 0).Document()
		}
		return heads[id], nil
	}
	for i := range h.Cells {
		for j := range h.Cells[i].Changes {
			x := &h.Cells[i].Changes[j]
			before, err := head(x.Before)
			if err != nil {
				return err
			}

			after, err := head(x.After)
			if err != nil {
				return err
			}

			if before != after {
				x.Causes = analysis.Causes(before, after)
			}
		}
	}

	return nil
}
