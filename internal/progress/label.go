package progress

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// labeller names cells. If it knows the cells of a run, it uses the factors that vary. Otherwise, it uses all
// factors that are not at their ordinary level.
type labeller struct {
	factors *factor.Catalogue
	vary    map[string]bool // nil if the cells are unknown
}

// learn reads the cells of a stored design. The design comes from the event run-started, or from a phase
// event if the design has changed. learn ignores data in another form.
func (l *labeller) learn(data json.RawMessage) {
	var design struct {
		Cells  []factor.Cell                `json:"cells"`
		Labels map[string]map[string]string `json:"labels"`
	}
	if json.Unmarshal(data, &design) != nil || len(design.Cells) < 2 {
		return
	}

	l.factors = l.factors.Labelled(design.Labels)
	// A factor, such as a queue, varies if it has several levels or if only some cells have it. A dependent
	// factor, such as the MTU of tunnels, varies only if it has several levels.
	levels := map[string]string{}
	has := map[string]int{}
	l.vary = map[string]bool{}
	for _, cell := range design.Cells {
		for name, level := range cell {
			first, seen := levels[name]
			if seen && first != level {
				l.vary[name] = true
			}

			levels[name] = level
			has[name]++
		}
	}

	for name, n := range has {
		if n < len(design.Cells) && !l.factors.Of(name).Dependent {
			l.vary[name] = true
		}
	}
}

// row names a row by its cell, and also by its kind unless the kind is load.
func (l *labeller) row(e record.Event) string {
	label := cmp.Or(l.cell(e.Cell), clean(e.Row))
	switch load := e.Text == "" || (record.Assignment{Kind: e.Text}).OfCell(); {
	case load && e.PPS > 0: // a search chose the rate
		return label + " at " + unit.PacketRate(e.PPS).String()
	case load && e.Rate > 0:
		return label + " at " + unit.Bitrate(e.Rate).String()
	case load:
		return label
	case e.Text == record.RowIdle:
		return "idle latency, " + label
	case e.Text == record.RowVerify:
		return "every byte checked, " + label
	}
	return clean(e.Text)
}

// cell describes the shown factors of a cell, the leading ones first.
func (l *labeller) cell(f factor.Cell) string {
	var leading, rest []string
	names := f.Names()
	l.factors.Sort(names)
	for _, name := range names {
		d := l.factors.Of(name)
		level := f[name]
		shows := l.vary[name]
		if l.vary == nil {
			shows = d.Leading && !d.Hard || level != d.Default && !factor.Same(level, "") && level != "auto"
		}

		switch {
		case shows && d.Leading:
			leading = append(leading, clean(d.Label(level)))
		case shows:
			rest = append(rest, clean(d.Words(level)))
		}
	}

	return strings.Join(append(leading, rest...), " ")
}

// clean replaces line breaks and control characters. Text then fits on a line, and nothing from a node can
// move the cursor.
func clean(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(check.Plain(text))
}
