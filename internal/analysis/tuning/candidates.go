package tuning

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// Situation is the input for choosing candidates: the state of the routers and the plan.
type Situation struct {
	Cells     []factor.Cell
	Diagnoses []*diagnosis.Diagnosis // diagnoses of the cells as found
	CPUs      int                    // CPUs of the router with the fewest; 0 means unknown
	Catalogue *factor.Catalogue
	// Found is the document of the run that measured the router as found, with its queues and packet filter.
	// It is empty if there is no such run.
	Found analysis.Document
}

// standard is a change that is worth trying on any router, if its factor applies to one of the cells.
type standard struct {
	factor    string
	level     func(s Situation, now string) string // "" means no change; now is "" for the setting as found
	classes   []string                             // classes of limits that the change may remove
	why, risk string
}

func always(level string) func(Situation, string) string {
	return func(_ Situation, now string) string {
		if now == level {
			return ""
		}
		return level
	}
}

// allCores returns a level that lists all cores of a router, or "" if the router has one core or already has
// this level.
func allCores(s Situation, now string) string {
	level := fmt.Sprintf("0-%d", s.CPUs-1)
	if s.CPUs < 2 || now == level {
		return ""
	}
	return level
}

// given returns a function for standard.level that applies change to the level in the plan. If the plan sets
// no level, it makes no change.
func given(change func(now string) string) func(Situation, string) string {
	return func(_ Situation, now string) string {
		if now == "" || now == "off" {
			return ""
		}
		return change(now)
	}
}

// asSet converts a level of the factor firewall with a list of rules to a level with the same number of rules
// in a set. It returns "" if that is not possible.
func asSet(now string) string {
	number, rest, _ := strings.Cut(now, " ")
	if number == "0" || strings.HasPrefix(rest, "in a ") {
		return ""
	}
	return strings.TrimSpace(number + " in a set " + rest)
}

func withoutLog(now string) string {
	less, logs := strings.CutSuffix(now, " log")
	if logs {
		return less
	}
	return ""
}

// standards lists standard changes in the order in which they are tried, unless a diagnosis suggests another
// order. It does not include larger rings, because they made forwarding slower in every measurement.
var standards = [...]standard{
	{"cpu_quota@host", given(func(string) string { return "off" }),
		[]string{diagnosis.ClockDown, diagnosis.Thermal, diagnosis.SoftirqOneCore, diagnosis.SoftirqAllCores,
			diagnosis.VPNProcess, diagnosis.CryptoWorkers},
		"the CPU is held below what it can do", "power and heat"},
	{"governor", always("performance"), []string{diagnosis.ClockDown, diagnosis.SoftirqOneCore,
		diagnosis.SoftirqAllCores, diagnosis.VPNProcess, diagnosis.CryptoWorkers},
		"the clock need not rise before it is fast", "power and heat"},
	{"mss_clamp", always("pmtu"), []string{diagnosis.Fragmentation, diagnosis.PMTUBlackHole},
		"TCP sends no more than the path carries", "TCP only: other packets stay too large"},
	{"cpus", allCores, []string{diagnosis.SoftirqOneCore, diagnosis.OneTunnel},
		"packet steering spreads the receive work over all cores", "on two cores it may be slower"},
	{"irq_affinity", allCores, []string{diagnosis.SoftirqOneCore}, "interrupts on all cores",
		"a daemon such as irqbalance may move them again"},
	{"napi_threaded", always("on"), []string{diagnosis.SoftirqOneCore, diagnosis.SoftirqAllCores},
		"receive threads are spread by the scheduler", "latency"},
	{diagnosis.FlowtableFactor, always("on"),
		[]string{diagnosis.SoftirqOneCore, diagnosis.SoftirqAllCores, diagnosis.RuleList},
		"known connections skip the rules", "shapers and accounting do not see them"},
	{"gro_flush_timeout", always("20us"), []string{diagnosis.GROPathology, diagnosis.SoftirqAllCores},
		"more packets are merged before the stack sees them", "latency"},
	{"firewall", given(asSet), []string{diagnosis.RuleList}, "one look-up instead of a list", ""},
	{"firewall", given(withoutLog), []string{diagnosis.LogFlood},
		"each logged packet costs more than forwarding it", "what is dropped is no longer seen"},
	{"flow_export", given(func(string) string { return "off" }), []string{diagnosis.OtherLoad},
		"accounting takes CPU from forwarding", "no accounting"},
}

// Candidates returns the changes that are worth trying. Changes for the most probable cause come first.
func Candidates(s Situation) []Change {
	var out []Change
	add := func(c Change) {
		i := slices.IndexFunc(out, c.same)
		if i < 0 {
			out = append(out, c)
		} else if out[i].Class == "" {
			out[i] = c
		}
	}
	causes := causesOf(s.Diagnoses)
	for _, cause := range causes {
		for _, r := range cause.Remedies {
			if r.Factor == "" || r.Factor == queueFactor || strings.Contains(r.Factor, "ring") {
				continue
			}

			for _, levels := range placed(s, r.Factor, always(r.Level)) {
				add(Change{levels, r.Do, r.Risk, cause.Class, cause.GainAtMost})
			}
		}
	}

	for _, std := range standards {
		c := Change{Why: std.why, Risk: std.risk}
		c.answer(causes, std.classes)
		for _, c.Levels = range placed(s, std.factor, std.level) {
			add(c)
		}
	}

	for _, c := range slices.Concat(queueChanges(s, causes), undoings(s)) {
		add(c)
	}

	rank := func(c Change) int {
		for i, cause := range causes {
			if c.Class == cause.Class {
				return i
			}
		}
		return len(causes)
	}
	slices.SortStableFunc(out, func(a, b Change) int { return cmp.Compare(rank(a), rank(b)) })
	return out
}

// causesOf merges the causes of all cells, most probable first. Each class occurs once, with the largest
// bound that a cell has for it.
func causesOf(all []*diagnosis.Diagnosis) []diagnosis.Cause {
	var out []diagnosis.Cause
	for _, d := range all {
		if d == nil {
			continue
		}

		for _, c := range d.Causes {
			i := slices.IndexFunc(out, func(o diagnosis.Cause) bool { return o.Class == c.Class })
			if i < 0 {
				out = append(out, c)
				continue
			}

			out[i].Confidence = max(out[i].Confidence, c.Confidence)
			out[i].GainAtMost = max(out[i].GainAtMost, c.GainAtMost)
		}
	}

	slices.SortStableFunc(out, func(a, b diagnosis.Cause) int {
		return cmp.Compare(b.Confidence, a.Confidence)
	})
	return out
}

// placed returns changes of a factor at each place where the cells have the factor. If no cell has it, the
// change is at the usual place of the factor or, without a usual place, on all routers.
func placed(s Situation, name string, level func(Situation, string) string) []factor.Cell {
	plain, _ := factor.Split(name)
	names := []string{}
	for _, c := range s.Cells {
		for place := range factor.Name(plain).Each(c) {
			at := placedName(plain, place)
			if !slices.Contains(names, at) {
				names = append(names, at)
			}
		}
	}

	if len(names) == 0 {
		names = []string{name}
	}

	var out []factor.Cell
	for _, at := range names {
		to := level(s, s.level(at))
		if to != "" && s.means(at, to) {
			out = append(out, factor.Cell{at: to})
		}
	}

	return out
}

// level returns the level of a factor in the first cell that has it, or "".
func (s Situation) level(name string) string {
	for _, c := range s.Cells {
		level := c[name]
		if level != "" {
			return level
		}
	}
	return ""
}

// means reports whether a factor is known, accepts the level, and applies to at least one of the cells.
func (s Situation) means(name, level string) bool {
	d, ok := s.Catalogue.Lookup(name)
	if !ok {
		return false
	}

	canonical, err := d.Parse(level)
	return err == nil && canonical != "" && slices.ContainsFunc(s.Cells, func(c factor.Cell) bool {
		applies := d.Applies == nil
		if !applies {
			applies, _ = d.Applies(c)
		}
		return applies && (d.Conflict == nil || d.Conflict(factor.Name(name).With(c, level)) == "")
	})
}

// parses replaces levels with their canonical form, and reports whether all of them are valid.
func (s Situation) parses(levels factor.Cell) bool {
	for name, level := range levels {
		d, ok := s.Catalogue.Lookup(name)
		if !ok {
			return false
		}

		if level == "" {
			continue
		}

		canonical, err := d.Parse(level)
		if err != nil {
			return false
		}

		levels[name] = canonical
	}
	return true
}

// undoings returns changes that remove settings of the plan from the routers or the ends, one setting each.
func undoings(s Situation) []Change {
	var out []Change
	seen := map[string]bool{}
	for _, cell := range s.Cells {
		for _, name := range cell.Names() {
			d, known := s.Catalogue.Lookup(name)
			setting := known && d.Kind == factor.Setting && !d.Policy
			base := known && d.Base && d.Derive == nil
			if seen[name] || base || !setting && !d.Tunable || d.AtBaseline(cell[name]) ||
				d.Derive != nil && d.Derive(factor.Name(name).With(cell, "")) == cell[name] {
				continue
			}

			seen[name] = true
			out = append(out, Change{
				Levels: factor.Cell{name: ""},
				Why:    "what " + name + " is without the plan's " + cell[name],
			})
		}
	}

	return out
}
