package method

import "math"

// grid holds the loads that a search may try, in equal steps of the logarithm. On a common grid, all goals
// try the same loads and share their trials, and sums and halves of widths are exact. Index 0 is the minimum
// load, and index top the maximum.
type grid struct {
	min, max float64
	step     float64 // step of ln(load)
	top      int
}

// fineness is the minimum ratio of a whole number of steps to a goal's width. With a smaller ratio, the
// search would be finer than requested.
const fineness = 0.99

func newGrid(c Config) grid {
	least := math.Inf(1)
	for _, g := range c.Goals {
		least = min(least, logWidth(g.Width))
	}

	step := least
	for parts := 1; parts <= 100; parts++ {
		step = least / float64(parts) * (1 - 1e-9)
		if c.fits(step) {
			break
		}
	}

	return grid{min: c.Min, max: c.Max, step: step, top: int(math.Ceil(math.Log(c.Max/c.Min)/step - 1e-9))}
}

func logWidth(width float64) float64 { return -math.Log1p(-width) }

// fits reports whether every goal's width is almost a whole number of steps of the given size.
func (c Config) fits(step float64) bool {
	for _, g := range c.Goals {
		w := logWidth(g.Width)
		if math.Floor(w/step)*step < fineness*w {
			return false
		}
	}
	return true
}

// load returns the load at an index. It is limited to the minimum and the maximum.
func (g grid) load(i int) float64 {
	switch {
	case i <= 0:
		return g.min
	case i >= g.top:
		return g.max
	}
	return g.max * math.Exp(-float64(g.top-i)*g.step)
}

// below returns the largest index whose load does not exceed x.
func (g grid) below(x float64) int {
	switch {
	case x <= g.min:
		return 0
	case x >= g.max:
		return g.top
	}

	i := g.top - int(math.Ceil(math.Log(g.max/x)/g.step-1e-9))
	return max(i, 0)
}

// steps converts a width to a whole number of steps, which is at least one.
func (g grid) steps(width float64) int { return max(int(math.Floor(logWidth(width)/g.step)), 1) }

// middle returns an index that splits the interval between two indexes. One part is the width multiplied by a
// power of two, so that further halving ends at exactly the width. Of the possible splits, middle chooses the
// most even one, with the smaller part below. If the interval is less than two widths, middle halves the
// width for as long as the width remains a whole number of steps.
func middle(low, high, width int) int {
	span := high - low
	for span < 2*width && width%2 == 0 {
		width /= 2
	}

	if span <= 2*width {
		return low + span/2
	}

	part := width
	for 2*part < span-2*part {
		part *= 2
	}

	// The most even split is at part or 2·part, because part < span/2 ≤ 2·part.
	twice := 2 * part
	if twice < span && twice*(span-twice) >= part*(span-part) {
		part = twice
	}

	return low + min(part, span-part)
}
