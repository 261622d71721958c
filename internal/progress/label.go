package progress

import (
	"encoding/json"
	"slices"
	"sort"
	"strings"
	"unicode"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// leading factors come first in a label, by their bare levels.
var leading = [...]string{"topology", "tunnel", "protocol", "streams", "direction"}

// following are the factors that a cell has because of its other levels.
var following = [...]string{"mtu", "packet_size", "congestion", "rate"}

// labeller names cells for people. Once it knows the cells of a run it uses the factors that vary; before,
// all that are not at an ordinary level.
type labeller struct {
	vary map[string]bool // nil: the cells are not known
}

// learn reads the cells out of a stored design, the data of run-started. Data of another shape teaches
// nothing.
func (l *labeller) learn(data json.RawMessage) {
	var design struct {
		Cells []record.Factors `json:"cells"`
	}
	if json.Unmarshal(data, &design) != nil || len(design.Cells) < 2 {
		return
	}
	// A factor that follows from others (the one MTU of all tunnels) varies if it has several levels; a
	// setting that only some cells have, such as a queue, tells those from the rest.
	levels, has := map[string]string{}, map[string]int{}
	l.vary = map[string]bool{"packet_size": true}
	for _, cell := range design.Cells {
		for name, level := range cell {
			if first, seen := levels[name]; seen && first != level {
				l.vary[name] = true
			}
			levels[name] = level
			has[name]++
		}
	}
	for name, n := range has {
		if n < len(design.Cells) && !slices.Contains(following[:], name) {
			l.vary[name] = true
		}
	}
}

// row names a row: its cell, and what is done there unless it is load.
func (l *labeller) row(e record.Event) string {
	label := l.cell(e.Cell)
	if label == "" {
		label = clean(e.Row)
	}
	switch e.Text {
	case "", record.RowLoad:
		if e.PPS > 0 { // a search has chosen the rate
			return label + " at " + unit.PacketRate(e.PPS).String()
		}
		if e.Rate > 0 {
			return label + " at " + unit.Bitrate(e.Rate).String()
		}
		return label
	case record.RowIdle:
		return "idle latency, " + label
	case record.RowVerify:
		return "every byte checked, " + label
	}
	return clean(e.Text)
}

func (l *labeller) cell(f record.Factors) string {
	var parts, rest []string
	for _, name := range leading {
		if f[name] != "" && l.shows(name, f[name]) {
			parts = append(parts, leadingWords(name, clean(f[name])))
		}
	}
	for name, level := range f {
		if !slices.Contains(leading[:], name) && l.shows(name, level) {
			rest = append(rest, clean(name)+"="+clean(level))
		}
	}
	sort.Strings(rest)
	return strings.Join(append(parts, rest...), " ")
}

func (l *labeller) shows(name, level string) bool {
	if l.vary != nil {
		return l.vary[name]
	}
	if slices.Contains(leading[1:], name) {
		return true
	}
	switch level {
	case "", "off", "none", "default", "auto":
		return false
	}
	switch name + "=" + level {
	case "topology=forward", "ip=4", "offload=wire", "rate=flat", "engine=native", "congestion=cubic":
		return false
	}
	return true
}

func leadingWords(name, level string) string {
	switch {
	case name == "tunnel" && level == "none":
		return "no tunnel"
	case name == "protocol":
		return strings.ToUpper(level)
	case name == "streams" && level == "1":
		return "1 stream"
	case name == "streams":
		return level + " streams"
	}
	return level
}

// clean makes text fit for one line of a terminal: no control characters, so that nothing a node reports
// can move the cursor, and no line breaks.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e':
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}
