package report

import (
	"fmt"
	"strings"
)

// trialNotes sums up what single trials have to say where not every trial is shown: failures, and caveats
// that the cells do not repeat.
func trialNotes(v *view, known Table) []Item {
	var out []Item
	index := map[string]int{}
	trials := map[string][]string{}
	add := func(item Item, trial string) {
		key := item.Kind + "\n" + item.Text
		if _, ok := index[key]; !ok {
			index[key] = len(out)
			out = append(out, item)
		}
		trials[key] = append(trials[key], trial)
	}
	said := map[string]bool{}
	for _, n := range known.Notes {
		said[n.Kind+"\n"+n.Text] = true
	}
	for i := range v.Trials {
		t := &v.Trials[i]
		if f := t.Failure; f != nil {
			item := Item{Kind: "failed in " + f.Phase, Text: f.Error, Tone: Bad}
			if f.Hint != "" {
				item.Text += " (hint: " + f.Hint + ")"
			}
			add(item, t.ID)
		}
		for _, c := range t.Caveats {
			if !said[c.Kind+"\n"+c.Text] {
				add(Item{Kind: c.Kind, Text: c.Text, Tone: Doubt}, t.ID)
			}
		}
	}
	for key, i := range index {
		ids := trials[key]
		words := strings.Join(ids, ", ")
		if len(ids) > 4 {
			words = fmt.Sprintf("%d trials, the first %s", len(ids), ids[0])
		}
		out[i].Evidence = append(out[i].Evidence, words)
	}
	return out
}
