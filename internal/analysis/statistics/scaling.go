package statistics

import "math"

// ScalingPoint is a level with the median goodput at that level.
type ScalingPoint struct {
	Level      float64 `json:"level"`
	GoodputBps float64 `json:"goodput_bps"`
}

// Scaling is the Universal Scalability Law (Gunther, 2007) for streams, tunnels or cores: X(N) = single × N ÷
// (1 + contention × (N - 1) + coherence × N × (N - 1)).
type Scaling struct {
	SingleBps  float64 `json:"single_bps"` // X(1)
	Contention float64 `json:"contention"` // serial share of the work
	Coherence  float64 `json:"coherence"`  // cost that each stream, tunnel or core imposes on every other one
}

// At returns X(n).
func (s Scaling) At(n float64) float64 {
	return s.SingleBps * n / (1 + s.Contention*(n-1) + s.Coherence*n*(n-1))
}

// Peak returns the N at which X(N) is largest. ok is false if X never decreases.
func (s Scaling) Peak() (n float64, ok bool) {
	if s.Coherence <= 0 || s.Contention >= 1 {
		return 0, false
	}
	return max(math.Sqrt((1-s.Contention)/s.Coherence), 1), true
}

// FitScaling fits the law by least squares of the relative errors of N ÷ X, which is linear in the
// parameters. Contention and coherence are not negative. ok is false if there is no such fit.
func FitScaling(points []ScalingPoint) (s Scaling, ok bool) {
	best := math.Inf(1)
	for _, use := range [...][2]bool{{true, true}, {true, false}, {false, true}, {false, false}} {
		c, errorSum, solved := solveScaling(points, use)
		if !solved || !(c[0] > 0) || c[1] < 0 || c[2] < 0 || errorSum >= best-1e-12 {
			continue
		}

		best = errorSum
		ok = true
		s = Scaling{1 / c[0], c[1] / c[0], c[2] / c[0]}
	}
	return s, ok
}

// solveScaling solves the normal equations of N ÷ X = a + b (N - 1) + c N (N - 1). use determines whether b
// and c are fitted; otherwise, they are zero.
func solveScaling(points []ScalingPoint, use [2]bool) (c [3]float64, errorSum float64, ok bool) {
	var m [3][4]float64
	row := func(n float64) [3]float64 {
		r := [3]float64{1, 0, 0}
		if use[0] {
			r[1] = n - 1
		}

		if use[1] {
			r[2] = n * (n - 1)
		}

		return r
	}
	for _, p := range points {
		if !(p.GoodputBps > 0) {
			return c, 0, false
		}

		y := p.Level / p.GoodputBps
		r := row(p.Level)
		for i := range 3 {
			for j := range 3 {
				m[i][j] += r[i] * r[j] / (y * y)
			}

			m[i][3] += r[i] / y
		}
	}

	for i, used := range [3]bool{true, use[0], use[1]} {
		if !used {
			m[i] = [4]float64{}
			m[i][i] = 1
		}
	}

	if c, ok = eliminate(m); !ok {
		return c, 0, false
	}

	for _, p := range points {
		r := row(p.Level)
		e := 1 - (c[0]*r[0]+c[1]*r[1]+c[2]*r[2])*p.GoodputBps/p.Level
		errorSum += e * e
	}

	return c, errorSum, true
}

// eliminate solves three linear equations by Gaussian elimination with pivoting.
func eliminate(m [3][4]float64) (x [3]float64, ok bool) {
	for i := range 3 {
		pivot := i
		for j := i + 1; j < 3; j++ {
			if math.Abs(m[j][i]) > math.Abs(m[pivot][i]) {
				pivot = j
			}
		}

		m[i], m[pivot] = m[pivot], m[i]
		if m[i][i] == 0 {
			return x, false
		}

		for j := range 3 {
			if j == i {
				continue
			}

			f := m[j][i] / m[i][i]
			for k := i; k < 4; k++ {
				m[j][k] -= f * m[i][k]
			}
		}
	}

	for i := range 3 {
		x[i] = m[i][3] / m[i][i]
	}
	return x, true
}
