package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Head holds the data of a run that a list shows.
type Head = store.Head

// Listed is a run in the form that list --json prints.
type Listed struct {
	Head
	Alive bool `json:"alive"` // the program that records the run is still running
}

// ListedOf returns a run in the form that list --json prints.
func ListedOf(h Head) Listed {
	h.Started = h.Started.UTC().Truncate(time.Second)
	return Listed{h, h.Status == record.RunRunning}
}

// Revision returns a hash that changes whenever stored data of a run or of its experiments changes, for
// example when a trial, a note or an import is added, or when the run ends or is renamed.
func (d Dirs) Revision(ctx context.Context, id string) (hash string, err error) {
	err = d.WithRun(ctx, id, func(st *store.Store, run record.Run) error {
		text, err := stateOf(ctx, st, run)
		for _, id := range run.Experiments {
			of, findErr := st.Find(ctx, id)
			if _, gone := errors.AsType[*store.NotFoundError](findErr); gone {
				continue
			}

			state, stateErr := stateOf(ctx, st, of)
			err = errors.Join(err, findErr, stateErr)
			text = append(text, state...)
		}

		hash = fmt.Sprintf("%x", sha256.Sum256(text))
		return err
	})
	return hash, err
}

// stateOf encodes the head of a run and its number of trials.
func stateOf(ctx context.Context, st *store.Store, run record.Run) ([]byte, error) {
	trials, err := st.Index(ctx, run.ID)
	if err != nil {
		return nil, err
	}

	text, err := json.Marshal(run)
	return fmt.Append(text, len(trials)), err
}

// maxListedLevels is the maximum number of levels of a factor that are listed one by one.
const maxListedLevels = 4

// VariedWords returns the names of the factors that have several levels. If the levels of a factor are
// numbers, they follow its name.
func VariedWords(all []record.FactorLevels) string {
	var words []string
	for _, f := range all {
		levels := f.Levels
		words = append(words, f.Name)
		if slices.ContainsFunc(levels, func(l string) bool { return l == "" || l[0] < '0' || l[0] > '9' }) {
			continue
		}

		text := strings.Join(levels, ",")
		if len(levels) > maxListedLevels {
			text = levels[0] + "…" + levels[len(levels)-1]
		}

		words[len(words)-1] += " " + text
	}

	return cmp.Or(strings.Join(words, " × "), "-")
}

// BestWords returns two texts: the headline of a run, and the label of the headline's cell. If the run is not
// done, the first text includes its status.
func BestWords(r Head) (best, in string) {
	var words []string
	h := r.Headline
	if h != nil {
		mark := ""
		if h.Grade == evidence.GradeSuspect {
			mark = " !"
		}

		words = append(words, metrics.Say(h.Metric, h.Value)+mark)
		in = h.Cell
	}

	switch {
	case r.Damaged != "":
		return "damaged", ""
	case r.Status == record.RunRunning, r.Status == record.RunKilled:
		words = append(words, r.Status, unit.Count(r.Trials, "trial"))
	case r.Status != record.RunDone:
		words = append(words, r.Status)
	}

	if r.Failed > 0 {
		words = append(words, strconv.Itoa(r.Failed)+" failed")
	}

	return cmp.Or(strings.Join(words, ", "), "-"), in
}
