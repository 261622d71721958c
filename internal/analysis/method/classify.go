package method

import (
	"cmp"
	"slices"
	"sort"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Bound is the class of a load for a goal, as defined by RFC 9971: a lower bound, an upper bound, or
// undecided.
type Bound string

const (
	Undecided Bound = "undecided"
	Lower     Bound = "lower"
	Upper     Bound = "upper"
)

// Sums holds the sums of the effective durations at one load, in seconds, by class of trial: full-length (at
// least the goal's final duration) or short, and high-loss or low-loss.
type Sums struct {
	FullHigh, FullLow, ShortHigh, ShortLow float64
}

// sumsOf returns the sums of the trials at one load.
func sumsOf(g record.Goal, trials []Trial) Sums {
	var s Sums
	for _, t := range trials {
		high := lossOf(g, t) > g.LossRatio
		full := t.Duration >= g.FinalDuration
		switch {
		case full && high:
			s.FullHigh += t.seconds()
		case full:
			s.FullLow += t.seconds()
		case high:
			s.ShortHigh += t.seconds()
		default:
			s.ShortLow += t.seconds()
		}
	}
	return s
}

// Estimate holds the quantities that determine the class of a load, in seconds, named as in RFC 9971, "Load
// Classification Logic".
type Estimate struct {
	EffectiveHigh, EffectiveFull, EffectiveWhole, PessimisticHigh float64
	Optimistic, Pessimistic                                       float64 // exceed ratios
	Bound                                                         Bound
}

// estimate implements the appendix "Load Classification Code" of RFC 9971.
func estimate(g record.Goal, s Sums) Estimate {
	coefficient := g.ExceedRatio / (1 - g.ExceedRatio)
	e := Estimate{EffectiveHigh: s.FullHigh + max(0, s.ShortHigh-s.ShortLow*coefficient)}
	e.EffectiveFull = s.FullLow + e.EffectiveHigh
	e.EffectiveWhole = max(e.EffectiveFull, g.DurationSum.Seconds())
	e.PessimisticHigh = e.EffectiveWhole - s.FullLow
	e.Optimistic = e.EffectiveHigh / e.EffectiveWhole
	e.Pessimistic = e.PessimisticHigh / e.EffectiveWhole
	quantile := e.EffectiveWhole * g.ExceedRatio
	optimistic := e.EffectiveHigh <= quantile
	pessimistic := e.PessimisticHigh <= quantile
	switch {
	case optimistic && pessimistic:
		e.Bound = Lower
	case !optimistic && !pessimistic:
		e.Bound = Upper
	default:
		e.Bound = Undecided
	}

	return e
}

// classify returns the class of a load from its trials.
func classify(g record.Goal, trials []Trial) Bound { return estimate(g, sumsOf(g, trials)).Bound }

// throughput returns the conditional throughput at a load (RFC 9971, appendix "Conditional Throughput Code").
// This is the load multiplied by the share of frames that was forwarded at the quantile of loss given by the
// exceed ratio. Time that is missing from the goal's duration sum counts as total loss. ok is false if no
// trial is full-length.
func throughput(g record.Goal, load float64, trials []Trial) (rate float64, ok bool) {
	var full []Trial
	whole := 0.0
	for _, t := range trials {
		if t.Duration >= g.FinalDuration {
			full = append(full, t)
			whole += t.seconds()
		}
	}

	if len(full) == 0 {
		return 0, false
	}

	sort.SliceStable(full, func(i, j int) bool { return lossOf(g, full[i]) < lossOf(g, full[j]) })
	remaining := max(g.DurationSum.Seconds(), whole) * (1 - g.ExceedRatio)
	quantile := 1.0
	for i, t := range full {
		if i > 0 && remaining <= 0 {
			break
		}

		quantile = lossOf(g, t)
		remaining -= t.seconds()
	}

	if remaining > 0 {
		quantile = 1
	}

	return load * (1 - quantile), true
}

// Point is a load with its trials.
type Point struct {
	Load   float64
	Trials []Trial
}

// Points groups the trials of a search by load, without warm-up trials.
func Points(trials []Trial) []Point {
	var out []Point
	for _, t := range trials {
		if t.Warmup {
			continue
		}

		i, found := slices.BinarySearchFunc(out, t.Load, func(p Point, load float64) int {
			return cmp.Compare(p.Load, load)
		})
		if !found {
			out = slices.Insert(out, i, Point{Load: t.Load})
		}

		out[i].Trials = append(out[i].Trials, t)
	}
	return out
}

// bounds returns the indexes of the relevant bounds among points sorted by load: the smallest upper bound,
// and the largest lower bound below it. An index is -1 if there is no such bound.
func bounds(g record.Goal, points []Point) (lower, upper int) {
	lower = -1
	for i, p := range points {
		switch classify(g, p.Trials) {
		case Upper:
			return lower, i
		case Lower:
			lower = i
		}
	}
	return lower, -1
}
