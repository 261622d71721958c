package report

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// blackboxSection shows what measurements at the two endpoints reveal about the path between them.
func blackboxSection(v *view, s *Section) {
	for _, p := range v.Paths {
		title := "Without any telemetry of what lies between"
		if len(v.Paths) > 1 {
			title += ": " + p.Label
		}

		s.add(List{Title: title, Items: pathItems(p)})
	}
}

func pathItems(p diagnosis.Path) []Item {
	var out []Item
	for _, d := range p.Directions {
		tone := Doubt
		switch d.Class {
		case diagnosis.Tester:
			tone = Good
		case diagnosis.Unknown:
			tone = Quiet
		}

		out = append(out, items(d.Direction, tone, d.Text+bracket(d.Class+", confidence "+
			unit.Percent(d.Confidence)))...)
		out = append(out, items(d.Direction, Plain, each(d.Numbers, evidenceText)...)...)
		for _, c := range d.Causes[min(len(d.Causes), 1):] {
			out = append(out, items("or", Quiet, d.Direction+": "+c.Text+bracket(c.Class+", "+
				unit.Percent(c.Confidence)))...)
		}
	}

	out = append(out, items("up and down", Plain, each(p.Facts, evidenceText)...)...)
	return append(out, items("would show more", Quiet, p.Access...)...)
}

func evidenceText(e evidence.Evidence) string { return e.Text }

// pathLines returns the content of blackboxSection as lines, for output without sections.
func pathLines(v *view) []Item {
	return slices.Concat(each(v.Paths, pathItems)...)
}
