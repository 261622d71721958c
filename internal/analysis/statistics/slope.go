package statistics

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Point is a step and the response to it.
type Point struct{ X, Y float64 }

// Line is a slope with its interval.
type Line struct {
	Slope float64 `json:"slope"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Level float64 `json:"level"` // confidence of the interval, 0…1; 0: too few points for one
	N     int     `json:"n"`     // points
}

// slopePermutations are drawn at random, in addition to the observed order.
const slopePermutations = 3999

// BlockSlope fits one slope to the points of several blocks, each with a level of its own (least squares).
// The interval assumes no distribution: it contains the slopes that a permutation test, which permutes the
// steps within each block, does not reject. ok is false if no step differs from another in its block.
func BlockSlope(blocks [][]Point) (line Line, ok bool) {
	var xs, ys [][]float64
	sxx, sxy := 0.0, 0.0
	for _, block := range blocks {
		x := make([]float64, len(block))
		y := make([]float64, len(block))
		meanX, meanY := 0.0, 0.0
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

		xs, ys = append(xs, x), append(ys, y)
		line.N += len(block)
	}

	if sxx <= 0 {
		return line, false
	}

	line.Slope = sxy / sxx
	// A permutation p rejects no slope b for which |Σ xₚ(y-bx)| ≥ |Σ x(y-bx)|: those between (A-Aₚ)/(B-Bₚ)
	// and (A+Aₚ)/(B+Bₚ), with A = Σxy, B = Σxx, Aₚ = Σxₚy and Bₚ = Σxₚx.
	low := []float64{math.Inf(-1)}
	high := []float64{math.Inf(1)} // for the observed order: all
	rng := rand.New(rand.NewPCG(1, 1))
	for range slopePermutations {
		a, b := 0.0, 0.0
		for k := range xs {
			for i, j := range rng.Perm(len(xs[k])) {
				a += xs[k][j] * ys[k][i]
				b += xs[k][j] * xs[k][i]
			}
		}

		from := math.Inf(-1)
		to := math.Inf(1) // for an order that changes no step, or reverses all
		same, turned := sxx-b, sxx+b
		if min(same, turned) > 1e-12*sxx {
			from = (sxy - a) / same
			to = (sxy + a) / turned
		}

		low, high = append(low, min(from, to)), append(high, max(from, to))
	}

	slices.Sort(low)
	slices.Sort(high)
	skip := int((1-Level)*float64(len(low))) - 1
	line.Low, line.High, line.Level = low[skip], high[len(high)-1-skip], Level
	if math.IsInf(line.Low, 0) || math.IsInf(line.High, 0) {
		line.Low, line.High, line.Level = line.Slope, line.Slope, 0
	}

	return line, true
}

// minFall is the fall of a response's logarithm at the smallest step from which on it counts as bent.
const minFall = .07

// Knee fits a response that stays until the resource has fallen to a share k, and then falls with it: y =
// min(0, x - ln k), for points with x < 0. ok is false if the response never bends, so that the knee lies
// below the smallest step.
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
			best, at = sum, lnK
		}
	}

	return math.Exp(at), at-least > minFall
}
