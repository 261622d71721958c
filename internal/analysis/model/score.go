package model

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Score compares a result with the estimate that a model made without knowing the result.
type Score struct {
	Row          int     `json:"row,omitempty"` // row in the catalogue
	Of           string  `json:"of"`            // device, tunnel and other attributes
	MeasuredBps  float64 `json:"measured_bps"`
	EstimatedBps float64 `json:"estimated_bps,omitempty"`
	Error        float64 `json:"error_ratio"`       // estimated ÷ measured - 1
	Refused      string  `json:"refused,omitempty"` // reason why there is no estimate
}

// Errors holds the errors of one model on results that were withheld from it.
type Errors struct {
	Model   string  `json:"model"`
	Of      string  `json:"of"`                          // OfPublished or OfOwn
	N       int     `json:"n"`                           // number of estimates
	Refused int     `json:"refused"`                     // number of results without an estimate
	Suspect int     `json:"suspect,omitempty"`           // number of suspect results in N and Refused
	Typical float64 `json:"median_absolute_error_ratio"` // median of the absolute values of error_ratio
	Low     float64 `json:"error_p10_ratio"`
	High    float64 `json:"error_p90_ratio"`
	Least   float64 `json:"error_min_ratio"`
	Most    float64 `json:"error_max_ratio"`
	Scores  []Score `json:"scores,omitempty"` // one for each published rate
}

// Suspect returns the number of suspect results.
func Suspect(results []catalogue.Result) int {
	n := 0
	for _, r := range results {
		if r.Grade == evidence.GradeSuspect {
			n++
		}
	}
	return n
}

// Sets of results from which LeaveOneOut withholds one result at a time.
const (
	OfPublished = "published result"
	OfOwn       = "own cell"
)

// LeaveOneOut estimates each result with each model, based on the other results. A model that uses other
// devices gets no result of the same device.
func LeaveOneOut(c *catalogue.Catalogue, results []catalogue.Result, of string) []Errors {
	var out []Errors
	others := make([]catalogue.Result, 0, len(results)) // reused for each result
	for _, m := range models {
		e := Errors{Model: m.name, Of: of, Suspect: Suspect(results)}
		var errs, absolute []float64
		for i, r := range results {
			if r.GoodputBps == nil {
				continue
			}

			others = append(append(others[:0], results[:i]...), results[i+1:]...)
			rest := world{c, others}
			q := r
			q.GoodputBps = nil
			s := Score{Row: r.Row, Of: Words(q), MeasuredBps: *r.GoodputBps}
			estimate, err := m.estimate(rest, q)
			if err != nil {
				s.Refused = err.Error()
				e.Refused++
				e.Scores = append(e.Scores, s)
				continue
			}

			most := rest.atMost(q).AtMostBps
			if most > 0 {
				estimate.GoodputBps = min(estimate.GoodputBps, most)
			}

			s.EstimatedBps = estimate.GoodputBps
			s.Error = s.EstimatedBps/s.MeasuredBps - 1
			errs = append(errs, s.Error)
			absolute = append(absolute, math.Abs(s.Error))
			e.Scores = append(e.Scores, s)
		}

		if e.N = len(errs); e.N > 0 {
			slices.Sort(errs)
			e.Typical = statistics.Median(absolute)
			e.Low = statistics.QuantileSorted(errs, .1)
			e.High = statistics.QuantileSorted(errs, .9)
			e.Least = errs[0]
			e.Most = errs[len(errs)-1]
		}

		out = append(out, e)
	}
	return out
}

// Scored returns the scores for predictions from the user's own results. A model with at least three
// estimates of the user's results gets its score on these results. Any other model gets its score on the
// published results.
func Scored(own, published []Errors) []Errors {
	out := slices.Clone(published)
	for i := range out {
		if own[i].N >= 3 {
			out[i] = own[i]
		}
	}
	return out
}

// errorBounds lists the absolute errors up to which Within counts estimates.
var errorBounds = [...]float64{.05, .1, .25, .5, 1}

// Within returns the numbers of estimates whose absolute error is at most 5, 10, 25, 50 and 100 %, and the
// number of estimates with a larger error. The first five numbers are cumulative.
func (e Errors) Within() (counts [len(errorBounds) + 1]int) {
	for _, s := range e.Scores {
		if s.Refused != "" {
			continue
		}

		off := math.Abs(s.Error)
		for i, bound := range errorBounds {
			if off <= bound {
				counts[i]++
			}
		}

		if off > errorBounds[len(errorBounds)-1] {
			counts[len(errorBounds)]++
		}
	}
	return counts
}

// Reasons describes why there was no estimate and how often, most frequent reason first.
func (e Errors) Reasons() []string {
	count := map[string]int{}
	for _, s := range e.Scores {
		if s.Refused != "" {
			count[s.Refused]++
		}
	}

	names := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	for i, reason := range names {
		names[i] = fmt.Sprintf("%d × %s", count[reason], reason)
	}

	return names
}

// Impossible explains why some of the results in its last argument cannot come from any device: their rate
// exceeds what the link carries, or no fixed costs per packet and per byte explain the rates of a sweep of
// MTUs or packet sizes. The sweeps come from results.
func Impossible(c *catalogue.Catalogue, results, of []catalogue.Result) []string {
	w := world{c, results}
	var reasons []string
	for _, r := range of {
		why := w.impossible(r)
		if why != "" {
			reasons = once(reasons, why)
		}
	}

	return reasons
}

// impossible describes why no device can have produced a result, or the sweep that contains it. It returns ""
// if a device can have produced both.
func (w world) impossible(r catalogue.Result) string {
	if r.GoodputBps == nil {
		return ""
	}

	if w.beyondPort(r) {
		return fmt.Sprintf("%s, %s: %s of payload (%s) where its link carries %s", r.Device, r.Tunnel,
			unit.Bitrate(*r.GoodputBps), r.Conditions(), unit.Bitrate(w.portCeiling(r)))
	}

	swept := "mtu"
	if r.Packet > 0 {
		swept = "packet"
	}

	for _, sweep := range w.sweeps(r, swept) {
		var sizes []Size
		whole := true
		for _, x := range sweep {
			packet, payload, outside := packetOf(x)
			sizes = append(sizes, Size{packet, payload, *x.GoodputBps})
			whole = whole && outside == 1
		}

		if len(sizes) < 2 || !whole {
			continue
		}

		if _, err := FitPacketCost(sizes, within(sweep)); errors.Is(err, ErrImpossible) {
			return fmt.Sprintf("%s, %s: %v", r.Device, r.Tunnel, err)
		}
	}

	return ""
}
