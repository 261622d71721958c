package factor

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Kind tells which part of a measurement a factor is.
type Kind int

// Kinds. Cells that differ in loads alone share a path: their packets pass the same devices with the same
// settings, so that it is verified, and measured idle, once.
const (
	Setting  Kind = iota // a node's, made by a knob
	Path                 // what carries the traffic
	Load                 // what is sent over a path
	Activity             // who sends it: the load generator
)

// Places tell where a plan may put a factor.
type Places int

// Placed allows "name@node" and "name@node.port", and OnHost the machine that carries the lab.
const (
	Placed Places = 1 << iota
	OnHost
)

// Target selects the nodes of a setting without a place.
type Target int

// Targets.
const (
	Routers    Target = iota // every device under test
	EveryNode                // of the lab
	Carrier                  // the machine that carries the lab, whatever the place
	FirstOfWAN               // the first device under test, at its WAN port
	BothEnds                 // the nodes between which traffic runs
	WANLink                  // both ends of the first device under test's WAN link, then all others
)

// Without is the level of a factor that stands for "without it", and the words for a comparison with that.
type Without struct{ Level, Words string }

// Declaration is everything that is known of a factor. Only Name, Doc and Parse must be given.
type Declaration struct {
	Name string
	Unit string // for people: what a level is a number of, or which words it may be
	Doc  string // one sentence: what a level means
	Kind Kind

	// Default is the level of a cell that does not name the factor. Derive, where it is not nil, computes
	// it from the other levels instead; both are used only for base factors.
	Default string
	Derive  func(Cell) string

	Base bool // present in every cell where it means something
	Hard bool // hard to change: forms outer blocks

	// Levels are all allowed levels of a closed set, for hints; Parse checks.
	Levels []string
	// Sets are names that a plan may write for several levels.
	Sets map[string][]string
	// Parse returns the canonical text of a level, or an error that says what is allowed; an error may have
	// a Hint() string.
	Parse func(text string) (string, error)

	// Applies says whether the factor means something beside the other levels of the cell, or why not: then
	// it is dropped. nil: always.
	Applies func(Cell) (ok bool, why string)
	// Needs is Applies for what depends on the lab and the place: "node", "node.port", or "" where the plan
	// names none. A Catalogue makes the Applies of it; only one of the two may be set.
	Needs func(s Shape, place string) (ok bool, why string)
	// Conflict gives the reason why a complete cell cannot exist, or "". nil: never.
	Conflict func(Cell) string
	// Refuses is Conflict for what depends on the lab.
	Refuses func(Shape, Cell) string

	Placed Places // where a plan may put it
	// Param makes the factor of a family (a name that ends in a colon) for what follows the colon.
	Param func(param string) (Declaration, bool)
	// Target selects the nodes where a setting without a place is made, by the knob of the factor's name or
	// of Knob, with the level or what Value makes of it; a Value of "" is no setting.
	Target Target
	Knob   string
	Value  func(level string) string
	// PinsEnds: at an end of the traffic a level says which CPUs the load generator runs on there, and is no
	// setting.
	PinsEnds bool
	// OnCarrier: placed at the machine that carries the lab, it is a setting of that, and not of the routers
	// which it carries.
	OnCarrier bool

	// Policy says how much the router is to carry, or is what is put to the test: to take it away tunes
	// nothing.
	// Tunable is of what is no setting, and may still be what holds traffic back in a plan that gives it.
	Policy, Tunable bool

	// Without, where it is not nil, is what other levels are compared with.
	Without *Without
	// Follow are factors whose level follows from this one's: a comparison need not hold them equal.
	Follow []Name
	// Dependent factors exist only beside certain levels of others: their presence alone is no news.
	Dependent bool
	// Says is the factor that, where it is given, says the same as this one.
	Says Name
	// Scales: of more of it, more throughput may be expected (streams, tunnels, CPUs).
	Scales bool

	// Rank is the place among the factors in titles and labels, from 1; those of 0 follow by name. Leading
	// ones come first in a label.
	Rank    int
	Leading bool
	Quiet   bool // not said, though leading, where no factor varies
	// Short says a level in a label, such as "1 stream", and Long in a sentence, such as "1500-byte
	// packets". nil: Long is Short, and Short is "name level", with the level as Plain has it: without what
	// is said by default.
	Short, Long, Plain func(level string) string

	labels map[string]string // of levels, that the plan gives
}

// usual are the words that stand for a level that nobody set.
var usual = [...]string{"", "default", "off", "none"}

// AtBaseline reports whether a level is that of Without.
func (d Declaration) AtBaseline(level string) bool {
	return d.Without != nil && Same(level, d.Without.Level)
}

// Same reports whether a level is the one of a baseline. Where that is "", the words for "nothing set" are
// alike. Zero is none of them, and of a setting whose level is "default" nor are "off" and "none": those
// are values.
func Same(level, baseline string) bool {
	return level == baseline || baseline == "default" && level == "" ||
		baseline == "" && slices.Contains(usual[:], level)
}

// Label says a level in a label.
func (d Declaration) Label(level string) string {
	switch {
	case d.labels[level] != "":
		return d.labels[level]
	case d.Short != nil:
		return d.Short(level)
	case d.Plain != nil:
		level = d.Plain(level)
	}
	return d.Name + " " + level
}

// Words says a level the way people do.
func (d Declaration) Words(level string) string {
	if d.Long != nil && d.labels[level] == "" {
		return d.Long(level)
	}
	return d.Label(level)
}

// Catalogue lists the factors that plans may speak of, in the order in which they are shown and in which
// defaults are filled in. Of two that have the same name the second is the one at a place. A nil Catalogue
// has the factors that this package declares.
type Catalogue struct {
	Factors []Declaration
	Shapes  []Shape // of labs; the first is the default

	labels map[string]map[string]string
}

// Labelled is the catalogue with the labels that a plan gives to levels: factor → level → label.
func (c *Catalogue) Labelled(labels map[string]map[string]string) *Catalogue {
	if len(labels) == 0 {
		return c
	}

	of := &Catalogue{Factors: c.all(), labels: labels}
	if c != nil {
		of.Shapes = c.Shapes
	}

	return of
}

// Equal reports whether two catalogues are the same one.
func (c *Catalogue) Equal(other *Catalogue) bool { return c == other }

// Names lists the plain names, families with their colon, each once.
func (c *Catalogue) Names() []string {
	var names []string
	for _, d := range c.all() {
		if !slices.Contains(names, d.Name) {
			names = append(names, d.Name)
		}
	}
	return names
}

// Shape finds a lab's shape by its name.
func (c *Catalogue) Shape(name string) (Shape, bool) {
	if c != nil {
		for _, s := range c.Shapes {
			if s.Name == name {
				return s, true
			}
		}
	}
	return Shape{}, false
}

func (c *Catalogue) all() []Declaration {
	if c == nil {
		return Base(Options{})
	}
	return c.Factors
}

// Places lists the nodes and ports of the labs of these topologies, each once.
func (c *Catalogue) Places(topologies ...string) []string {
	var out []string
	add := func(place string) {
		if !slices.Contains(out, place) {
			out = append(out, place)
		}
	}
	for _, s := range c.Shapes {
		if !slices.Contains(topologies, s.Name) {
			continue
		}

		for _, n := range s.Nodes {
			add(n.Name)
			for _, p := range s.Ports(n.Name) {
				add(p.Node + "." + p.Port)
			}
		}
	}

	return out
}

var placeForm = regexp.MustCompile(`^[a-z][a-z0-9-]*(\.[a-z][a-z0-9-]*)?$`)

// Lookup finds a factor by the name written in a plan, which may be placed ("queue@router.wan") or
// parametrised ("sysctl:net.ipv4.tcp_rmem@client"); the Declaration that it returns carries that whole
// name. A name with a place that no lab has is unknown, and in the other labs the factor means nothing.
func (c *Catalogue) Lookup(name string) (Declaration, bool) {
	plain, place := Split(name)
	placed := plain != name
	d, ok := c.plain(plain, placed)
	switch {
	case !ok, placed && !placeForm.MatchString(place),
		placed && place == Host && d.Placed&OnHost == 0, placed && place != Host && d.Placed&Placed == 0:
		return Declaration{}, false
	}

	d.Name = name
	d.Base = d.Base && !placed // a default is never placed
	if placed && !slices.ContainsFunc(c.Shapes, func(s Shape) bool { return s.has(place) }) {
		return Declaration{}, false
	}

	if placed || d.Needs != nil {
		d.Applies = c.within(place, d)
	}

	refuses := d.Refuses
	if refuses != nil {
		d.Conflict = func(cell Cell) string {
			s, _ := c.Shape(Topology.Of(cell))
			return refuses(s, cell)
		}
	}

	return d, true
}

// Check refuses a cell with a factor that is unknown, or with a level that its factor does not have, as one
// stored by a later version may be.
func (c *Catalogue) Check(cell Cell) error {
	for _, name := range cell.Names() {
		d, ok := c.Lookup(name)
		if !ok {
			return fmt.Errorf("there is no factor %s", name)
		}

		if _, err := d.Parse(cell[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// within narrows where a factor means something to the labs that have the place.
func (c *Catalogue) within(place string, d Declaration) func(Cell) (bool, string) {
	return func(cell Cell) (bool, string) {
		s, ok := c.Shape(Topology.Of(cell))
		switch {
		case !ok:
			return false, fmt.Sprintf("there is no topology %s", Topology.Of(cell))
		case place != "" && !s.has(place):
			return false, fmt.Sprintf("topology %s has no %s", s.Name, place)
		case d.Needs != nil:
			return d.Needs(s, place)
		case d.Applies != nil:
			return d.Applies(cell)
		}
		return true, ""
	}
}

func (c *Catalogue) plain(name string, placed bool) (found Declaration, ok bool) {
	family, param, parametrised := strings.Cut(name, ":")
	for _, d := range c.all() {
		switch {
		case !parametrised && d.Name == name && d.Param == nil:
			if found, ok = d, true; !placed {
				return found, true
			}
		case parametrised && d.Name == family+":" && d.Param != nil && param != "":
			return d.Param(param)
		}
	}
	return found, ok
}

// Of is the declaration of a name that a cell has, whatever its place; one that is not known, such as that
// of a stored run by a later version, is a setting without any further meaning. Its Name is the whole one.
func (c *Catalogue) Of(name string) Declaration {
	plain, place := Split(name)
	d, ok := c.plain(plain, place != "")
	if !ok {
		d = Declaration{}
	}

	d.Name = name
	if c != nil {
		d.labels = c.labels[name]
	}

	_, param, isFamily := strings.Cut(name, ":")
	if isFamily && d.Without != nil {
		d.Without = &Without{d.Without.Level, d.Without.Words + " " + param}
	}

	return d
}

// Sort puts names in the order in which people name the settings of a path.
func (c *Catalogue) Sort(names []string) {
	rank := map[string]int{}
	for _, n := range names {
		rank[n] = cmp.Or(c.Of(n).Rank, 1<<30)
	}

	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(a, b))
	})
}

// Position returns the index of a knob's factor in the catalogue: settings are made in this order.
func (c *Catalogue) Position(knob string) int {
	family, _, isFamily := strings.Cut(knob, ":")
	if isFamily {
		family += ":"
	}

	for i, d := range slices.Backward(c.all()) {
		if d.Name == family {
			return i
		}
	}

	return -1
}

// Loads lists those factors of the cells that describe what is sent over a path, sorted.
func (c *Catalogue) Loads(cells []Cell) []string {
	loads := map[string]bool{}
	for _, cell := range cells {
		for n := range cell {
			k := c.Of(n).Kind
			if k == Load || k == Activity {
				loads[n] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(loads))
}
