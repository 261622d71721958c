package metrics

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Answered returns the round-trip times of the answered probes in ns, in ascending order.
func Answered(l *record.Latency) []float64 {
	if l == nil {
		return nil
	}

	out := make([]float64, 0, len(l.RTT))
	for _, ns := range l.RTT {
		if ns >= 0 {
			out = append(out, float64(ns))
		}
	}

	slices.Sort(out)
	return out
}

// spacingP99 returns the 99th percentile of the error of the intervals between consecutive probes. Skipped
// probes do not count, because they are not recorded.
func spacingP99(l *record.Latency) (float64, bool) {
	if len(l.Late) < 2 {
		return 0, false
	}

	off := make([]float64, len(l.Late)-1)
	for i := range off {
		off[i] = math.Abs(float64(l.Late[i+1] - l.Late[i]))
	}

	return p99(off)
}

func p99(values []float64) (float64, bool) {
	slices.Sort(values)
	return statistics.QuantileSorted(values, .99), len(values) > 0
}

// Bufferbloat grades the delay that a load adds to the median round-trip time. The thresholds are those of
// DSLReports and LibreQoS: A+ below 5 ms, A below 30 ms, B below 60 ms, C below 200 ms, D below 400 ms,
// otherwise F.
func Bufferbloat(addedNs float64) string {
	for _, g := range []struct {
		ms    float64
		grade string
	}{{5, "A+"}, {30, "A"}, {60, "B"}, {200, "C"}, {400, "D"}} {
		if addedNs < g.ms*1e6 {
			return g.grade
		}
	}
	return "F"
}

func TooFewProbes(n int, q percentile) string {
	if n == 0 {
		return "no probe was answered"
	}
	return fmt.Sprintf("%d answered probes do not carry %s", n, q.Name)
}

// addLatency adds the round-trip times and losses of the probes, on the idle path and under load.
func (m *Measured) addLatency(t *record.Trial) {
	for _, p := range []struct {
		kind, loss string
		l          *record.Latency
	}{{"idle", ProbeLossIdle, t.Idle}, {"loaded", ProbeLoss, t.Loaded}} {
		if p.l == nil || len(p.l.RTT) == 0 {
			continue
		}

		sorted := Answered(p.l)
		m.Set(p.loss, float64(len(p.l.RTT)-len(sorted))/float64(len(p.l.RTT)))
		m.RTTs[p.kind] = sorted
		for _, q := range Percentiles {
			if statistics.Carries(len(sorted), q.Level) {
				m.Set(RTT(p.kind, q), statistics.QuantileSorted(sorted, q.Level))
				continue
			}

			m.Lack(TooFewProbes(len(sorted), q), RTT(p.kind, q))
		}
	}

	l := cmp.Or(t.Loaded, t.Idle, &record.Latency{})
	var late []float64
	for _, ns := range l.Late {
		late = append(late, float64(ns))
	}

	// For fewer than 100 probes, this is the largest delay.
	if ns, ok := p99(late); ok {
		m.Set(ProbeLate, ns)
	}

	if off, ok := spacingP99(l); ok {
		m.Set(probeSpacing, off)
	}
}
