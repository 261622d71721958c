package comparison

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
)

// Outcomes of a bisection whose ends differ.
const (
	BisectCulprit   = "culprit"           // one version changed the result
	BisectSeveral   = "no single culprit" // a version's result lies between those of the ends
	BisectTester    = "it is the tester"  // the good end itself changed during the search
	BisectUndecided = "undecided"         // the allowed runs did not suffice
)

// Bisect finds the version in a list that changed a result. The list starts with the oldest version. The
// first version is the good end, and the last version is the bad end. Both were measured in blocks, and
// OfVersions found that they differ. This difference is the step. The position of the step is the first
// version that has it.
//
// Bisect keeps a probability for each position of the step, and updates all of them with every run. The
// blocks of the ends give the size of the step, the noise of a run and the drift of the tester. Bisect next
// measures the version for which it is least certain whether the version has the step. The search ends when
// one position has nearly all the probability. The level of the tester is estimated from all runs, because
// each run shows that level, whatever the position of the step. Therefore, the good end is booted again in
// two cases only: if the level has become uncertain, and before an answer. The hypothesis of two steps, each
// a part of the whole, competes with the hypothesis of a single step.
type Bisect struct {
	Versions int            // number of versions
	Unusable map[int]string // why versions cannot be measured, such as commits that do not build
	Runs     []VersionRun   // in order of time
}

// VersionRun is one run of a version. The router was booted for this run.
type VersionRun struct {
	Version int // index of the version, from 0
	Block   int // blocks up to 2 × VersionBlocks measured both ends; later blocks have one run
	At      time.Time
	Value   float64 // value of the metric, above 0
}

// BisectStep holds the version to measure next or, if Outcome is not empty, the answer.
type BisectStep struct {
	Measure int // version to measure next
	Outcome string
	// The step lies in the versions from First to Last with probability P. For a culprit, First and Last are
	// the same version, unless the versions before it cannot be measured. If there is no single culprit, both
	// are the version that lies between the ends.
	First, Last int
	P           float64
}

// Parameters of a bisection. They were chosen with simulations (see TestBisect).
const (
	sure         = 0.945 // minimum probability of an answer
	severalPrior = 0.01  // probability of two steps, before the search
	severalLeft  = 0.03  // largest probability of two steps at which a single culprit is named
	outlierPrior = 0.01  // share of runs that are outliers
	outlierWidth = 25    // additional variance of an outlier, in multiples of a run's variance
	minFit       = -690  // lower limit of a run's log-likelihood, however far the run deviates
	minNoise     = 1e-6  // minimum variance of a run: versions differ by 0.1 % even if ends repeat exactly
	driftPenalty = 1.5   // log-likelihood that each faster drift must gain to be chosen
	levelKnown   = 0.15  // largest standard deviation of a level that counts as known, as a share of the step
	testerMoved  = 6.5   // log-likelihood ratio above which the good end has moved by the step
	testerStayed = -1.0  // log-likelihood ratio below which the good end has not moved
	settled      = 0.001 // variance of a version's share of the step, below which its side is known
	runsOfOne    = 6     // maximum number of runs of one version
)

// maxRuns returns the maximum number of runs of a search among the given number of positions.
func maxRuns(positions int) int { return 4 + 4*bits.Len(uint(positions)) }

// parts lists the shares of the whole step that the first of two steps may have.
var parts = [...]float64{1. / 3, 1. / 2, 2. / 3}

// drifts lists the possible variances of the tester's drift from run to run, in multiples of a run's
// variance.
var drifts = [...]float64{.002, .01, .05, .25}

// noise holds variances of logarithms. run is the variance of a run. drift is the variance of the drift
// during every, the usual time between two runs.
type noise struct {
	run, drift float64
	every      time.Duration
}

// belief is the joint normal distribution of two logarithms, the tester's level and the step, after some
// runs.
type belief struct {
	level, step                float64
	levelVar, stepVar, bothVar float64 // variances and covariance
	fit                        float64 // log-likelihood of the runs
	at                         time.Time
}

// add updates the belief with a run of a version that has the given share of the step. It returns how much
// the run deviates from the prediction, and the variance of this deviation. An extreme outlier hardly changes
// the belief.
func (b *belief) add(r VersionRun, share float64, n noise) (wrong, variance float64) {
	y := math.Log(r.Value)
	if b.at.IsZero() {
		b.level = y
		b.levelVar = 1e4 * n.run
		b.stepVar = 1e4 * n.run
	} else {
		apart := math.Abs(float64(r.At.Sub(b.at))) // absolute, because a clock may have been set back
		b.levelVar += n.drift * apart / float64(n.every)
	}

	b.at = r.At
	withLevel := b.levelVar + share*b.bothVar
	withStep := b.bothVar + share*b.stepVar
	wrong = y - b.level - share*b.step
	variance = withLevel + share*withStep + n.run
	usual := math.Log(1-outlierPrior) + logDensity(wrong, variance)
	far := math.Log(outlierPrior) + logDensity(wrong, variance+outlierWidth*n.run)
	likelier := max(usual, far)
	sum := likelier + math.Log(math.Exp(usual-likelier)+math.Exp(far-likelier))
	b.fit += max(sum, minFit)
	gain := math.Exp(usual-sum) / variance
	b.level += gain * withLevel * wrong
	b.step += gain * withStep * wrong
	b.levelVar -= gain * withLevel * withLevel
	b.stepVar -= gain * withStep * withStep
	b.bothVar -= gain * withLevel * withStep
	return wrong, variance
}

// logDensity returns the logarithm of the normal density with mean 0 at x.
func logDensity(x, variance float64) float64 {
	return -(x*x/variance + math.Log(2*math.Pi*variance)) / 2
}

// ends returns the belief and the noise after the blocks of the ends, and the number of runs in these blocks.
func (b Bisect) ends() (belief, noise, int) {
	n := 0
	var apart []float64
	for n < len(b.Runs) && b.Runs[n].Block <= 2*VersionBlocks {
		if n > 0 {
			apart = append(apart, float64(b.Runs[n].At.Sub(b.Runs[n-1].At)))
		}

		n++
	}

	every := max(1, time.Duration(statistics.Median(apart)))
	follow := func(with noise) (out belief, run, fit float64) {
		squares := 0.
		logs := 0.
		for i, r := range b.Runs[:n] {
			wrong, variance := out.add(r, float64(min(r.Version, 1)), with)
			if i > 1 { // skip two runs, because two unknowns are fitted: level and step
				squares += wrong * wrong / variance
				logs += math.Log(variance)
			}
		}
		free := float64(n - 2)
		run = max(squares/free, minNoise)
		return out, run, -(free*math.Log(run) + logs) / 2
	}
	var best noise
	highest := math.Inf(-1)
	for i, drift := range drifts {
		_, run, fit := follow(noise{run: 1, drift: drift, every: every}) // in units of a run's variance
		if fit -= driftPenalty * float64(i); fit > highest {
			best = noise{run: run, drift: drift * run, every: every}
			highest = fit
		}
	}

	start, _, _ := follow(best)
	start.fit = 0
	return start, best, n
}

// search holds the probabilities of all positions of the step.
type search struct {
	usable  []int // versions that can be measured; a position is an index into usable, from 1
	runs    []VersionRun
	start   belief
	noise   noise
	single  []float64 // probability of a step at each position
	mean    []float64 // expected share of the step in each usable version
	square  []float64 // expected square of that share
	best    int       // most probable position
	several float64   // probability of two steps
	pair    [2]int    // most probable positions of two steps
}

// Next returns the version to measure next, or the answer.
func (b Bisect) Next() BisectStep {
	s := b.search()
	full := len(s.runs) >= maxRuns(len(s.usable)-1)
	found := BisectStep{First: s.usable[s.best-1] + 1, Last: s.usable[s.best], P: s.single[s.best]}
	culprit := found.P >= sure && (s.several <= severalLeft || full)
	several := s.several >= sure || s.several > .5 && full
	next := s.next()
	switch beside := s.beside(); {
	case culprit && beside > 0:
		return BisectStep{Measure: beside}
	case culprit:
		found.Outcome = BisectCulprit
	case several:
		v := s.between()
		found = BisectStep{Outcome: BisectSeveral, First: v, Last: v, P: s.several}
	case full || next < 0:
		found = s.suspects()
	case len(s.runs) > 0 && s.runs[len(s.runs)-1].Version != 0 && s.lost():
		return BisectStep{Measure: 0}
	default:
		return BisectStep{Measure: next}
	}

	return s.checked(found)
}

// beside returns the version just before the most probable position or, if that version was measured, the
// version at the position. It returns 0 if both versions were measured or are ends.
func (s search) beside() int {
	for i := s.best - 1; i <= s.best; i++ {
		v := s.usable[i]
		if i > 0 && i < len(s.usable)-1 && !slices.ContainsFunc(s.runs, func(r VersionRun) bool {
			return r.Version == v
		}) {
			return v
		}
	}

	return 0
}

// next returns the version for which the share of the step is least certain, or -1 if no further run of a
// version would help.
func (s search) next() int {
	ran := map[int]int{}
	for _, r := range s.runs {
		ran[r.Version]++
	}

	next := -1
	most := settled
	for i := 1; i < len(s.usable)-1; i++ {
		spread := s.square[i] - s.mean[i]*s.mean[i]
		if spread > most && ran[s.usable[i]] < runsOfOne {
			next = s.usable[i]
			most = spread
		}
	}

	return next
}

// between returns the measured version whose expected share of the step is nearest to one half.
func (s search) between() int {
	v := s.usable[s.pair[0]]
	least := 1.0
	for _, r := range s.runs {
		i, _ := slices.BinarySearch(s.usable, r.Version)
		if off := math.Abs(s.mean[i] - .5); r.Version > 0 && off < least {
			v = r.Version
			least = off
		}
	}

	return v
}

// lost reports whether the level of the tester is no longer known precisely enough.
func (s search) lost() bool {
	now := s.follow(s.best, s.best, 1, nil)
	return math.Sqrt(now.levelVar) > levelKnown*math.Abs(s.start.step)
}

// suspects returns the smallest range of positions, around the most probable one, that has the probability
// sure.
func (s search) suspects() BisectStep {
	low := s.best
	high := s.best
	p := s.single[s.best]
	for p < sure && (low > 1 || high < len(s.usable)-1) {
		if high == len(s.usable)-1 || low > 1 && s.single[low-1] >= s.single[high+1] {
			low--
			p += s.single[low]
		} else {
			high++
			p += s.single[high]
		}
	}

	return BisectStep{Outcome: BisectUndecided, First: s.usable[low-1] + 1, Last: s.usable[high], P: p}
}

// checked returns the answer if the good end was measured after all other versions and has not moved since
// the search began. Otherwise, it requests a run of the good end or, if the good end has moved, returns the
// outcome BisectTester.
func (s search) checked(answer BisectStep) BisectStep {
	n := 0.
	sum := 0.
	for i := len(s.runs) - 1; i >= 0 && s.runs[i].Version == 0; i-- {
		sum += math.Log(s.runs[i].Value)
		n++
	}

	if n == 0 {
		return BisectStep{Measure: 0}
	}

	moved := math.Abs(sum/n - s.start.level)
	step := math.Abs(s.start.step)
	ratio := step * (moved - step/2) / (s.start.levelVar + s.noise.run/n)
	switch {
	case ratio > testerMoved:
		return BisectStep{Outcome: BisectTester}
	case ratio > testerStayed && n < runsOfOne:
		return BisectStep{Measure: 0}
	}

	return answer
}

// follow returns the belief after all runs, for steps at the positions first and second. The first step has
// the share part of the whole change. Unless the function each is nil, follow calls it before every run.
func (s search) follow(first, second int, part float64, each func(before belief, r VersionRun)) belief {
	x := s.start
	for _, r := range s.runs {
		share := 0.
		switch i, _ := slices.BinarySearch(s.usable, r.Version); {
		case i >= second:
			share = 1
		case i >= first:
			share = part
		}

		if each != nil {
			each(x, r)
		}

		x.add(r, share, s.noise)
	}

	return x
}

// search computes the probabilities of all positions.
func (b Bisect) search() search {
	var s search
	for v := range b.Versions {
		if b.Unusable[v] == "" {
			s.usable = append(s.usable, v)
		}
	}

	n := 0
	s.start, s.noise, n = b.ends()
	s.runs = b.Runs[n:]
	m := len(s.usable)
	s.single = make([]float64, m)
	s.mean = make([]float64, m)
	s.square = make([]float64, m)
	fit := s.fits()
	// The weight of a position includes the unusable versions before it.
	weight := func(i int) float64 { return float64(s.usable[i] - s.usable[i-1]) }
	one := 0.
	two := 0.
	for i := 1; i < m; i++ {
		two += one * weight(i)
		one += weight(i)
	}

	two = max(two, 1)
	likeliest := 0.
	for i := 1; i < m; i++ {
		s.single[i] = (1 - severalPrior) / one * weight(i) * fit(i, i, 0)
		s.mean[i] += s.single[i]
		s.square[i] += s.single[i]
		if s.best == 0 || s.single[i] > s.single[s.best] {
			s.best = i
		}

		for j := i + 1; j < m; j++ {
			both := 0.
			for k, part := range parts {
				p := severalPrior / two * weight(i) * weight(j) * fit(i, j, k) / float64(len(parts))
				both += p
				s.mean[i] += part * p
				s.mean[j] += (1 - part) * p
				s.square[i] += part * part * p
				s.square[j] += (1 - part*part) * p
			}

			s.several += both
			if both > likeliest {
				likeliest = both
				s.pair = [2]int{i, j}
			}
		}
	}

	all := statistics.Total(s.single) + s.several
	s.several /= all
	for i := 1; i < m; i++ {
		s.single[i] /= all
		s.mean[i] = s.mean[i-1] + s.mean[i]/all
		s.square[i] = s.square[i-1] + s.square[i]/all
	}

	return s
}

// fits returns a function that computes the likelihood of two steps relative to the greatest likelihood. Its
// argument part is an index into parts. All positions between the same two measured versions have the same
// likelihood.
func (s search) fits() func(first, second, part int) float64 {
	measured := map[int]bool{}
	for _, r := range s.runs {
		measured[r.Version] = true
	}

	class := make([]int, len(s.usable))
	var first []int // first position of each class
	for i := 1; i < len(s.usable); i++ {
		if i == 1 || measured[s.usable[i-1]] {
			first = append(first, i)
		}

		class[i] = len(first) - 1
	}

	n := len(first)
	all := make([][len(parts)]float64, n*n)
	greatest := math.Inf(-1)
	for a := range first {
		for b := a; b < n; b++ {
			for k, part := range parts {
				x := &all[a*n+b][k]
				if a == b && k > 0 {
					*x = all[a*n+b][0] // no measured version lies between the two steps
				} else {
					*x = s.follow(first[a], first[b], part, nil).fit
				}

				greatest = max(greatest, *x)
			}
		}
	}

	for i := range all {
		for k, x := range all[i] {
			all[i][k] = math.Exp(x - greatest)
		}
	}

	return func(first, second, part int) float64 { return all[class[first]*n+class[second]][part] }
}

// Side describes one version by its runs and by the share of the step that it has.
type Side struct {
	Version int
	Share   float64 // expected share of the step, 0 to 1
	// Ratio is the ratio to the good end, with its 95 % interval from Low to High. The interval is based on
	// the noise in the blocks of the ends.
	Ratio, Low, High float64
}

// Sides returns the sides of the measured versions, in their order. Ratios are relative to the level of the
// tester at the time of each run.
func (b Bisect) Sides() []Side {
	s := b.search()
	sum := map[int]float64{}
	weights := map[int]float64{}
	first := s.best
	second := s.best
	if s.several > .5 {
		first = s.pair[0]
		second = s.pair[1]
	}

	s.follow(first, second, .5, func(before belief, r VersionRun) {
		weight := 1 / (before.levelVar + s.noise.run)
		sum[r.Version] += weight * (math.Log(r.Value) - before.level)
		weights[r.Version] += weight
	})
	var out []Side
	for i, v := range s.usable {
		if weights[v] == 0 {
			continue
		}

		at := sum[v] / weights[v]
		half := 1.96 / math.Sqrt(weights[v])
		out = append(out, Side{
			Version: v,
			Share:   s.mean[i],
			Ratio:   math.Exp(at),
			Low:     math.Exp(at - half),
			High:    math.Exp(at + half),
		})
	}

	return out
}
