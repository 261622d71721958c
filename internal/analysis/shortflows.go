package analysis

import (
	"fmt"
	"math"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// flowPercentiles are told of flows and of handshakes; requests have p99.9 as well.
var flowPercentiles = percentiles[:3]

// flowSizes name the classes of flows by their least size.
var flowSizes = [...]struct{ name, words string }{
	{"small", "below 100 kB"}, {"medium", "of 100 kB or more, below 10 MB"}, {"large", "of 10 MB or more"},
}

func flowMetrics() []record.Metric {
	var all []record.Metric
	path := func(name, unit, better, doc string) {
		all = append(all, record.Metric{Name: name, Unit: unit, Better: better, Scope: record.ScopePath,
			Doc: doc})
	}
	path(flowRate, "flows/s", record.Higher, "short flows, each on a TCP connection of its own, that were "+
		"completed in the window, per second; engine flows")
	for _, q := range flowPercentiles {
		path(flowTime("connect", q), "ns", record.Lower,
			"TCP handshake of the flows begun in the window, from the call to its answer, "+q.name)
	}
	for _, q := range flowPercentiles {
		path(flowTime("completion", q), "ns", record.Lower,
			"flow completion time, from a flow's intended start to the last byte of the answer, "+q.name+
				" of those to start in the window; what failed or was not done by its end counts as slower "+
				"than all others")
	}
	for _, s := range flowSizes {
		for _, q := range flowPercentiles {
			path(flowTime("completion_"+s.name, q), "ns", record.Lower, "the same of flows "+s.words+", "+
				q.name)
		}
	}
	path(flowFailed, "ratio", record.Lower,
		"flows that were refused, reset or wrongly answered ÷ those to start in the window")
	path(flowUnfinished, "ratio", "", "flows that were not done by the window's end ÷ those to start in it")
	path(flowLate, "ns", record.Lower, "how much later than intended a flow was begun, 99th percentile: for "+
		"want of time or of open connections; where they are begun at a rate")
	path(requestRate, "requests/s", record.Higher,
		"requests whose response was complete in the window, per second, of all connections; engine requests")
	for _, q := range percentiles[:4] {
		path(requestTime(q), "ns", record.Lower, "from sending a request to the last byte of its response, "+
			q.name+" of those sent in the window")
	}
	return all
}

const (
	flowRate       = "flows_per_s"
	flowFailed     = "flow_failed_ratio"
	flowUnfinished = "flow_unfinished_ratio"
	flowLate       = "flow_late_p99_ns"
	requestRate    = "requests_per_s"
)

func flowTime(what string, q percentile) string { return "flow_" + what + "_" + q.name + "_ns" }

func requestTime(q percentile) string { return "request_" + q.name + "_ns" }

// addShortFlows computes what the engines flows and requests have to say.
func (m *measured) addShortFlows(t *record.Trial) {
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
		m.set(requestRate, rate)
		for _, q := range percentiles[:4] {
			m.setTime(requestTime(q), q, s.Started, "request", s.Classes...)
		}
		return
	}
	m.set(flowRate, rate)
	m.addFlowTimes(s)
	if s.Started == 0 {
		m.lack("no flow was begun in the window", flowFailed, flowUnfinished)
		return
	}
	m.set(flowFailed, float64(s.Failed)/float64(s.Started))
	m.set(flowUnfinished, float64(s.Unfinished)/float64(s.Started))
}

func (m *measured) addFlowTimes(s *record.ShortFlows) {
	begun := int64(0)
	for _, c := range s.Late {
		begun += c.Flows
	}
	for _, q := range flowPercentiles {
		m.setTime(flowTime("connect", q), q, begun, "handshake", record.FlowClass{Times: s.Connect})
		m.setTime(flowTime("completion", q), q, s.Started, "flow", s.Classes...)
		for i, class := range s.Classes {
			if i < len(flowSizes) && class.Started > 0 {
				m.setTime(flowTime("completion_"+flowSizes[i].name, q), q, class.Started, "flow", class)
			}
		}
	}
	if s.RateHz == 0 {
		return // nothing was due at a time of its own
	}
	m.setTime(flowLate, percentiles[2], begun, "flow", record.FlowClass{Times: s.Late})
}

// setTime sets a percentile of the times of so many. Those without a time are slower than all others.
func (m *measured) setTime(name string, q percentile, of int64, what string, classes ...record.FlowClass) {
	if !Carries(int(min(of, math.MaxInt32)), q.level) {
		m.lack(fmt.Sprintf("the number of %ss, %d, does not carry %s", what, of, q.name), name)
		return
	}
	ns, ok := timeQuantile(q.level, of, classes)
	if !ok {
		m.lack(fmt.Sprintf("of %d %ss too many failed or were not done by the window's end", of, what), name)
		return
	}
	m.set(name, ns)
}

// timeQuantile is the least time of the bucket in which the quantile of so many flows is; false if it is
// among those that have no time.
func timeQuantile(level float64, of int64, classes []record.FlowClass) (float64, bool) {
	rank := int64(math.Ceil(level * float64(of)))
	at := make([]int, len(classes)) // each is in ascending order
	for {
		next := -1
		for i, c := range classes {
			if at[i] < len(c.Times) && (next < 0 ||
				c.Times[at[i]].FromNs < classes[next].Times[at[next]].FromNs) {
				next = i
			}
		}
		if next < 0 {
			return 0, false
		}
		n := classes[next].Times[at[next]]
		if rank -= n.Flows; rank <= 0 {
			return float64(n.FromNs), true
		}
		at[next]++
	}
}

// flowAccounts fires when flows do not add up.
func flowAccounts(tr *record.Traffic) []Reason {
	s := tr.ShortFlows
	switch {
	case s == nil:
		return nil
	case s.Started != s.Completed+s.Failed+s.Unfinished:
		return because(ReasonAccounting, "%d flows started ≠ %d completed + %d failed + %d unfinished",
			s.Started, s.Completed, s.Failed, s.Unfinished)
	case s.Asked != s.Confirmed:
		return because(ReasonAccounting, "%d bytes of flows were asked for, %d confirmed", s.Asked,
			s.Confirmed)
	case s.Started == 0:
		return because(ReasonAccounting, "no flow was begun in the window")
	}
	return nil
}
