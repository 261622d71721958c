// Package tuning finds settings that improve a router. It determines which changes to try in which rounds,
// evaluates their effects, decides which to keep, and returns the commands that make them permanent. It
// measures nothing itself.
package tuning

import (
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// Change replaces levels of factors in a cell. All of its levels are tried together.
type Change struct {
	Levels factor.Cell `json:"levels"` // "" removes the factor, so that the router's setting stays as found
	Why    string      `json:"why"`
	Risk   string      `json:"risk,omitempty"`
	Class  string      `json:"class,omitempty"` // class of limit that the change may remove
	// GainAtMost is an upper bound of goodput with the change ÷ goodput without it, from the diagnosis. 0
	// means unknown.
	GainAtMost float64 `json:"gain_at_most,omitempty"`
}

// String returns the levels of the change, separated by semicolons.
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

// same reports whether both changes have the same levels.
func (c Change) same(other Change) bool { return c.String() == other.String() }

// answer sets the class and GainAtMost of the change to those of the first cause that has one of the classes.
func (c *Change) answer(causes []diagnosis.Cause, classes []string) {
	for _, cause := range causes {
		if slices.Contains(classes, cause.Class) {
			c.Class = cause.Class
			c.GainAtMost = cause.GainAtMost
			return
		}
	}
}

// excludes reports whether both changes set the same factor, so that only one of them can be made.
func (c Change) excludes(other Change) bool {
	for name := range c.Levels {
		_, both := other.Levels[name]
		if both {
			return true
		}
	}
	return false
}

// Set contains changes that are made together.
type Set []Change

// Patch returns the levels of all changes.
func (s Set) Patch() factor.Cell {
	levels := factor.Cell{}
	for _, c := range s {
		maps.Copy(levels, c.Levels)
	}
	return levels
}

// Key returns a string that identifies the set, for use as a map key.
func (s Set) Key() string { return s.Patch().Key() }

// String returns the changes of the set, or "as found" for an empty one.
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

func (s Set) without(c Change) Set { return slices.DeleteFunc(slices.Clone(s), c.same) }

// allows reports whether a change can be made together with the set.
func (s Set) allows(c Change) bool { return !slices.ContainsFunc(s, c.excludes) }
