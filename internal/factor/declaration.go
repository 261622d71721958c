package factor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// Kind is the part of the experiment that a factor belongs to.
type Kind int

// These are the kinds of factors. Cells that differ only in factors of kind Load share a path: their packets
// pass the same devices with the same settings. The path is verified, and measured while idle, only once.
const (
	Setting  Kind = iota // a property of a node, applied by a knob
	Path                 // the path that carries the traffic
	Load                 // the traffic sent over a path
	Activity             // an activity of the load generator other than traffic
)

// Places is a set of places where a plan may apply a factor.
type Places int

// Placed allows "name@node" and "name@node.port". OnHost allows the machine that runs the lab.
const (
	Placed Places = 1 << iota
	OnHost
)

// Target selects the nodes to which a setting applies if the plan names no place.
type Target int

// Targets.
const (
	Routers    Target = iota // every device under test
	EveryNode                // every node of the lab
	Carrier                  // the machine that runs the lab, whatever place the plan names
	FirstOfWAN               // the WAN port of the first device under test
	BothEnds                 // both endpoints of the traffic
	WANLink                  // both ends of the WAN link of the first device under test, then all other nodes
)

// Without holds the level that means the absence of a factor. Words describes a comparison with this level.
type Without struct{ Level, Words string }

// Declaration describes a factor. Only Name, Doc and either Levels or Parse are required.
type Declaration struct {
	Name string
	Unit string // shown to users: the unit of a level, or the possible words
	Doc  string // shown to users: the meaning of a level, in one sentence
	Kind Kind

	// Default is the level in a cell that does not set the factor. If Derive is not nil, it computes the
	// level from the other levels instead. Both apply only to base factors.
	Default string
	Derive  func(Cell) string

	Base bool // present in every cell in which the factor has a meaning
	Hard bool // hard to change: its levels form the plan's outer blocks

	// Levels lists all levels of a closed set. If Parse is not nil, Levels is only for hints.
	Levels []string
	// Sets defines names that a plan may use in place of several levels.
	Sets map[string][]string
	// Parse returns the canonical text of a level, or an error that lists the allowed levels. The error may
	// have a method Hint() string.
	Parse func(text string) (string, error)

	// Applies reports whether the factor has a meaning with the other levels of the cell. If not, why is the
	// reason. A factor that does not apply is removed from the cell. If Applies is nil, the factor always
	// applies.
	Applies func(Cell) (ok bool, why string)
	// Needs is like Applies, for conditions on the lab and the place. place is "node", "node.port", or "" if
	// the plan names no place. A Catalogue derives Applies from Needs. Only one of the two may be set.
	Needs func(s Shape, place string) (ok bool, why string)
	// Conflict returns the reason why a complete cell is impossible, or "" if it is possible. If Conflict is
	// nil, no cell is impossible because of this factor.
	Conflict func(Cell) string
	// Refuses is like Conflict, for conditions on the lab.
	Refuses func(Shape, Cell) string

	Placed Places // places at which a plan may apply the factor
	// Param returns a member of a family of factors. The name of a family ends in a colon, and the argument
	// of Param is the part of a factor's name after the colon.
	Param func(param string) (Declaration, bool)
	// Target selects the nodes to which a setting applies if the plan names no place. The knob named Knob or,
	// if Knob is "", the knob with the factor's name applies the setting. The knob gets the level, or the
	// result of Value. If the result is "", nothing is set.
	Target Target
	Knob   string
	Value  func(level string) string
	// PinsEnds is set if the factor's level at an endpoint selects the CPUs of the load generator and is not
	// a setting of the endpoint.
	PinsEnds bool
	// OnCarrier is set if the factor, placed at the machine that runs the lab, is a setting of that machine
	// and not of the routers on it.
	OnCarrier bool

	// Policy marks a factor that determines how much work the router must do, or a function of the router
	// that is under test. Removing such a function would not count as tuning. Tunable marks a factor that is
	// not a setting but may limit the traffic of a plan that contains it.
	Policy, Tunable bool

	// Without, if not nil, is the level with which other levels are compared.
	Without *Without
	// Follow lists factors whose level depends on this one. A comparison of this factor's levels need not
	// keep them equal.
	Follow []Name
	// Dependent marks a factor that exists only with certain levels of other factors. Its presence has no
	// meaning by itself.
	Dependent bool
	// Says names a factor whose level, if given, determines the level of this factor.
	Says Name
	// Scales is set if a higher number (of streams, tunnels, CPUs) may increase throughput.
	Scales bool

	// Rank is the position among the factors in titles and labels, starting at 1. Factors with rank 0 follow,
	// sorted by name. Factors with Leading set come first in a label.
	Rank    int
	Leading bool
	Quiet   bool // omitted from labels if no factor varies, even if Leading is set
	// Short describes a level in a label, such as "1 stream". If Short is nil, the label is "name level",
	// with the level as returned by Plain, which omits defaults. Long describes a level in a sentence, such
	// as "1500-byte packets". If Long is nil, Short is used.
	Short, Long, Plain func(level string) string

	labels map[string]string // the plan's labels by level
}

// usual lists the levels that mean that a factor was not set.
var usual = [...]string{"", "default", "off", "none"}

// AtBaseline reports whether level equals the level of Without.
func (d Declaration) AtBaseline(level string) bool {
	return d.Without != nil && Same(level, d.Without.Level)
}

// Same reports whether a level equals a baseline. A baseline of "" equals every word in usual, because each
// of them means that nothing is set. A level of 0 is not among these words. A baseline of "default" does not
// equal "off" and "none", because these are values of the setting.
func Same(level, baseline string) bool {
	return level == baseline || baseline == "default" && level == "" ||
		baseline == "" && slices.Contains(usual[:], level)
}

// Label returns the text for a level in a label.
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

// Words returns the text for a level in a sentence.
func (d Declaration) Words(level string) string {
	if d.Long != nil && d.labels[level] == "" {
		return d.Long(level)
	}
	return d.Label(level)
}

// Catalogue lists the factors that plans may use, in display order. Defaults are determined in the same
// order. If two factors have the same name, the second one applies if the plan names a place. A nil Catalogue
// contains only the factors that this package declares.
type Catalogue struct {
	Factors []Declaration
	Shapes  []Shape // shapes of the labs, the default first

	labels map[string]map[string]string
}

// Labelled returns the catalogue with the labels that the plan gives to levels. labels maps each factor's
// levels to their labels.
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

// Equal reports whether c and other are the same object.
func (c *Catalogue) Equal(other *Catalogue) bool { return c == other }

// Names lists the names of the factors without places, each name once. Names of families end in a colon.
func (c *Catalogue) Names() []string {
	var names []string
	for _, d := range c.all() {
		if !slices.Contains(names, d.Name) {
			names = append(names, d.Name)
		}
	}
	return names
}

// Shape returns the shape with the given name.
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

// Places lists the nodes and ports in the shapes of these topologies, without duplicates.
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

var placeForm = check.Pattern(`^[a-z][a-z0-9-]*(\.[a-z][a-z0-9-]*)?$`)

// Lookup returns the factor with a name as used in plans. The name may include a place ("queue@router.wan")
// or a parameter ("sysctl:net.ipv4.tcp_rmem@client"), and becomes the Name of the Declaration. If no lab has
// the place, the factor is unknown. If only some labs have the place, the factor has no meaning in the other
// labs.
func (c *Catalogue) Lookup(name string) (Declaration, bool) {
	plain, place := Split(name)
	placed := plain != name
	d, ok := c.plain(plain, placed)
	switch {
	case !ok, placed && !placeForm().MatchString(place),
		placed && place == Host && d.Placed&OnHost == 0, placed && place != Host && d.Placed&Placed == 0:
		return Declaration{}, false
	}

	d.Name = name
	d.Base = d.Base && !placed // defaults apply only without a place
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

// Check returns an error if a cell contains an unknown factor or level. Cells that a later version has stored
// may contain them.
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

// within implements Applies for a factor at a place, which has a meaning only in labs that have the place.
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
		case !parametrised && d.Name == name && d.Param == nil && (placed || !ok):
			found, ok = d, true
		case parametrised && d.Name == family+":" && d.Param != nil && param != "":
			return d.Param(param)
		}
	}

	if ok && found.Parse == nil {
		found.Parse = Choice(found.Levels...)
	}

	return found, ok
}

// Of returns the declaration for a factor's name, which may include a place. If the name is unknown, for
// example in a run that a later version has stored, Of returns a setting without further properties.
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

// Sort sorts names by rank, then alphabetically.
func (c *Catalogue) Sort(names []string) {
	rank := map[string]int{}
	for _, n := range names {
		rank[n] = cmp.Or(c.Of(n).Rank, 1<<30)
	}

	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(a, b))
	})
}

// Position returns the index of the factor with a knob's name in the catalogue, or -1 if there is none. The
// index determines the order of settings.
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

// Loads returns the sorted names of the cells' factors that describe the traffic or its generator.
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
