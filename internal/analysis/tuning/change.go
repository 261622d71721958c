// Package tuning finds the settings that help a router: which changes to try, in which rounds, the effect of
// each, which are kept, and the commands that make them permanent. It is pure; a campaign tries them.
package tuning

import (
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// Change replaces levels of factors in a cell. They are tried together.
type Change struct {
	Levels factor.Cell `json:"levels"` // a level of "" removes the factor: as found
	Why    string      `json:"why"`
	Risk   string      `json:"risk,omitempty"`
	Class  string      `json:"class,omitempty"` // of the finding that it addresses
	// GainAtMost is the finding's bound of goodput then ÷ goodput now; 0 = unknown.
	GainAtMost float64 `json:"gain_at_most,omitempty"`
}

// String names a change by its levels.
func (c Change) String() string {
	parts := make([]string, 0, len(c.Levels))
	for _, name := range c.Levels.Names() {
		level := c.Levels[name]
		if level != "" {
			parts = append(parts, name+"="+level)
		} else {
			parts = append(parts, "no "+name)
		}
	}
	return strings.Join(parts, ", ")
}

// answer records the first cause of one of the classes, as the finding that the change addresses.
func (c *Change) answer(causes []diagnosis.Cause, classes []string) {
	for _, cause := range causes {
		if slices.Contains(classes, cause.Class) {
			c.Class = cause.Class
			c.GainAtMost = cause.GainAtMost
			return
		}
	}
}

// excludes reports whether two changes have a factor in common, so that only one of them can be made.
func (c Change) excludes(other Change) bool {
	for name := range c.Levels {
		_, both := other.Levels[name]
		if both {
			return true
		}
	}
	return false
}

// Set holds changes that are made together.
type Set []Change

// Patch returns the levels of all of them.
func (s Set) Patch() factor.Cell {
	levels := factor.Cell{}
	for _, c := range s {
		maps.Copy(levels, c.Levels)
	}
	return levels
}

// Key identifies a set.
func (s Set) Key() string { return s.Patch().Key() }

// String names a set by its changes.
func (s Set) String() string {
	if len(s) == 0 {
		return "as found"
	}

	names := make([]string, len(s))
	for i, c := range s {
		names[i] = c.String()
	}

	return strings.Join(names, " + ")
}

func (s Set) with(more ...Change) Set { return append(slices.Clone(s), more...) }

func (s Set) without(c Change) Set {
	return slices.DeleteFunc(slices.Clone(s), func(other Change) bool { return other.String() == c.String() })
}

// allows reports whether a change can be made together with those of the set.
func (s Set) allows(c Change) bool { return !slices.ContainsFunc(s, c.excludes) }
