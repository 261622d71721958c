package watch

import (
	"cmp"
	"errors"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe"
)

// samplerCost is the entry of record.Cost for what the loop costs beside the reads: waking up, clocks,
// copying.
const samplerCost = "sampler"

// collect hands each probe's samples of from…to, and the nearest outside, to send, and returns the rest:
// cost, log lines, stalls.
func (s *sampling) collect(from, to int64, send func(record.Samples) error) (record.NodeData, error) {
	var d record.NodeData
	for _, src := range s.sources {
		samples, cost := s.cut(src, from, to)
		if cost.Reads > 0 { // also when there was nothing to be had
			d.Cost = append(d.Cost, cost)
		}
		if err := send(samples); err != nil {
			return record.NodeData{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, loop := s.overhead.cut(from, to)
	loop.Probe = samplerCost
	d.Cost = append(d.Cost, loop)
	for _, l := range s.log {
		if l.At >= from && l.At <= to {
			d.Log = append(d.Log, l)
		}
	}
	for _, st := range s.stalls {
		// A stall lasts from when the sample was due until it was taken.
		if st.At >= from && st.At-st.LateNs <= to {
			d.Stalls = append(d.Stalls, st)
		}
	}
	return d, nil
}

func (s *sampling) cut(src *source, from, to int64) (record.Samples, record.Cost) {
	s.mu.Lock()
	view, reason, sampler := src.kept.snapshot(), src.reason, src.sampler
	var metrics []record.Metric
	if d, ok := sampler.(probe.Declarer); ok {
		metrics = d.Declared()
	}
	s.mu.Unlock()
	out := record.Samples{Probe: src.probe.Name(), Scope: probe.Scope(src.probe)}
	table, cost := view.cut(from, to)
	cost.Probe = out.Probe
	switch {
	case len(table.T) > 0 && len(table.Names) > 0:
		out.Table = table
		out.Metrics = slices.Concat(src.probe.Metrics(), metrics)
	case len(table.T) > 0:
		out.Unavailable = "nothing to sample"
		if e, ok := src.probe.(probe.Emptier); ok {
			out.Unavailable = cmp.Or(e.Empty(), out.Unavailable)
		}
	case reason != "":
		out.Unavailable = reason
	default:
		out.Unavailable = errNotSampled.Error()
	}
	return out, cost
}

var errNotSampled = errors.New("no sample was taken in that time")
