package statistics

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Point pairs a step (X) with the response to it (Y).
type Point struct{ X, Y float64 }

// Line is a slope with its interval.
type Line struct {
	Slope float64 `json:"slope"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Level float64 `json:"level"` // confidence level, 0 to 1; 0 means too few points for an interval
	N     int     `json:"n"`     // number of points
}

// slopePermutations is the number of random permutations to which the observed order is compared.
const slopePermutations = 3999

// BlockSlope fits a common slope to the points of several blocks by least squares. Each block has a level of
// its own. The interval does not depend on a distribution: it contains the slopes that are not rejected by a
// permutation test of the steps within each block. ok is false if no block has different steps.
func BlockSlope(blocks [][]Point) (line Line, ok bool) {
	var xs, ys [][]float64
	sxx := 0.0
	sxy := 0.0
	for _, block := range blocks {
		x := make([]float64, len(block))
		y := make([]float64, len(block))
		meanX := 0.0
		meanY := 0.0
		for _, p := range block {
			meanX += p.X / float64(len(block))
			meanY += p.Y / float64(len(block))
		}

		for i, p := range block {
			x[i] = p.X - meanX
			y[i] = p.Y - meanY
			sxx += x[i] * x[i]
			sxy += x[i] * y[i]
		}

		xs = append(xs, x)
		ys = append(ys, y)
		line.N += len(block)
	}

	if sxx <= 0 {
		return line, false
	}

	line.Slope = sxy / sxx
	// Let A = Σxy, B = Σxx, Aₚ = Σxₚy and Bₚ = Σxₚx. For the slopes b from (A-Aₚ)/(B-Bₚ) to (A+Aₚ)/(B+Bₚ),
	// the permutation p has |Σ xₚ(y-bx)| ≥ |Σ x(y-bx)|, so it does not count as evidence against them.
	low := []float64{math.Inf(-1)}
	high := []float64{math.Inf(1)} // the observed order is not evidence against any slope
	rng := rand.New(rand.NewPCG(1, 1))
	for range slopePermutations {
		a := 0.0
		b := 0.0
		for k := range xs {
			for i, j := range rng.Perm(len(xs[k])) {
				a += xs[k][j] * ys[k][i]
				b += xs[k][j] * xs[k][i]
			}
		}

		from := math.Inf(-1)
		to := math.Inf(1) // unbounded if the permutation changes no step, or reverses all steps
		same := sxx - b
		turned := sxx + b
		if min(same, turned) > 1e-12*sxx {
			from = (sxy - a) / same
			to = (sxy + a) / turned
		}

		low = append(low, min(from, to))
		high = append(high, max(from, to))
	}

	slices.Sort(low)
	slices.Sort(high)
	skip := int((1-Level)*float64(len(low))) - 1
	line.Low = low[skip]
	line.High = high[len(high)-1-skip]
	line.Level = Level
	if math.IsInf(line.Low, 0) || math.IsInf(line.High, 0) {
		line.Low = line.Slope
		line.High = line.Slope
		line.Level = 0
	}

	return line, true
}

// minFall is the smallest fall that counts as a bend. It is the decrease of the logarithm of the response at
// the smallest step.
const minFall = .07

// Knee fits a response that is constant while the resource falls to its share k, called the knee, and then
// falls in proportion to the resource: y = min(0, x - ln k) for points with x < 0. ok is false if the
// response does not bend, which means that the knee is below the smallest step.
func Knee(points []Point) (k float64, ok bool) {
	least := 0.0
	for _, p := range points {
		least = min(least, p.X)
	}

	best := math.Inf(1)
	at := 0.0
	const steps = 400
	for i := range steps + 1 {
		lnK := least * float64(i) / steps
		sum := 0.0
		for _, p := range points {
			if p.X <= 0 {
				sum += math.Abs(p.Y - min(0, p.X-lnK))
			}
		}

		if sum < best-1e-12 {
			best = sum
			at = lnK
		}
	}

	return math.Exp(at), at-least > minFall
}
