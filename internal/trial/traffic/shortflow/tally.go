package shortflow

import (
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// flowTally holds the counts of the flows that one thread started.
type flowTally struct {
	record.ShortFlows
	window        record.Window
	connect, late times
	begun         [len(flowClasses)]int64
	took          [len(flowClasses)]times
}

func newFlowTally(w record.Window) *flowTally {
	return &flowTally{window: w, ShortFlows: record.ShortFlows{Failures: map[string]int64{}}}
}

// within reports whether the scheduled start of a flow is in the window.
func (t *flowTally) within(intended int64) bool {
	return intended >= t.window.Start && intended < t.window.End
}

// begin counts a flow that is due, whether or not it starts.
func (t *flowTally) begin(intended, size int64) {
	if t.within(intended) {
		t.Started++
		t.begun[flowClass(size)]++
	}
}

// launch records the delay of a flow's start.
func (t *flowTally) launch(intended, at int64) {
	if t.within(intended) {
		t.late.see(at - intended)
	}
}

// connectionDue is the time after the scheduled start at which a flow that is not connected counts as
// tardy. It is shorter than the second after which Linux retransmits a lost SYN.
const connectionDue = 200 * time.Millisecond

// connected records a completed handshake: the scheduled start of its flow, the time of completion, and the
// duration in ns.
func (t *flowTally) connected(intended, at, took int64) {
	if !t.within(intended) {
		return
	}

	t.connect.see(took)
	if at-intended > int64(connectionDue) {
		t.unconnected(intended)
	}
}

// unconnected counts a flow that was not connected in time, unless the window ended before that time.
func (t *flowTally) unconnected(intended int64) {
	if t.within(intended) && intended+int64(connectionDue) <= t.window.End {
		t.Tardy++
	}
}

// complete counts a flow whose last byte has arrived.
func (t *flowTally) complete(intended, at, size, confirmed int64) {
	switch {
	case t.within(intended) && at > t.window.End:
		t.Unfinished++
	case t.within(intended):
		t.Completed++
		t.Asked += size
		t.Confirmed += confirmed
		t.took[flowClass(size)].see(at - intended)
	case intended < t.window.Start && at >= t.window.Start && at <= t.window.End:
		t.Carried++
	}
}

// fail counts a failed flow, and the reason why it failed.
func (t *flowTally) fail(intended, at int64, why string) {
	switch {
	case !t.within(intended):
	case at > t.window.End:
		t.Unfinished++
	default:
		t.Failed++
		t.Failures[why]++
	}
}

// abandon counts a flow that had not finished, or not started, when the load ended.
func (t *flowTally) abandon(intended int64) {
	if t.within(intended) {
		t.Unfinished++
	}
}

// joinTallies returns the sum of the counts of all threads.
func joinTallies(tallies []*flowTally, load record.Load, kept bool) *record.ShortFlows {
	sum := newFlowTally(record.Window{})
	sum.Kept, sum.RateHz, sum.DueNs = kept, load.ConnectionRate, int64(connectionDue)
	for _, t := range tallies {
		sum.Started += t.Started
		sum.Completed += t.Completed
		sum.Failed += t.Failed
		sum.Unfinished += t.Unfinished
		sum.Carried += t.Carried
		sum.Tardy += t.Tardy
		sum.Asked += t.Asked
		sum.Confirmed += t.Confirmed
		for why, n := range t.Failures {
			sum.Failures[why] += n
		}

		sum.connect.add(&t.connect)
		sum.late.add(&t.late)
		for i := range sum.took {
			sum.begun[i] += t.begun[i]
			sum.took[i].add(&t.took[i])
		}
	}

	sum.Connect, sum.Late = sum.connect.list(), sum.late.list()
	for i, from := range flowClasses {
		sum.Classes = append(sum.Classes, record.FlowClass{
			FromBytes: from,
			Started:   sum.begun[i],
			Times:     sum.took[i].list(),
		})
	}

	return &sum.ShortFlows
}

// times holds the number of durations by bucket. The buckets are 64 ns wide; from 4096 ns on, each
// doubling has 64 buckets.
type times struct{ traffic.Buckets }

const timesOctave = 6 // log2 of the number of buckets per doubling

func (t *times) see(ns int64) { t.See(max(ns, 0), timesOctave) }

func (t *times) add(o *times) {
	for len(t.Buckets) < len(o.Buckets) {
		t.Buckets = append(t.Buckets, 0)
	}

	for i, n := range o.Buckets {
		t.Buckets[i] += n
	}
}

func (t *times) list() []record.TimeCount {
	out := []record.TimeCount{}
	for i, n := range t.Buckets {
		if n > 0 {
			out = append(out, record.TimeCount{FromNs: traffic.BucketEdge(i, timesOctave), Flows: n})
		}
	}
	return out
}
