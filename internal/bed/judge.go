package bed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/history"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// Kinds of alarms.
const (
	slower     = "slower"
	faster     = "faster"
	bedChanged = "bed"    // the canary changed in the same way, so the testbed changed
	jobFailed  = "failed" // a job failed
)

func isDifferent(c comparison.Comparison) bool { return c.Verdict == statistics.Different }

// judge raises the alarms of a job: for a failure, for comparisons that show a change, and for confirmed
// changes in the histories of the plans. An alarm is raised only once for each key.
func (b *Service) judge(ctx context.Context, j Job, failed outcome, found []outcome) error {
	raise := func(key, kind, text string) error {
		return b.alarms.raise(key, store.BedAlarm{
			At:       b.now().UTC(),
			Job:      j.ID,
			Kind:     kind,
			Firmware: j.Version,
			Text:     text,
		})
	}
	if failed.Cancelled {
		return nil
	}

	if failed.Failure != "" {
		return raise(j.ID+" failed", jobFailed, j.Why+": "+failed.Failure)
	}

	var kinds, texts []string // for one alarm about the version
	for _, o := range found {
		if o.Kind != "" {
			kinds, texts = append(kinds, o.Kind), append(texts, o.Text)
		}
	}

	if len(kinds) > 0 {
		kind := faster
		if slices.Contains(kinds, slower) {
			kind = slower
		}
		return raise("version "+j.Version, kind, strings.Join(texts, "\n"))
	}

	if slices.ContainsFunc(found, func(o outcome) bool { return o.Text != "" }) { // the job compared versions
		return nil
	}

	for _, name := range j.Plans {
		if err := b.judgeHistory(ctx, j, name, raise); err != nil {
			return fmt.Errorf("history of plan %s: %w", name, err)
		}
	}

	return nil
}

// judgeHistory raises an alarm for the cells whose last change is confirmed. Cells with the same kind of
// change at the same run share one alarm.
func (b *Service) judgeHistory(ctx context.Context, j Job, name string,
	raise func(key, kind, text string) error) error {
	_, pl, err := b.versioned(task{Plan: name}, b.Config.Firmware)
	if err != nil {
		return err
	}

	h, err := b.App.History(ctx, app.HistoryOptions{Plan: pl.Design.Name, Canary: b.Config.Canary})
	if errors.Is(err, app.ErrUsage) { // no run has a result for the plan
		return nil
	}

	if err != nil {
		return err
	}

	texts := map[[2]string][]string{}
	for i := range h.Cells {
		c := &h.Cells[i]
		if len(c.Changes) == 0 {
			continue
		}

		x := c.Changes[len(c.Changes)-1]
		if kind := kindOf(x); kind != "" {
			at := [2]string{x.After, kind}
			texts[at] = append(texts[at], c.Label+": "+report.ChangeWords(c, x))
		}
	}

	for at, cells := range texts {
		text := fmt.Sprintf("plan %s on %s: %s", h.Plan, h.Device, strings.Join(cells, "; "))
		err = errors.Join(err, raise("history "+h.Plan+" "+at[0]+" "+at[1], at[1], text))
	}

	return err
}

// kindOf returns the kind of alarm that a change in a history raises, or "" if it raises none.
func kindOf(x history.Change) string {
	switch {
	case x.Status != history.Confirmed || x.Suspect:
		return ""
	case x.Testbed == history.TestbedChanged:
		return bedChanged
	case x.Better == history.Worse:
		return slower
	case x.Better == history.Better:
		return faster
	}
	return ""
}
