package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// cipherSection shows which cipher suits the CPU.
func cipherSection(v *view, s *Section) {
	s.Lead = "Rates are those of the cipher alone: a VPN also moves the packets, and is slower. Figures of " +
		"different libraries say nothing about each other."
	for _, n := range v.Ciphers {
		s.add(cipherFacts(n), List{Title: "Advice", Items: adviceItems(n)})
		s.list("What of the CPU's time in a tunnel is its cipher", shareItems(n))
	}

	for _, library := range cipher.Libraries() {
		blocks, by := grouped(v.ofLibrary(library), func(c *analysis.Cell) string {
			return cipher.BlockFactor.Of(c.Factors)
		})
		slices.SortFunc(blocks, func(a, b string) int { // largest first, and last the cells without a size
			// Block sizes are numbers without leading zeros, so a longer text is a larger number.
			return cmp.Or(len(b)-len(a), strings.Compare(b, a))
		})
		for _, block := range blocks {
			cells := by[block]
			metric := metrics.CipherRate
			what := "blocks of " + block + " bytes"
			id := block
			if block == "" {
				metric = metrics.CipherOps
				what = "keys"
				id = "keys"
			}

			if with(cells, metric) {
				chart := Section{ID: "ciphers-" + library + "-" + id}
				chart.addBars(v, cells, metric, "Library "+library+", "+what)
				s.add(chart.Blocks...)
			}
		}
	}
}

// libraryOf returns the cryptographic library that a cell measures, or "" if the cell measures no cipher.
func libraryOf(c *analysis.Cell) string {
	if !enciphered(c) {
		return ""
	}
	return cipher.LibraryFactor.Of(c.Factors)
}

// ofLibrary returns the cells of a library or, if it is "", the cells that measure no cipher.
func (v *view) ofLibrary(library string) []*analysis.Cell {
	return v.cells(func(c *analysis.Cell) bool { return libraryOf(c) == library })
}

func cipherFacts(n analysis.CipherNode) Facts {
	f := Facts{
		Title: "The CPU of " + n.Node,
		Items: given("CPU", cmp.Or(n.CPU.Model, "not named")+", "+
			unit.Count(n.CPU.Threads, "thread")),
	}
	for _, k := range n.CPU.Features {
		has := Fact{Name: "Instructions: " + k.Name, Value: strings.Join(k.Flags, " ")}
		if has.Value == "" {
			has.Missing = "the kernel reports none"
		}

		f.Items = append(f.Items, has)
	}

	f.Items = append(f.Items, Fact{Name: "Clock", Value: n.CPU.ClockFrom})
	for _, library := range sortedKeys(n.Versions) {
		f.Items = append(f.Items, Fact{Name: "Library " + library, Value: n.Versions[library]})
	}

	return f
}

func adviceItems(n analysis.CipherNode) []Item {
	return each(n.Advice, func(a ciphers.Advice) Item {
		return Item{Kind: strings.TrimSpace(a.Kind + " " + a.Library), Text: a.Text}
	})
}

func shareItems(n analysis.CipherNode) []Item {
	return each(n.Shares, func(s analysis.CipherShare) Item { return Item{Kind: s.Label, Text: s.Text} })
}

// cipherLines returns the content of cipherSection as lines, for output without sections.
func cipherLines(v *view) []Item {
	var out []Item
	for _, n := range v.Ciphers {
		facts := each(cipherFacts(n).Items, func(f Fact) string {
			return f.Name + ": " + cmp.Or(f.Value, f.Missing)
		})
		out = slices.Concat(out, items(n.Node, Plain, strings.Join(facts, "; ")), adviceItems(n),
			shareItems(n))
	}
	return out
}
