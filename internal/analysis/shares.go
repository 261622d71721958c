package analysis

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Share is the rate of a cell as a share of another cell's rate.
type Share struct {
	Ratio float64        `json:"ratio"` // median over the common blocks
	Of    string         `json:"of"`    // such as "same without tunnel"
	Cell  record.Factors `json:"cell"`  // the other cell
}

// addShares sets the rate of each cell as a share of its baseline's rate, and of the rate with the default
// MTU. The baseline is the cell with the plan's baseline levels. If there is no such cell, the baseline is
// the cell without a tunnel or, failing that, a cell that differs in one factor.
func addShares(design *record.Design, cells []Cell, all []comparison.Comparison) {
	of := map[string][]comparison.Comparison{}
	for _, k := range all {
		of[k.Factors.Key()] = append(of[k.Factors.Key()], k)
	}

	alike := map[string][]*Cell{} // cells that differ only in the MTU, by the key of their other factors
	for i := range cells {
		key := factor.MTU.With(cells[i].Factors, "").Key()
		alike[key] = append(alike[key], &cells[i])
	}

	for i := range cells {
		cell := &cells[i]
		rank := 0
		for _, k := range of[cell.Factors.Key()] {
			switch r := baselineRank(design, k); {
			case k.Metric != metrics.RateOf(cell.Factors):
			case ofMTU(k.Factors, k.Against):
				cell.OfDefaultMTU = shareOf(k)
			case r > rank:
				rank = r
				cell.OfBaseline = shareOf(k)
			}
		}

		others := alike[factor.MTU.With(cell.Factors, "").Key()]
		if len(others) > 1 && factor.MTU.In(cell.Factors) {
			cell.OfDefaultMTU = shareOfMTU(design.Catalogue, cell, others)
		}
	}
}

func shareOf(k comparison.Comparison) *Share {
	return &Share{k.Ratio, strings.TrimPrefix(k.Name, "of the "), k.Against}
}

// baselineRank rates how well the other cell of a comparison serves as a baseline. Higher is better, and 0
// means not at all. A cell with another load is no baseline: for example, the difference between one stream
// and four is not a cost of the path.
func baselineRank(design *record.Design, k comparison.Comparison) int {
	c := design.Catalogue
	for _, name := range keys(k.Factors, k.Against) {
		if k.Factors[name] != k.Against[name] && c.Of(name).Kind == factor.Load &&
			name != string(factor.PacketSize) { // except the packet size, which follows from the MTU
			return 0
		}
	}

	tunnel := c.Of(string(factor.Tunnel)).Without
	// The plan's whole baseline may differ from the cell in several factors.
	whole := k.Against.Key() == design.Baseline.Key()
	switch {
	case !whole && len(design.Baseline) > 0 && k.Against.Meets(design.Baseline):
		return 4
	case tunnel != nil && k.Name == tunnel.Words:
		return 3
	case !whole:
		return 2
	}
	return 1
}

// ofMTU reports whether two cells differ only in the MTU of a link and in levels that follow from it.
func ofMTU(a, b record.Factors) bool {
	link := false
	for _, name := range keys(a, b) {
		plain, _ := factor.Split(name)
		switch {
		case a[name] == b[name]:
		case plain == string(factor.LinkMTU):
			link = true
		case plain != string(factor.MTU) && plain != string(factor.PacketSize):
			return false
		}
	}
	return link
}

// defaultMTU returns the default MTU of a cell's tunnel, or "" without a tunnel or if it is unknown.
func defaultMTU(c *factor.Catalogue, f record.Factors) string {
	if !factor.MTU.In(f) {
		return ""
	}

	mtu := c.Of(string(factor.MTU))
	if mtu.Derive == nil {
		return ""
	}

	return mtu.Derive(factor.MTU.With(f, ""))
}

// shareOfMTU returns the rate of a cell as a share of the rate with the default MTU, computed by block. It
// searches others for the cell with the default MTU, and returns nil if there is none.
func shareOfMTU(c *factor.Catalogue, cell *Cell, others []*Cell) *Share {
	level := defaultMTU(c, cell.Factors)
	metric := metrics.RateOf(cell.Factors)
	for _, other := range others {
		if level == "" || !factor.MTU.Is(other.Factors, level) {
			continue
		}

		k, _ := comparison.ComparePaired(metric, other.Blocks[metric], cell.Blocks[metric])
		if k.Ratio > 0 && !k.Difference {
			words := "default " + c.Of(string(factor.MTU)).Words(level)
			return &Share{k.Ratio, words, other.Factors}
		}
	}
	return nil
}
