package analysis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Segment is a part of the path between two machines. It ends at a router or at the far end. Its latency
// includes both directions, and the time that the router takes to answer.
type Segment struct {
	Hop  int    `json:"hop"`            // number of the router at the segment's end; 0 means the far end
	Addr string `json:"addr,omitempty"` // address of that router
	// IdleNs and LoadedNs are the round-trip times from the near end to the segment's end, as medians over
	// the trials.
	IdleNs   float64 `json:"idle_ns"`
	LoadedNs float64 `json:"loaded_ns"`
	// AddedNs is the delay that the load adds to the round-trip time to this segment's end, minus the delay
	// that it adds to the round-trip time to the previous segment's end. It is negative if a router takes
	// longer to answer probes than to forward packets.
	AddedNs float64 `json:"added_ns"`
}

// minProbes is the minimum number of answers for the median of a hop.
const minProbes = 5

// segments returns the segments of a cell whose hops were probed both idle and loaded.
func (g *group) segments(good []*validity.Graded) (out []Segment) {
	idle := map[string][]float64{}
	loaded := map[string][]float64{}
	number := map[string]int{}
	add := func(into map[string][]float64, addr string, l *record.Latency) {
		rtts := metrics.Answered(l)
		if len(rtts) >= minProbes {
			into[addr] = append(into[addr], statistics.Median(rtts))
		}
	}
	take := func(trials []*validity.Graded) {
		for _, j := range trials {
			for _, h := range j.Trial.Hops {
				number[h.Addr] = h.Number
				add(idle, h.Addr, h.Idle)
				add(loaded, h.Addr, h.Loaded)
			}
		}
	}
	take(good)
	if len(idle) == 0 {
		take(validity.LastGood(g.idle))
	}

	for addr, n := range number {
		if len(idle[addr]) > 0 && len(loaded[addr]) > 0 {
			out = append(out, Segment{
				Hop:      n,
				Addr:     addr,
				IdleNs:   statistics.Median(idle[addr]),
				LoadedNs: statistics.Median(loaded[addr]),
			})
		}
	}

	slices.SortFunc(out, func(a, b Segment) int { return a.Hop - b.Hop })
	before, ok1 := g.cell.Metrics[metrics.RTTIdle]
	after, ok2 := g.cell.Metrics[metrics.RTTLoaded]
	if len(out) == 0 || !ok1 || !ok2 {
		return nil
	}

	out = append(out, Segment{IdleNs: before.Median, LoadedNs: after.Median})
	sofar := 0.0
	for i := range out {
		added := out[i].LoadedNs - out[i].IdleNs
		out[i].AddedNs = added - sofar
		sofar = added
	}

	return out
}

// minAdded is the smallest delay in ns, added on the whole path, for which segments are reported.
const minAdded = 1e6

// addSegments adds a finding about where the load adds latency.
func (g *group) addSegments() {
	all := g.cell.Segments
	if len(all) == 0 {
		return
	}

	far := all[len(all)-1]
	if far.LoadedNs-far.IdleNs < minAdded {
		return
	}

	var parts []string
	var facts []evidence.Evidence
	from := "the near end"
	for _, s := range all {
		to := "the far end"
		if s.Hop > 0 {
			to = fmt.Sprintf("router %d (%s)", s.Hop, s.Addr)
		}

		parts = append(parts, fmt.Sprintf("%s from %s to %s", unit.Nanoseconds(max(0, s.AddedNs)), from, to))
		facts = append(facts, evidence.Evidence{
			Element: s.Addr,
			Value:   new(s.AddedNs),
			Text: "round trip to " + to + ": " + unit.Nanoseconds(s.IdleNs) + " idle, " +
				unit.Nanoseconds(s.LoadedNs) + " under load",
		})
		from = to
	}

	g.cell.Findings = append(g.cell.Findings, evidence.NewFinding(evidence.FindingSegments,
		"of the "+unit.Nanoseconds(far.LoadedNs-far.IdleNs)+" that the load adds to the median round trip, "+
			strings.Join(parts, ", "), facts...))
}
