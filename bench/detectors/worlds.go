package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
)

// runsOfNight is the number of runs of each version that the interleaved rule may need in a night.
const runsOfNight = 2 * comparison.VersionBlocks

// night holds what can be measured of a cell in one night.
type night struct {
	rates [2][]float64 // of runs one after the other: before the step, and after it
	same  [][2]float64 // interleaved runs of equal versions, six and their repeat
	step  [][2]float64 // interleaved runs of a version before the step and of one after it
}

// world draws nights of a cell whose rate falls to a share of what it was.
type world interface {
	night(r *rand.Rand, bad bool, share float64) night
}

// recordedCells draws nights from recorded runs. The runs of a night stay together, in their order.
type recordedCells struct {
	quiet, bad []recordedRun
	cell       int
	slower     int // the cell that was measured after the step; -1: the rates of cell times the share
}

func (w recordedCells) night(r *rand.Rand, bad bool, share float64) night {
	runs := w.quiet
	if bad {
		runs = w.bad
	}

	i := r.IntN(len(runs))
	rates := runs[i].Cells[w.cell].Rates
	var n night
	n.rates[0] = rates
	n.same = neighbours(r, slices.Concat(rates, runs[(i+1)%len(runs)].Cells[w.cell].Rates))
	if w.slower >= 0 {
		n.rates[1] = runs[i].Cells[w.slower].Rates
		for block, rate := range rates {
			n.step = append(n.step, [2]float64{rate, n.rates[1][block]})
		}
		return n
	}

	n.rates[1], n.step = stepped(n, share)
	return n
}

// neighbours makes pairs of successive rates, in random order.
func neighbours(r *rand.Rand, rates []float64) (pairs [][2]float64) {
	for i := 0; i+1 < len(rates); i += 2 {
		p := [2]float64{rates[i], rates[i+1]}
		if r.IntN(2) == 0 {
			p[0], p[1] = p[1], p[0]
		}

		pairs = append(pairs, p)
	}
	return pairs
}

// stepped returns the night as it would be after a step to a share of each rate.
func stepped(n night, share float64) (rates []float64, pairs [][2]float64) {
	for _, v := range n.rates[0] {
		rates = append(rates, v*share)
	}

	for _, p := range n.same {
		pairs = append(pairs, [2]float64{p[0], p[1] * share})
	}

	return rates, pairs
}

// noiseModel draws nights whose runs have independent normal noise of 1 %. In a bad night the runs are slower
// by up to 20 %, each by another share. With modes, each boot has one of two levels that are 3 % apart.
type noiseModel struct{ modes bool }

func (m noiseModel) night(r *rand.Rand, bad bool, share float64) night {
	const noise, worst, mode = .01, .2, .97
	run := func() float64 {
		v := 1e9 * math.Exp(noise*r.NormFloat64())
		if m.modes && r.IntN(2) == 0 {
			v *= mode
		}

		if bad {
			v *= 1 - worst*r.Float64()
		}
		return v
	}
	var n night
	for range runsOfNight {
		n.rates[0] = append(n.rates[0], run())
		n.same = append(n.same, [2]float64{run(), run()})
	}

	n.rates[1], n.step = stepped(n, share)
	return n
}
