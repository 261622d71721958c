package report

import (
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// linear maps values from 0 (or low) to high onto a stretch of the drawing.
type linear struct{ low, high, from, to float64 }

func (l linear) at(v float64) float64 {
	if l.high == l.low {
		return l.from
	}
	return l.from + (v-l.low)/(l.high-l.low)*(l.to-l.from)
}

// ticks are round numbers from low to high, about want of them, in steps of 1, 2 or 5.
func ticks(low, high float64, want int) []float64 {
	if !(high > low) || want < 1 {
		return []float64{low}
	}
	raw := (high - low) / float64(want)
	mag := math.Pow(10, math.Floor(math.Log10(raw)))
	steps := []float64{1, 2, 5, 10}
	step := mag * steps[max(slices.IndexFunc(steps, func(m float64) bool { return m*mag >= raw*0.999 }), 0)]
	var out []float64
	for i := math.Ceil(low/step - 1e-9); i*step <= high*(1+1e-9)+1e-12; i++ {
		out = append(out, i*step)
	}
	return out
}

// axisFrom0 makes a scale that starts at zero and ends at a round number.
func axisFrom0(high float64, want int) (marks []float64) {
	if !(high > 0) {
		high = 1
	}
	marks = ticks(0, high, want)
	if last := marks[len(marks)-1]; last < high && len(marks) > 1 {
		marks = append(marks, last+marks[1])
	}
	return marks
}

// tickText prints a tick in a scale with as many digits as it needs.
func tickText(s unit.Scale, v float64) string {
	x := v / s.Div
	for digits := range 4 {
		if p := math.Pow(10, float64(digits)); math.Abs(x*p-math.Round(x*p)) < 1e-6*max(1, math.Abs(x*p)) {
			return trimFixed(x, digits)
		}
	}
	return unit.Significant(x, 3)
}

func trimFixed(x float64, digits int) string {
	if x == 0 {
		return "0"
	}
	n := digits + 1 + int(math.Floor(math.Log10(max(math.Abs(x), 1e-9))))
	return unit.Significant(x, max(n, 1))
}

// logarithmic maps positive values onto a stretch, by their logarithm.
type logarithmic struct{ low, high, from, to float64 }

func (l logarithmic) at(v float64) float64 {
	return linear{math.Log(l.low), math.Log(l.high), l.from, l.to}.at(math.Log(max(v, l.low/1e3)))
}

// decades are the powers of ten that cover a range.
func decades(low, high float64) (float64, float64, []float64) {
	if !(low > 0) {
		low = 1
	}
	if !(high > low) {
		high = low * 10
	}
	a, b := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	var out []float64
	for e := a; e <= b; e++ {
		out = append(out, math.Pow(10, e))
	}
	return out[0], out[len(out)-1], out
}
