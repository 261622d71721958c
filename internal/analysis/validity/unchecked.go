package validity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// unchecked lists the checks for which a trial gave no means, so that valid does not mean that nobody looked.
func unchecked(s suspect) []evidence.Unchecked {
	var out []evidence.Unchecked
	lack := func(kind, why string) {
		if why != "" {
			out = append(out, evidence.Unchecked{Kind: kind, Text: why})
		}
	}
	lack(evidence.ReasonNotInTunnel, s.pathUnproven())
	if p := s.t.Path; p == nil || p.PathMTU == 0 {
		lack(evidence.ReasonWrongMTU, "the path's MTU was not tried")
	}
	if s.ceil.Bps <= 0 {
		lack(evidence.ReasonAboveCeiling, "no rate of the path is known")
	}
	if tr := s.traffic(); !s.run.Design.Measure.Verify && !tr.Load.Verify {
		lack(evidence.ReasonCorrupt, "the plan verifies no content")
	}
	if len(s.t.Nodes) == 0 {
		lack(evidence.ReasonSamplerStalled, "nothing watched the nodes")
	}
	lack(evidence.ReasonThrottled, s.heatUnseen())
	lack(evidence.ReasonBackgroundLoad, s.unseen("foreign"))
	lack(evidence.ReasonKernelLog, s.unseen("kernellog"))
	lack(evidence.ReasonLinkFlap, s.unseen("link"))
	if _, all := metrics.Received(s.t.Traffic); !all {
		lack(evidence.ReasonDrift, "the engine gave no series for every flow")
	}
	return out
}

// pathUnproven is why no counter of the window tells which path the traffic took.
func (s suspect) pathUnproven() string {
	switch p := s.t.Path; {
	case p == nil || !slices.ContainsFunc(p.Counters,
		func(c record.CounterMove) bool { return c.When != "check" }):
		return "no counter of the path was read"
	case p.CountedFrom == 0 && s.t.Window.Begin < s.t.Window.Start: // a warm-up is no proof
		return "the path's counters were read before and after the load only"
	case payloads(s.traffic()).all == 0:
		return "no payload arrived that the path's counters could be held against"
	}
	return ""
}

// unseen is why a probe told nothing on any node.
func (s suspect) unseen(probe string) string {
	why := "nothing watched the nodes"
	for _, node := range slices.Sorted(maps.Keys(s.t.Nodes)) {
		table, missing := metrics.SamplesOf(s.t.Nodes[node], probe)
		if table != nil {
			return ""
		}
		if why = missing; node == record.HostNode && !strings.HasSuffix(missing, "did not run") {
			break // whose reason says most
		}
	}
	return why
}

// heatUnseen is why nothing tells whether heat or power held a machine back.
func (s suspect) heatUnseen() string {
	for _, n := range s.t.Nodes {
		for _, probe := range []string{"thermal", "cpufreq"} {
			if table, _ := metrics.SamplesOf(n, probe); table != nil &&
				slices.ContainsFunc(table.Names, tellsThrottling) {
				return ""
			}
		}
	}
	return cmp.Or(s.unseen("thermal"), "no throttle counter, clock limit or device that cools a CPU by "+
		"slowing it")
}

// tellsThrottling says whether throttleSign can read a column.
func tellsThrottling(name string) bool {
	cut := strings.LastIndexByte(name, '/')
	label, stem := strings.ToLower(name[:max(cut, 0)]), name[cut+1:]
	return strings.Contains(stem, "throttle") || stem == "limit_hz" || stem == "cooling_state" &&
		slices.ContainsFunc(slowing[:], func(p string) bool { return strings.Contains(label, p) })
}

// uncheckedIn is the caveat that counts what could not be checked in the trials of loads, if anything.
func uncheckedIn(all []*Judged) []record.Caveat {
	count := map[evidence.Unchecked]int{}
	var order []evidence.Unchecked
	loads := 0
	for _, j := range all {
		if j.Trial.Row.Kind != record.RowLoad || j.Grade == evidence.GradeFailed {
			continue
		}
		loads++
		for _, u := range j.Unchecked {
			if count[u]++; count[u] == 1 {
				order = append(order, u)
			}
		}
	}
	var words []string
	for _, u := range order {
		in := "any trial"
		if n := count[u]; n < loads {
			in = fmt.Sprintf("%d of %d trials", n, loads)
		}
		words = append(words, fmt.Sprintf("%s in %s (%s)", u.Kind, in, u.Text))
	}
	if len(words) == 0 {
		return nil
	}
	return []record.Caveat{{Kind: "unchecked", Text: "valid says nothing of what was not checked: " +
		strings.Join(words, "; ")}}
}
