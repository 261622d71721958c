package report

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// blackboxSection: what do both ends alone tell of what lies between them?
func blackboxSection(v *view, s *Section) {
	s.ID, s.Title = "two-ends", "What holds it back, by what both ends see?"
	for i := range v.Paths {
		p := &v.Paths[i]
		title := "Without any telemetry of what lies between"
		if len(v.Paths) > 1 {
			title += ": " + p.Label
		}
		s.add(List{Title: title, Items: pathItems(p)})
	}
}

func pathItems(p *diagnosis.Path) []Item {
	var out []Item
	for _, d := range p.Directions {
		tone := Doubt
		switch d.Class {
		case diagnosis.Tester:
			tone = Good
		case diagnosis.Unknown:
			tone = Quiet
		}
		out = append(out, Item{Kind: d.Direction, Text: d.Text + " (" + d.Class + ", confidence " +
			unit.Percent(d.Confidence) + ")", Tone: tone})
		for _, n := range d.Numbers {
			out = append(out, Item{Kind: d.Direction, Text: n.Text})
		}
		for _, c := range d.Causes[min(len(d.Causes), 1):] {
			out = append(out, Item{Kind: "or", Text: d.Direction + ": " + c.Text + " (" + c.Class + ", " +
				unit.Percent(c.Confidence) + ")", Tone: Quiet})
		}
	}
	for _, f := range p.Facts {
		out = append(out, Item{Kind: "up and down", Text: f.Text})
	}
	return append(out, lineItems("would tell more", Quiet, p.Access)...)
}

// pathLines are the same as lines, for pages without sections.
func pathLines(v *view) []Item {
	var out []Item
	for i := range v.Paths {
		out = append(out, pathItems(&v.Paths[i])...)
	}
	return out
}
