package plan

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Block returns the rows of block k, counted from 1. They depend only on the design, its seed and k. They do
// not depend on the number of blocks or on other blocks.
//
// A block contains every cell once. Cells with the same level of a hard factor are adjacent, so that the lab
// changes as rarely as possible. In each group, a row for the idle latency of a path precedes the path's
// first load. In block 1, a row that verifies the path comes even earlier. Some cells send at a share of the
// rate that other cells find; they come last in their group.
func (p *Plan) Block(k int) []record.Row {
	d := &p.Design
	groups := cut(d.Cells, d.Hard)
	if d.Method.Order != OrderListed {
		rng := stream(d.Method.Seed, "order", k)
		groups = shuffled(d.Cells, d.Hard, rng)
		if d.Method.Order == OrderAlternated {
			for i := range groups {
				groups[i] = alternated(groups[i], rng)
			}
		}
	}

	seen := map[string]bool{}
	var rows []record.Row
	add := func(kind string, f factor.Cell) {
		rows = append(rows, record.Row{Assignment: record.Assignment{Kind: kind, Factors: f}})
	}
	for _, group := range groups {
		group = findersFirst(group)
		var paths []factor.Cell
		for _, cell := range group {
			path := d.Path(cell)
			key := path.Key()
			if factor.Sends(cell) && !seen[key] {
				seen[key] = true
				paths = append(paths, path)
			}
		}

		if k == 1 && d.Measure.Verify {
			for _, path := range paths {
				add(record.RowVerify, verifyFactors(path))
			}
		}

		if d.Measure.LatencyIdle == IdleBlock {
			for _, path := range paths {
				add(record.RowIdle, path)
			}
		}

		for _, cell := range group {
			add(kindOf(cell), cell.Clone())
		}
	}

	each := len(d.Cells) // rows per block; every block has the same paths
	if d.Measure.LatencyIdle == IdleBlock {
		each += len(seen)
	}

	before := (k - 1) * each
	if k > 1 && d.Measure.Verify {
		before += len(seen)
	}

	for i := range rows {
		rows[i].ID = fmt.Sprintf("b%d-r%02d", k, i+1)
		rows[i].Block = k
		rows[i].Index = before + i + 1
	}

	return rows
}

// Rows returns the rows of all blocks. With adaptive stopping, it returns the rows of the maximum number of
// blocks. Firmware changes as rarely as possible, because the user has to install it. All blocks with one
// firmware therefore precede all blocks with the next, in the order of the plan.
func (p *Plan) Rows() []record.Row {
	var rows []record.Row
	for k := 1; k <= p.Design.Method.Runs; k++ {
		rows = append(rows, p.Block(k)...)
	}

	order := p.Firmwares()
	if len(order) == 0 {
		return rows
	}

	place := func(r record.Row) int { return slices.Index(order, factor.Firmware.Of(r.Factors)) } // -1: none
	slices.SortStableFunc(rows, func(a, b record.Row) int { return place(a) - place(b) })
	for i := range rows {
		rows[i].Index = i + 1
	}

	return rows
}

// kindOf returns the kind of a cell's row.
func kindOf(cell factor.Cell) string {
	if factor.Sends(cell) {
		return record.RowLoad
	}
	return record.RowCipher
}

// Firmwares lists the firmware levels of the plan's cells in the order of installation.
func (p *Plan) Firmwares() (levels []string) {
	for _, cell := range p.Design.Cells {
		level := factor.Firmware.Of(cell)
		if level != "" && !slices.Contains(levels, level) {
			levels = append(levels, level)
		}
	}
	return levels
}

// verifyFactors returns the load that verifies the payload on a path. It is one TCP stream in each direction,
// sent by the engine that can check content.
func verifyFactors(path factor.Cell) factor.Cell {
	path = path.Clone()
	factor.Protocol.Set(path, factor.TCP)
	factor.Streams.Set(path, "1")
	factor.Direction.Set(path, factor.Both)
	factor.Engine.Set(path, factor.Native)
	return path
}

// cut splits a list of cells wherever a hard factor changes.
func cut(cells []factor.Cell, hard []string) [][]factor.Cell {
	var groups [][]factor.Cell
	for i, cell := range cells {
		if i == 0 || slices.ContainsFunc(hard, func(f string) bool { return cell[f] != cells[i-1][f] }) {
			groups = append(groups, nil)
		}

		groups[len(groups)-1] = append(groups[len(groups)-1], cell)
	}
	return groups
}

// shuffled groups cells by the first hard factor, shuffles the groups, and continues within each group with
// the next factor. Finally, it shuffles the cells within the innermost groups.
func shuffled(cells []factor.Cell, hard []string, rng *rand.Rand) [][]factor.Cell {
	if len(hard) == 0 {
		group := slices.Clone(cells)
		rng.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
		return [][]factor.Cell{group}
	}

	var levels []string
	byLevel := map[string][]factor.Cell{}
	for _, cell := range cells {
		level := cell[hard[0]]
		if byLevel[level] == nil {
			levels = append(levels, level)
		}

		byLevel[level] = append(byLevel[level], cell)
	}

	rng.Shuffle(len(levels), func(i, j int) { levels[i], levels[j] = levels[j], levels[i] })
	var groups [][]factor.Cell
	for _, level := range levels {
		groups = append(groups, shuffled(byLevel[level], hard[1:], rng)...)
	}

	return groups
}

// stream returns a random generator for (seed, label, block), independent of other labels and blocks.
func stream(seed uint64, label string, block int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%d", label, block)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// findersFirst moves cells whose load is a share of a found rate to the end of their group. Each block thus
// finds the rate before it uses the rate.
func findersFirst(group []factor.Cell) []factor.Cell {
	var first, last []factor.Cell
	for _, c := range group {
		if _, ok := factor.FoundOf(c); ok {
			last = append(last, c)
		} else {
			first = append(first, c)
		}
	}
	return append(first, last...)
}

// alternated distributes the untouched cells of a shuffled group evenly among the others. A random choice
// decides which kind comes first.
func alternated(group []factor.Cell, rng *rand.Rand) []factor.Cell {
	var kinds [2][]factor.Cell
	for _, c := range group {
		kind := 0
		if factor.Copy.In(c) {
			kind = 1
		}

		kinds[kind] = append(kinds[kind], c)
	}

	all := len(group)
	begins := rng.IntN(2)
	out := make([]factor.Cell, 0, all)
	for taken := [2]int{}; len(out) < all; {
		// Take the kind with the larger remaining share or, if the shares are equal, the kind that came
		// first.
		left := func(k int) int { return (len(kinds[k]) - taken[k]) * max(len(kinds[1-k]), 1) }
		kind := begins
		if left(1-begins) > left(begins) {
			kind = 1 - begins
		}

		out = append(out, kinds[kind][taken[kind]])
		taken[kind]++
	}

	return out
}
