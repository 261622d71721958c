package analysis

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// soft reasons blame chance as well as the set-up: they make a cell suspect only where they touch a quarter
// of its trials. The median does not move with fewer.
var soft = map[string]bool{
	ReasonDrift: true, ReasonBackgroundLoad: true, ReasonSamplerStalled: true, ReasonLateProbe: true,
	ReasonLateEdge: true,
}

// cellGrade is what the trials of a cell make of it.
type cellGrade struct {
	grade        string
	reasons      []Reason
	caveats      []record.Caveat
	runs, failed int // trials with numbers, and without
}

// gradeCell judges a cell: good are its trials that count, trials all of them, verify those that checked the
// content of its path, and missing says why there is no trial at all. Each kind of reason is named once, with
// the first trial's words.
func gradeCell(good, trials, verify []*judged, missing string) cellGrade {
	c := cellGrade{grade: GradeValid, reasons: []Reason{}, runs: len(good)}
	touched := map[string]int{}
	for _, j := range good {
		kinds := map[string]bool{}
		for _, r := range j.reasons {
			kinds[r.Kind] = true
		}
		for k := range kinds {
			touched[k]++
		}
	}
	minor, named := map[string]bool{}, map[string]bool{}
	for _, j := range good {
		for _, r := range j.reasons {
			switch {
			case soft[r.Kind] && 4*touched[r.Kind] < len(good):
				minor[r.Kind] = true
			case !named[r.Kind]:
				named[r.Kind] = true
				if others := touched[r.Kind] - 1; others > 0 {
					r.Text += fmt.Sprintf("; the same reason in %d more of %d trials", others, len(good))
				}
				c.reasons = append(c.reasons, r)
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(minor)) {
		c.caveats = append(c.caveats, record.Caveat{Kind: k,
			Text: fmt.Sprintf("%d of %d trials are suspect: %s", touched[k], len(good), k)})
	}
	c.addFailures(good, trials, missing)
	c.addVerify(verify)
	switch {
	case c.runs == 0:
		c.grade = GradeFailed
	case len(c.reasons) > 0:
		c.grade = GradeSuspect
	}
	return c
}

// addFailures names failed trials: a reason where a row has no good attempt, a caveat where it was repeated
// with success, which names no trial, so that cells to which the same happened share it.
func (c *cellGrade) addFailures(good, trials []*judged, missing string) {
	ok := map[string]bool{}
	for _, j := range good {
		ok[j.t.Row.ID] = true
	}
	var texts []string
	repeated := map[string]int{} // by what happened
	for _, j := range trials {
		if j.grade != GradeFailed {
			continue
		}
		c.failed++
		text := "failed"
		if f := j.t.Failure; f != nil {
			text = fmt.Sprintf("failed in %s: %s", f.Phase, f.Error)
		}
		if ok[j.t.Row.ID] {
			if repeated[text]++; repeated[text] == 1 {
				texts = append(texts, text)
			}
			continue
		}
		c.reasons = append(c.reasons, Reason{Kind: ReasonFailedTrials, Text: text, Trial: j.t.ID})
	}
	for _, text := range texts {
		words := "a trial " + text + "; it was repeated"
		if n := repeated[text]; n > 1 {
			words = fmt.Sprintf("%d trials %s; they were repeated", n, text)
		}
		c.caveats = append(c.caveats, record.Caveat{Kind: "repeated", Text: words})
	}
	if len(trials) == 0 {
		c.reasons = append(c.reasons, Reason{Kind: ReasonFailedTrials, Text: missing})
	}
}

// addVerify casts what the verifying trial of the path found on the cell. A repeated one counts once, as any
// row does.
func (c *cellGrade) addVerify(verify []*judged) {
	ok := map[string]bool{}
	for _, j := range lastGood(verify) {
		ok[j.t.Row.ID] = true
		for _, r := range j.reasons {
			if verifyReasons[r.Kind] {
				c.reasons = append(c.reasons, r)
			}
		}
	}
	for _, j := range verify {
		if !ok[j.t.Row.ID] {
			c.caveats = append(c.caveats, record.Caveat{Kind: "unverified",
				Text: "the content of this path was not verified: trial " + j.t.ID + " failed"})
		}
	}
}

// lastGood are the trials that have numbers, with the last good attempt of each row.
func lastGood(trials []*judged) []*judged {
	at := map[string]int{}
	var out []*judged
	for _, j := range trials {
		if j.grade == GradeFailed {
			continue
		}
		if i, again := at[j.t.Row.ID]; again {
			out[i] = j
			continue
		}
		at[j.t.Row.ID] = len(out)
		out = append(out, j)
	}
	return out
}
