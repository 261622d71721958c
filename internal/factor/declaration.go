package factor

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Kind is the part of a measurement to which a factor belongs.
type Kind int

// Kinds. Cells that differ only in loads share a path: their packets pass the same devices with the same
// settings, so that it is verified, and measured idle, once.
const (
	Setting  Kind = iota // of a node, made by a knob
	Path                 // what carries the traffic
	Load                 // what is sent over a path
	Activity             // the load generator, which sends it
)

// Places determine where a plan may put a factor.
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
	EveryNode                // every node of the lab
	Carrier                  // the machine that carries the lab, for any place
	FirstOfWAN               // the first device under test, at its WAN port
	BothEnds                 // the nodes between which traffic runs
	WANLink                  // both ends of the first device under test's WAN link, then all others
)

// Without is the level of a factor that means "without it", and the text for a comparison with that level.
type Without struct{ Level, Words string }

// Declaration describes a factor. Only Name, Doc and Parse are required.
type Declaration struct {
	Name string
	Unit string // for people: what a level counts, or which words are possible
	Doc  string // one sentence: what a level means
	Kind Kind

	// Default is the level in a cell that does not name the factor. If Derive is not nil, it computes the
	// level from the other levels instead. Both apply only to base factors.
	Default string
	Derive  func(Cell) string

	Base bool // present in every cell in which it has a meaning
	Hard bool // hard to change: forms outer blocks

	// Levels lists all levels of a closed set, for hints; Parse checks.
	Levels []string
	// Sets maps names that a plan may write to several levels.
	Sets map[string][]string
	// Parse returns the canonical text of a level, or an error that lists what is allowed; an error may have
	// a Hint() string.
	Parse func(text string) (string, error)

	// Applies reports whether the factor has a meaning with the other levels of the cell, or why not: then it
	// is dropped. nil: always.
	Applies func(Cell) (ok bool, why string)
	// Needs is like Applies, for conditions on the lab and the place: "node", "node.port", or "" if the plan
	// names none. A Catalogue derives Applies from it; only one of the two may be set.
	Needs func(s Shape, place string) (ok bool, why string)
	// Conflict returns the reason why a complete cell cannot exist, or "". nil: never.
	Conflict func(Cell) string
	// Refuses is like Conflict, for conditions on the lab.
	Refuses func(Shape, Cell) string

	Placed Places // where a plan may put it
	// Param returns the member of a family (a name that ends in a colon) for the part after the colon.
	Param func(param string) (Declaration, bool)
	// Target selects the nodes of a setting without a place, made by the knob with the factor's name or by
	// Knob, with the level or the result of Value; "" from Value means no setting.
	Target Target
	Knob   string
	Value  func(level string) string
	// PinsEnds: at an end of the traffic, a level selects the CPUs of the load generator there, and is not a
	// setting.
	PinsEnds bool
	// OnCarrier is set if, placed at the machine that carries the lab, this is a setting of that machine, not
	// of the routers on it.
	OnCarrier bool

	// Policy marks a factor that sets how much the router must carry, or that is itself being tested:
	// removing it would not be tuning. Tunable marks one that is not a setting but may hold traffic back in a
	// plan that contains it.
	Policy, Tunable bool

	// Without, if not nil, is the level with which others are compared.
	Without *Without
	// Follow lists factors whose level follows from this one's: a comparison need not keep them equal.
	Follow []Name
	// Dependent factors exist only with certain levels of others. The presence of such a factor has no
	// meaning by itself.
	Dependent bool
	// Says names the factor that, if given, implies this one.
	Says Name
	// Scales: more of it (streams, tunnels, CPUs) may give more throughput.
	Scales bool

	// Rank is the position among the factors in titles and labels, from 1; those with 0 follow by name.
	// Leading ones come first in a label.
	Rank    int
	Leading bool
	Quiet   bool // omitted if no factor varies, although it is leading
	// Short describes a level in a label, such as "1 stream", and Long in a sentence, such as "1500-byte
	// packets". nil: Long is Short, and Short is "name level", with the level as returned by Plain, which
	// omits defaults.
	Short, Long, Plain func(level string) string

	labels map[string]string // for levels, from the plan
}

// usual lists the words for a level that nobody set.
var usual = [...]string{"", "default", "off", "none"}

// AtBaseline reports whether a level is that of Without.
func (d Declaration) AtBaseline(level string) bool {
	return d.Without != nil && Same(level, d.Without.Level)
}

// Same reports whether a level equals a baseline. If the baseline is "", all words for "nothing set" are
// equal to it. Zero is not one of them, nor, for a setting whose level is "default", are "off" and "none":
// those are values.
func Same(level, baseline string) bool {
	return level == baseline || baseline == "default" && level == "" ||
		baseline == "" && slices.Contains(usual[:], level)
}

// Label describes a level in a label.
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

// Words describes a level for use in a sentence.
func (d Declaration) Words(level string) string {
	if d.Long != nil && d.labels[level] == "" {
		return d.Long(level)
	}
	return d.Label(level)
}

// Catalogue lists the factors that plans may use, in display order, in which defaults are also filled in. If
// two have the same name, the second is the one for a place. A nil Catalogue has the factors declared by this
// package.
type Catalogue struct {
	Factors []Declaration
	Shapes  []Shape // of labs; the first is the default

	labels map[string]map[string]string
}

// Labelled returns the catalogue with a plan's labels for levels: factor → level → label.
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

// Equal reports whether two catalogues are the same object.
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

// Lookup finds a factor by its name in a plan, which may be placed ("queue@router.wan") or parametrised
// ("sysctl:net.ipv4.tcp_rmem@client"); the Declaration returned carries the whole name. A name with a place
// that exists in no lab is unknown; if it exists in some, the factor has no meaning in the others.
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

// Check refuses a cell with an unknown factor, or with a level that its factor does not have, as a later
// version may have stored.
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

// within restricts a factor to the labs that have the place.
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

// Of returns the declaration for a name in a cell, whatever its place; an unknown one, such as that of a run
// stored by a later version, is a setting without further meaning. Its Name is the whole name.
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

// Sort sorts names into the order in which people list the settings of a path.
func (c *Catalogue) Sort(names []string) {
	rank := map[string]int{}
	for _, n := range names {
		rank[n] = cmp.Or(c.Of(n).Rank, 1<<30)
	}

	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(a, b))
	})
}

// Position returns the index of a knob's factor in the catalogue, which determines the order of settings.
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
