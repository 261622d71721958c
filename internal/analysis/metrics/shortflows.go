package metrics

import (
	"fmt"
	"math"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// addShortFlows adds the metrics of the engines "flows" and "requests".
func (m *Measured) addShortFlows(t *record.Trial) {
	s := t.Traffic.ShortFlows
	if s == nil {
		return
	}

	seconds := t.Window.Seconds()
	if seconds <= 0 {
		return
	}

	rate := float64(s.Completed+s.Carried) / seconds
	if s.Kept {
		m.Set(RequestRate, rate)
		for _, q := range Percentiles[:4] {
			m.setTime(requestTime(q), q, s.Started, "request", s.Classes...)
		}
		return
	}

	m.Set(FlowRate, rate)
	m.addFlowTimes(s)
	if s.Started == 0 {
		m.Lack("no flow was begun in the window", FlowFailed, flowUnfinished)
		return
	}

	m.Set(FlowFailed, float64(s.Failed)/float64(s.Started))
	m.Set(flowUnfinished, float64(s.Unfinished)/float64(s.Started))
}

func (m *Measured) addFlowTimes(s *record.ShortFlows) {
	begun := int64(0)
	for _, c := range s.Late {
		begun += c.Flows
	}

	for _, q := range flowPercentiles {
		m.setTime(FlowTime("connect", q), q, begun, "handshake", record.FlowClass{Times: s.Connect})
		m.setTime(FlowTime("completion", q), q, s.Started, "flow", s.Classes...)
		for i, class := range s.Classes {
			if i < len(flowSizes) && class.Started > 0 {
				m.setTime(FlowTime("completion_"+flowSizes[i].name, q), q, class.Started, "flow", class)
			}
		}
	}

	if s.RateHz == 0 {
		return // no flow was due
	}

	m.setTime(flowLate, Percentiles[2], begun, "flow", record.FlowClass{Times: s.Late})
}

// setTime sets a percentile of the times of the given number of flows. Flows without a time count as slower
// than all others.
func (m *Measured) setTime(name string, q percentile, of int64, what string, classes ...record.FlowClass) {
	if !statistics.Carries(int(min(of, math.MaxInt32)), q.Level) {
		m.Lack(fmt.Sprintf("the number of %ss, %d, does not carry %s", what, of, q.Name), name)
		return
	}

	var all []bucket
	for _, class := range classes {
		for _, c := range class.Times {
			all = append(all, bucket{c.FromNs, c.Flows})
		}
	}

	ns, ok := quantileOf(all, of, q.Level)
	if !ok {
		m.Lack(fmt.Sprintf("of %d %ss too many failed or were not done by the window's end", of, what), name)
		return
	}

	m.Set(name, ns)
}
