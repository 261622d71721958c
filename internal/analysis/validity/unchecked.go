package validity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// unchecked lists the checks that could not be made because data is missing, so that "valid" never means
// "unchecked".
func unchecked(s trialCheck) []evidence.Unchecked {
	var out []evidence.Unchecked
	lack := func(kind, why string) {
		if why != "" {
			out = append(out, evidence.Unchecked{Kind: kind, Text: why})
		}
	}
	if s.t.Cipher == nil { // ciphers have neither path nor series
		lack(evidence.ReasonNotInTunnel, s.pathUnproven())
		p := s.t.Path
		if p == nil || p.PathMTU == 0 {
			lack(evidence.ReasonWrongMTU, "the path's MTU was not tried")
		}

		if s.ceil.Bps <= 0 {
			lack(evidence.ReasonAboveCeiling, "no rate of the path is known")
		}

		tr := s.traffic()
		if !s.run.Design.Measure.Verify && !tr.Load.Verify {
			lack(evidence.ReasonCorrupt, "the plan verifies no content")
		}

		if len(s.t.Nodes) == 0 {
			lack(evidence.ReasonSamplerStalled, "nothing watched the nodes")
		}
	}

	lack(evidence.ReasonThrottled, s.heatUnseen())
	lack(evidence.ReasonBackgroundLoad, s.unseen("foreign", s.machines(false)))
	lack(evidence.ReasonKernelLog, s.unseen("kernellog", s.machines(true)))
	if s.t.Cipher != nil {
		return out
	}

	if s.run.Design.Measure.NoCeiling {
		lack(evidence.ReasonTesterLimited, "the plan leaves the tester's ceiling out")
	}

	lack(evidence.ReasonLinkFlap, s.unseen("link", s.pathNodes()))
	window := s.t.Window.End - s.t.Window.Start
	_, all := metrics.Received(s.t.Traffic)
	if !all {
		lack(evidence.ReasonDrift, "the engine gave no series for every flow")
	} else {
		lack(evidence.ReasonDrift, tooShort(window, statistics.DriftLeast))
	}

	if len(s.t.Nodes) > 0 {
		lack(evidence.ReasonSamplerStalled, tooShort(window, gateStall))
	}

	lack(evidence.ReasonEngineStalled, tooShort(window, gateStall))
	return out
}

// pathUnproven explains why no counter in the window shows the path of the traffic. It returns "" if a
// counter shows it.
func (s trialCheck) pathUnproven() string {
	switch p := s.t.Path; {
	case p == nil || !slices.ContainsFunc(p.Counters,
		func(c record.CounterDelta) bool { return c.When != "check" }):
		return "no counter of the path was read"
	// Counters of the whole load do not show what happened after the warm-up.
	case p.CountedFrom == 0 && s.t.Window.Begin < s.t.Window.Start:
		return "the path's counters were read before and after the load only"
	case payloads(s.traffic(), s.t.Window).of("").bytes == 0:
		return "no payload arrived that the path's counters could be held against"
	}
	return ""
}

// tooShort explains why a window is too short for a check, or returns "" if it is long enough. The parameter
// least is the minimum length of the window in ns.
func tooShort(window, least int64) string {
	if window >= least {
		return ""
	}
	return "the window is too short: it takes " + unit.Nanoseconds(float64(least))
}

// pathNodes returns the nodes on the path of the trial or, if the path is unknown, all nodes with samples.
// For a cipher, it returns the node that was measured.
func (s trialCheck) pathNodes() []string {
	if s.t.Cipher != nil {
		return []string{s.t.Cipher.Node}
	}

	t := metrics.TopologyOf(s.run, s.t.Row.Factors)
	if t == nil {
		return s.watched()
	}

	return slices.Concat([]string{t.Near}, t.Routers, []string{t.Far})
}

// machines returns the machines on the path: separate machines, and the host of nodes that share it. It
// includes guests only if kernels is set, because a guest's kernel is the only part of the guest that is not
// observed on the host.
func (s trialCheck) machines(kernels bool) (out []string) {
	for _, node := range s.pathNodes() {
		facts := s.run.Node(node)
		if facts.CPUs == record.CPUsShared || facts.Guest() {
			out = append(out, record.HostNode)
		}

		if facts.CPUs != record.CPUsShared && (kernels || !facts.Guest()) {
			out = append(out, node)
		}
	}

	slices.Sort(out)
	return slices.Compact(out)
}

// unseen explains why a probe has no samples on some of the nodes. It returns "" if it has samples on all of
// them.
func (s trialCheck) unseen(probe string, nodes []string) string {
	return s.lacking(nodes, func(n record.NodeData) string {
		_, missing := metrics.SamplesOf(n, probe)
		return missing
	})
}

// heatUnseen explains why it is unknown whether heat or power limits slowed a machine down.
func (s trialCheck) heatUnseen() string {
	return s.lacking(s.machines(false), func(n record.NodeData) string {
		for _, probe := range []string{"thermal", "cpufreq"} {
			table, _ := metrics.SamplesOf(n, probe)
			if table != nil &&
				slices.ContainsFunc(table.Names, showsThrottling) {
				return ""
			}
		}

		_, missing := metrics.SamplesOf(n, "thermal")
		return cmp.Or(missing, "no throttle counter, clock limit or device that cools a CPU by slowing it")
	})
}

// lacking explains which of the nodes lack something, and why. If all nodes lack it for the same reason, it
// does not name them.
func (s trialCheck) lacking(nodes []string, why func(record.NodeData) string) string {
	if len(s.t.Nodes) == 0 {
		return "nothing watched the nodes"
	}

	var order []string
	by := map[string][]string{}
	for _, node := range nodes {
		missing := "nothing watched it"
		n, watched := s.t.Nodes[node]
		if watched {
			missing = why(n)
		}

		if missing == "" {
			continue
		}

		if by[missing] == nil {
			order = append(order, missing)
		}

		by[missing] = append(by[missing], node)
	}

	if len(order) == 1 && len(by[order[0]]) == len(nodes) {
		return order[0]
	}

	for i, missing := range order {
		order[i] = fmt.Sprintf("on %s: %s", strings.Join(by[missing], " and "), missing)
	}

	return strings.Join(order, "; ")
}

// showsThrottling reports whether throttleSign can find signs of throttling in a column.
func showsThrottling(name string) bool {
	label, stem := parted(name)
	return strings.Contains(stem, "throttle") || stem == "limit_hz" || stem == "cooling_state" && slows(label)
}

// uncheckedIn returns a caveat with the number of checks that could not be made in the trials of cells. It
// returns none if all checks were made.
func uncheckedIn(all []*Graded) []record.Caveat {
	count := map[evidence.Unchecked]int{}
	var order []evidence.Unchecked
	loads := 0
	for _, j := range all {
		if !j.Trial.Row.OfCell() || j.Grade == evidence.GradeFailed {
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
		in := "in no trial is it known"
		n := count[u]
		if n < loads {
			in = fmt.Sprintf("it is not known in %d of %d trials", n, loads)
		}

		words = append(words, fmt.Sprintf("%s whether %s (%s)", in, evidence.KindOf(u.Kind).Words(), u.Text))
	}

	if len(words) == 0 {
		return nil
	}

	return []record.Caveat{{
		Kind: "unchecked",
		Text: strings.Join(words, "; "),
	}}
}
