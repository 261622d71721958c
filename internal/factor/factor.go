// Package factor declares what a plan may vary: each factor's name, unit and meaning, its levels and their
// words, where it has a meaning, and what it identifies. Plans, orders, settings, labels, comparisons and
// reports are derived from the declarations. It is pure, and measures, computes and prints nothing.
//
// The factors of every plan are declared here. Knobs and engines declare theirs where they are defined; a
// Catalogue lists all.
package factor

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Cell is one combination of levels: a factor's name → its level in canonical text. Every base factor is
// present, even at its default. Use a Name or a Catalogue to read a level.
type Cell map[string]string

// Key returns the stable identity of a cell: "name=value" pairs sorted by name.
func (c Cell) Key() string {
	pairs := c.Names()
	for i, n := range pairs {
		pairs[i] = n + "=" + c[n]
	}
	return strings.Join(pairs, " ")
}

// idBytes is the length of an id: with a thousand cells, two share one in a run in two million.
const idBytes = 5

// ID is Key as ten hexadecimal digits, the first of its SHA-256, for scripts: cells of the same factors have
// the same in every run and version.
func (c Cell) ID() string {
	sum := sha256.Sum256([]byte(c.Key()))
	return hex.EncodeToString(sum[:idBytes])
}

// Has reports whether the cell has all of these levels.
func (c Cell) Has(levels map[string]string) bool {
	for name, level := range levels {
		if c[name] != level {
			return false
		}
	}
	return true
}

// Names lists the names of a cell's factors, sorted.
func (c Cell) Names() []string { return slices.Sorted(maps.Keys(c)) }

// Clone returns an independent copy.
func (c Cell) Clone() Cell {
	clone := make(Cell, len(c))
	maps.Copy(clone, c)
	return clone
}

// PacketSizes returns the IP lengths of a cell's UDP packets, which each flow repeats in this order; nil if
// the cell names none.
func (c Cell) PacketSizes() []int {
	if PacketSize.Is(c, IMIX) {
		return IMIXSizes(IP.Of(c))
	}

	n := PacketSize.Number(c)
	if n > 0 {
		return []int{n}
	}

	return nil
}

// Name is the name of a factor, with typed access to its level in a cell.
type Name string

// Of returns the factor's level, "" if the cell has none.
func (n Name) Of(c Cell) string { return c[string(n)] }

// In reports whether the cell has a level of the factor.
func (n Name) In(c Cell) bool { _, ok := c[string(n)]; return ok }

// Is reports whether the factor has one of these levels.
func (n Name) Is(c Cell, levels ...string) bool { return slices.Contains(levels, n.Of(c)) }

// Number returns the level as an integer, 0 if the cell has none or it is not an integer.
func (n Name) Number(c Cell) int {
	v, _ := strconv.Atoi(n.Of(c))
	return v
}

// Bitrate returns the level as a bit rate in bit/s; 0 if the cell has none, or a word or a share.
func (n Name) Bitrate(c Cell) float64 { return Bitrate(n.Of(c)) }

// PacketRate returns the level as a rate of packets or connections per second, 0 if the cell has none.
func (n Name) PacketRate(c Cell) float64 {
	rate, _ := unit.ParsePacketRate(n.Of(c))
	return float64(rate)
}

// Set sets the cell's level of the factor; "" removes it.
func (n Name) Set(c Cell, level string) {
	if c[string(n)] = level; level == "" {
		delete(c, string(n))
	}
}

// With returns a copy of the cell with another level of the factor; "" removes it.
func (n Name) With(c Cell, level string) Cell {
	c = c.Clone()
	n.Set(c, level)
	return c
}

// At returns the factor's level at a place, "node.port", "node" or "", as far as the cell names that place.
func (n Name) At(c Cell, place string) (level string, ok bool) {
	if place != "" {
		place = "@" + place
	}

	level, ok = c[string(n)+place]
	return level, ok
}

// Each iterates over the factor's levels in the cell: first the level without a place, with place "", then
// those at places, in a stable order.
func (n Name) Each(c Cell) iter.Seq2[string, string] {
	return func(yield func(place, level string) bool) {
		for _, name := range c.Names() {
			plain, place := Split(name)
			if plain == string(n) && !yield(place, c[name]) {
				return
			}
		}
	}
}

// Split separates the place from a name in a plan.
func Split(name string) (plain, place string) {
	plain, place, _ = strings.Cut(name, "@")
	return plain, place
}

// Host is the place of the machine that carries the lab, and the name of its node.
const Host = "host"

// IMIX is the level of the factors packet_size and frame_size for packets of several sizes, in turn.
const IMIX = "imix"

// IMIXSizes returns one round of FD.io CSIT's IMIX_v4_1, as IP lengths: of twelve Ethernet frames seven have
// 64 bytes, four 570 and one 1518. The small ones of IPv6 have 84, the minimum that fits our header (CSIT's
// have 78). Sizes are spread evenly over the round.
func IMIXSizes(ip string) []int {
	const ethernet, middle, large = 18, 570 - 18, 1518 - 18
	small := 64 - ethernet
	if ip == "6" {
		small = 84 - ethernet
	}

	return []int{small, middle, small, small, middle, small, large, middle, small, small, middle, small}
}
