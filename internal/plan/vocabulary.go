package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Vocabulary is what a plan may speak of. Factor finds a factor by the name written in a plan, which may be
// placed ("queue@router.wan") or parametrised ("sysctl:net.ipv4.tcp_rmem@client"); the Factor it returns
// carries that whole name. Names lists the plain names, families with their colon, in the order in which
// they are shown and in which defaults are filled in.
type Vocabulary interface {
	Factor(name string) (Factor, bool)
	Names() []string
}

// MetricNames is an optional part of a Vocabulary: the full names of the metrics that a threshold may speak
// of. Without it any well-formed name that ends in a known unit is taken.
type MetricNames interface {
	MetricNames() []string
}

// Factor is something that a plan may vary.
type Factor struct {
	Name string
	Unit string // for people, such as "bytes"; may be empty
	Doc  string // one sentence: what a level means

	// Default is the level of a cell that does not name the factor. Derive, where it is not nil, computes
	// it from the other levels instead; both are used only for base factors.
	Default string
	Derive  func(cell record.Factors) string

	Base bool // present in every cell where it means something
	Hard bool // hard to change: forms outer blocks

	// Levels are all allowed levels of a closed set, for hints; Parse judges.
	Levels []string
	// Sets are names that a plan may write for several levels.
	Sets map[string][]string
	// Parse returns the canonical text of a level, or an error that says what is allowed; an error may have
	// a Hint() string.
	Parse func(text string) (string, error)
	// Applies says whether the factor means something beside the other levels of the cell, or why not: then
	// it is dropped. nil: always.
	Applies func(cell record.Factors) (ok bool, why string)
	// AppliesAt is Applies for a factor whose meaning depends on its place: "node", "node.port", or ""
	// where the plan names none. List makes the Applies of it; only one of the two may be set.
	AppliesAt func(place string, cell record.Factors) (ok bool, why string)
	// Conflict gives the reason why a complete cell cannot exist, or "". nil: never.
	Conflict func(cell record.Factors) string

	// Placed allows "name@node" and "name@node.port".
	Placed bool
	// Param makes the factor of a family (a name that ends in a colon) for what follows the colon.
	Param func(param string) (Factor, bool)
}

// List is a Vocabulary made of factors: it resolves placed and parametrised names, so that a caller only
// lists them. Places, where it is not nil, gives the topologies that have a place: a name with a place that
// none has is unknown, and in the other topologies the factor means nothing.
type List struct {
	Factors []Factor
	Places  func(place string) (topologies []string)
}

var placeForm = regexp.MustCompile(`^[a-z][a-z0-9-]*(\.[a-z][a-z0-9-]*)?$`)

// Names implements Vocabulary.
func (l List) Names() []string {
	names := make([]string, len(l.Factors))
	for i, f := range l.Factors {
		names[i] = f.Name
	}
	return names
}

// Factor implements Vocabulary.
func (l List) Factor(name string) (Factor, bool) {
	plain, place, placed := strings.Cut(name, "@")
	f, ok := l.plain(plain)
	if !ok {
		return Factor{}, false
	}
	f.Name = name
	if at := f.AppliesAt; at != nil {
		f.Applies = func(c record.Factors) (bool, string) { return at(place, c) }
	}
	if !placed {
		return f, true
	}
	if !f.Placed || !placeForm.MatchString(place) {
		return Factor{}, false
	}
	f.Base = false // a default is never placed
	if l.Places == nil {
		return f, true
	}
	topologies := l.Places(place)
	f.Applies = within(topologies, place, f.Applies)
	return f, len(topologies) > 0
}

// within narrows applies to the topologies that have the place.
func within(topologies []string, place string, applies func(record.Factors) (bool,
	string)) func(record.Factors) (bool, string) {
	return func(c record.Factors) (bool, string) {
		if !slices.Contains(topologies, c["topology"]) {
			return false, fmt.Sprintf("topology %s has no %s", c["topology"], place)
		}
		if applies == nil {
			return true, ""
		}
		return applies(c)
	}
}

func (l List) plain(name string) (Factor, bool) {
	family, param, parametrised := strings.Cut(name, ":")
	for _, f := range l.Factors {
		switch {
		case !parametrised && f.Name == name && f.Param == nil:
			return f, true
		case parametrised && f.Name == family+":" && f.Param != nil && param != "":
			p, ok := f.Param(param)
			p.Placed = f.Placed
			return p, ok
		}
	}
	return Factor{}, false
}

// Merge returns the vocabulary of both, a's factors first.
func (l List) Merge(factors ...Factor) List {
	l.Factors = append(append([]Factor(nil), l.Factors...), factors...)
	return l
}
