// Package factor declares what a plan may vary: the name, unit and meaning of each factor, its levels, where
// it applies, and what it identifies. Plans, the order of trials, settings, labels, comparisons and reports
// are derived from these declarations. The package does not measure, read or print anything.
//
// This package declares the factors of every plan. Knobs and engines declare their factors where they are
// defined. A Catalogue lists all factors.
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

// Cell is one combination of levels. It maps the name of a factor to the canonical text of its level.
// Every base factor is present, even at its default. Use a Name or a Catalogue to read a level.
type Cell map[string]string

// Key returns the stable identity of a cell: "name=value" pairs sorted by name.
func (c Cell) Key() string {
	pairs := c.Names()
	for i, n := range pairs {
		pairs[i] = n + "=" + c[n]
	}
	return strings.Join(pairs, " ")
}

// idBytes is the length of an id. Among two million runs with a thousand cells each, about one contains two
// cells with the same id.
const idBytes = 5

// ID returns the first ten hexadecimal digits of the SHA-256 of Key, for scripts. Cells with the same
// factors have the same ID in every run and version.
func (c Cell) ID() string {
	sum := sha256.Sum256([]byte(c.Key()))
	return hex.EncodeToString(sum[:idBytes])
}

// Has reports whether the cell has all the given levels.
func (c Cell) Has(levels map[string]string) bool {
	for name, level := range levels {
		if c[name] != level {
			return false
		}
	}
	return true
}

// Meets reports whether the cell's levels equal the given baseline levels (see Same).
func (c Cell) Meets(baseline Cell) bool {
	for name, level := range baseline {
		if !Same(c[name], level) {
			return false
		}
	}
	return true
}

// Names lists the names of the cell's factors, sorted.
func (c Cell) Names() []string { return slices.Sorted(maps.Keys(c)) }

// Clone returns an independent copy.
func (c Cell) Clone() Cell {
	clone := make(Cell, len(c))
	maps.Copy(clone, c)
	return clone
}

// PacketSizes returns the lengths in bytes of the IP packets of the cell's UDP flows. Each flow repeats
// the sequence. PacketSizes returns nil if the cell has no packet size.
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

// Of returns the factor's level, or "" if the cell has none.
func (n Name) Of(c Cell) string { return c[string(n)] }

// In reports whether the cell has a level of the factor.
func (n Name) In(c Cell) bool { _, ok := c[string(n)]; return ok }

// Is reports whether the factor has one of these levels.
func (n Name) Is(c Cell, levels ...string) bool { return slices.Contains(levels, n.Of(c)) }

// Number returns the level as an integer, or 0 if the cell has no level of the factor or the level is not
// an integer.
func (n Name) Number(c Cell) int {
	v, _ := strconv.Atoi(n.Of(c))
	return v
}

// Bitrate returns the level in bit/s, or 0 if the cell has no level of the factor or the level is a word
// or a share.
func (n Name) Bitrate(c Cell) float64 { return Bitrate(n.Of(c)) }

// PacketRate returns the level in packets or connections per second, or 0 if the cell has no level of the
// factor.
func (n Name) PacketRate(c Cell) float64 {
	rate, _ := unit.ParsePacketRate(n.Of(c))
	return float64(rate)
}

// Set sets the factor's level in the cell. An empty level removes the factor.
func (n Name) Set(c Cell, level string) {
	if c[string(n)] = level; level == "" {
		delete(c, string(n))
	}
}

// With returns a copy of the cell with another level of the factor. An empty level removes the factor.
func (n Name) With(c Cell, level string) Cell {
	c = c.Clone()
	n.Set(c, level)
	return c
}

// At returns the level that the cell sets at exactly this place: "node.port", "node" or "".
func (n Name) At(c Cell, place string) (level string, ok bool) {
	if place != "" {
		place = "@" + place
	}

	level, ok = c[string(n)+place]
	return level, ok
}

// Each iterates over the places and levels of the factor in the cell, in a stable order. The level without
// a place comes first, with place "".
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

// Split splits a name in a plan into factor and place.
func Split(name string) (plain, place string) {
	plain, place, _ = strings.Cut(name, "@")
	return plain, place
}

// Host is the place and node name of the machine that runs the lab.
const Host = "host"

// IMIX is the level of packet_size and frame_size that means a repeating mix of packet sizes.
const IMIX = "imix"

// IMIXSizes returns one round of IMIX_v4_1 of FD.io CSIT, as lengths of IP packets in bytes. Of twelve
// Ethernet frames, seven have 64 bytes, four have 570 and one has 1518. With IPv6, the small frames have
// 84 bytes, the minimum for a packet with our header (CSIT uses 78). The sizes are spread evenly over the
// round.
func IMIXSizes(ip string) []int {
	const ethernet, middle, large = 18, 570 - 18, 1518 - 18
	small := 64 - ethernet
	if ip == "6" {
		small = 84 - ethernet
	}

	return []int{small, middle, small, small, middle, small, large, middle, small, small, middle, small}
}
