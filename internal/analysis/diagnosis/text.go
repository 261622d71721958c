package diagnosis

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// Words holds what a rule's text declares about its class.
type Words struct {
	Label string // clause for a sentence, such as "one core of the router is saturated by softirq"
	Means string // conditions under which the rule fires, with their thresholds
	// Ends marks a class that two ends can recognise without telemetry from the router.
	Ends bool
	Kind string // kind of limit, such as "rate", or "" if no experiment of a kind tests the class
	// Planted lists the faults and settings whose levels set the amount of the class's resource. Costly lists
	// the factors that have levels which cause the class, but which no experiment scales.
	Planted, Costly []string
	Remedies        []Remedy
}

// words parses a rule's text: first the fields of Words, then the remedies. A line such as "linux: lengthen
// the queue" begins a remedy for the named system, or for any system. The following lines hold the remedy's
// commands (each after "$"), its risk, its factor and level ("plan:"), the kind of tunnel that it applies to,
// and its condition ("when:"). A backslash at the end of a line continues the line.
func words(text string) (w Words) {
	last := &Remedy{}
	for line := range strings.Lines(continued().ReplaceAllString(text, "")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch key {
		case "":
		case "label:":
			w.Label = value
		case "means:":
			w.Means = value
		case "ends:":
			w.Ends = value == "yes"
		case "kind:":
			w.Kind = value
		case "planted:":
			w.Planted = strings.Fields(value)
		case "costly:":
			w.Costly = strings.Fields(value)
		case "$":
			last.Commands = append(last.Commands, value)
		case "risk:":
			last.Risk = value
		case "plan:":
			last.Factor, last.Level, _ = strings.Cut(value, "=")
		case "tunnel:":
			last.Tunnel = value
		case "when:":
			last.When = value
		default:
			system := strings.TrimSuffix(key, ":")
			w.Remedies = append(w.Remedies, Remedy{System: strings.TrimPrefix(system, "any"), Do: value})
			last = &w.Remedies[len(w.Remedies)-1]
		}
	}
	return w
}

var continued = check.Pattern(`\\\n\s*`)
