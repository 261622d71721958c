// Package factor declares what a plan may vary: each factor's name, unit and meaning, its levels and their
// words, where it means something, and what it identifies. Plans, orders, settings, labels, comparisons and
// reports are derived from the declarations. It is pure, and measures, computes and prints nothing.
//
// The factors of every plan are declared here. Knobs and engines declare theirs where they are defined; a
// Catalogue lists all.
package factor

import (
	"encoding/json"
	"iter"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Cell is one combination of levels: a factor's name → its level in canonical text. Every base factor is
// present, also where it has its default. Who asks for a level does so by a Name or a Catalogue.
type Cell map[string]string

// Key is the stable identity of a cell: "name=value" pairs sorted by name.
func (c Cell) Key() string {
	var b strings.Builder
	for i, n := range c.Names() {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(n + "=" + c[n])
	}
	return b.String()
}

// Names lists the names of a cell's factors, sorted.
func (c Cell) Names() []string {
	names := make([]string, 0, len(c))
	for n := range c {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Renamed is the present name of a factor that had another one in earlier versions.
func Renamed(name string) (now string, ok bool) {
	if name == "udp_trains" {
		return string(UDPGSO), true
	}
	return name, false
}

// UnmarshalJSON reads a stored cell, with the present names of its factors.
func (c *Cell) UnmarshalJSON(data []byte) error {
	var levels map[string]string
	if err := json.Unmarshal(data, &levels); err != nil || levels == nil {
		return err
	}
	*c = make(Cell, len(levels))
	for name, level := range levels {
		now, _ := Renamed(name)
		(*c)[now] = level
	}
	return nil
}

// Clone returns an independent copy.
func (c Cell) Clone() Cell {
	clone := make(Cell, len(c))
	for k, v := range c {
		clone[k] = v
	}
	return clone
}

// PacketSizes are the IP lengths of a cell's UDP packets, which each flow repeats in this order; nil where
// the cell names none.
func (c Cell) PacketSizes() []int {
	if PacketSize.Is(c, IMIX) {
		return IMIXSizes(IP.Of(c))
	}
	if n := PacketSize.Number(c); n > 0 {
		return []int{n}
	}
	return nil
}

// Name is the name of a factor, and gives typed access to its level in a cell.
type Name string

// Of is the factor's level, "" where the cell has none.
func (n Name) Of(c Cell) string { return c[string(n)] }

// In says whether the cell has a level of the factor.
func (n Name) In(c Cell) bool { _, ok := c[string(n)]; return ok }

// Is says whether the factor has one of these levels.
func (n Name) Is(c Cell, levels ...string) bool { return slices.Contains(levels, n.Of(c)) }

// Number is the level as a whole number, 0 where the cell has none or it is none.
func (n Name) Number(c Cell) int {
	v, _ := strconv.Atoi(n.Of(c))
	return v
}

// Set gives the cell a level of the factor; "" takes it away.
func (n Name) Set(c Cell, level string) {
	if c[string(n)] = level; level == "" {
		delete(c, string(n))
	}
}

// With returns a copy of the cell with another level of the factor; "" is without.
func (n Name) With(c Cell, level string) Cell {
	c = c.Clone()
	n.Set(c, level)
	return c
}

// At is the factor's level at a place, "node.port", "node" or "", as far as the cell names that place.
func (n Name) At(c Cell, place string) (level string, ok bool) {
	if place != "" {
		place = "@" + place
	}
	level, ok = c[string(n)+place]
	return level, ok
}

// Each goes over the factor's levels in the cell: that without a place, whose place is "", and those at
// places, in a stable order.
func (n Name) Each(c Cell) iter.Seq2[string, string] {
	return func(yield func(place, level string) bool) {
		for _, name := range c.Names() {
			if plain, place := Split(name); plain == string(n) && !yield(place, c[name]) {
				return
			}
		}
	}
}

// Split takes the place off a written name.
func Split(name string) (plain, place string) {
	plain, place, _ = strings.Cut(name, "@")
	return plain, place
}

// Host is the place of the machine that carries the lab, and the name of that node.
const Host = "host"
