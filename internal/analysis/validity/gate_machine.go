package validity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// throttled returns a reason if a machine was slowed down in the window: a throttle counter grew, a cooling
// device slowed a CPU down, or the maximum clock decreased.
func throttled(s trialCheck) []evidence.Reason {
	for _, node := range s.watched() {
		for _, probe := range []string{"thermal", "cpufreq"} {
			table, _ := metrics.SamplesOf(s.t.Nodes[node], probe)
			if table == nil {
				continue
			}

			for i, name := range table.Names {
				text := throttleSign(name, statistics.NewCurve(table.T, table.V[i]), s.t.Window)
				if text != "" {
					return because(evidence.ReasonThrottled, at{Node: node, Element: name}, "on %s %s", node,
						text)
				}
			}
		}
	}
	return nil
}

// slowing lists parts of the types of cooling devices that slow a CPU down. Most other cooling devices are
// fans, which slow nothing down.
var slowing = [...]string{"processor", "cpufreq", "cpu-idle", "cpuidle", "devfreq"}

// parted splits the name of a column into its label, in lower case, and its stem.
func parted(name string) (label, stem string) {
	cut := strings.LastIndexByte(name, '/')
	return strings.ToLower(name[:max(cut, 0)]), name[cut+1:]
}

func slows(label string) bool {
	return slices.ContainsFunc(slowing[:], func(p string) bool { return strings.Contains(label, p) })
}

func throttleSign(name string, c statistics.Curve, w record.Window) string {
	label, stem := parted(name)
	switch {
	case strings.Contains(stem, "throttle"):
		if d, ok := c.Moved(w.Start, w.End); ok && d > 0 {
			return fmt.Sprintf("%s grew by %.0f in the window", name, d)
		}
	case stem == "cooling_state":
		if v, ok := c.Largest(w.Start, w.End); ok && v > 0 && slows(label) {
			return fmt.Sprintf("%s was %.0f in the window", name, v)
		}
	case stem == "limit_hz":
		most, ok := c.Largest(w.Start, w.End)
		last := c.At(w.End)
		if ok && last < .99*most {
			return fmt.Sprintf("%s fell from %.0f to %.0f in the window", name, most, last)
		}
	}
	return ""
}

// backgroundLoad returns a reason if processes outside of the lab, or a hypervisor, used much CPU time of the
// machine in the window. It does not check the total load of the cores, because the test itself keeps them
// busy.
func backgroundLoad(s trialCheck) []evidence.Reason {
	nodes := append([]string{record.HostNode, "router"}, s.endMachines()...)
	if s.t.Cipher != nil {
		nodes = append(nodes, s.t.Cipher.Node)
	}

	for _, node := range nodes {
		for _, k := range []struct {
			stem, format string
			most         float64
		}{
			{metrics.ForeignRatio, "processes that are not the lab's used %s of a core on the %s",
				gateForeign},
			{metrics.StealRatio, "the hypervisor took %s of the cores of the %s away", gateSteal},
		} {
			metric := node + "_" + k.stem
			v := s.m.Values[metric]
			if v > k.most {
				return because(evidence.ReasonBackgroundLoad, at{Metric: metric, Node: node, Value: new(v)},
					k.format, unit.Percent(v), node)
			}
		}
	}

	return nil
}

// endMachines returns the sender and the receiver, from near to far, if both are separate machines. For a
// cipher, it returns none.
func (s trialCheck) endMachines() []string {
	t := metrics.TopologyOf(s.run, s.t.Row.Factors)
	if t == nil || s.t.Cipher != nil || !s.run.Node(t.Near).OwnMachine() {
		return nil
	}
	return []string{t.Near, t.Far}
}

// busyTester returns a reason if a core of an end's machine was always busy. It checks cores instead of the
// generator's threads, because the kernel does most of the work of sending and receiving.
func busyTester(s trialCheck) []evidence.Reason {
	for _, node := range s.endMachines() {
		kernel := s.run.Node(node).Kernel
		if kernel != "" && kernel == s.run.Tested().Kernel {
			continue // the router uses the same cores, so its work may keep the core busy
		}

		for _, c := range metrics.CoresOf(s.t.Nodes[node]) {
			if share, ok := c.Busy(s.t.Window.Start, s.t.Window.End); ok && share >= gateThread {
				return because(evidence.ReasonTesterLimited, at{
					Node:    node,
					Element: c.Name,
					Value:   new(share),
				}, "%s of the %s, an end of the path, was busy %s of the window", c.Name,
					node, unit.Percent(share))
			}
		}
	}
	return nil
}

// kernelPatterns lists parts of kernel messages that indicate trouble at any severity. NETDEV WATCHDOG
// reports a network interface whose transmitter hangs (net/sched/sch_generic.c). Most other messages are
// about lockups, heat, and hardware errors.
var kernelPatterns = [...]string{"netdev watchdog", "transmit queue", "hardware unit hang",
	"adapter reset", "reset adapter", "soft lockup", "hard lockup", "hung task", "rcu_sched detected stalls",
	"rcu_preempt detected stalls", "blocked for more than", "throttled", "throttling activated",
	"machine check", "hardware error", "out of memory", "oom-kill", "page allocation failure",
	"nf_conntrack: table full", "neighbour table overflow", "neighbor table overflow"}

// kernelLog returns a reason if the kernel logged a message during the load that has the severity error or
// higher, or matches one of kernelPatterns.
func kernelLog(s trialCheck) []evidence.Reason {
	for _, node := range s.watched() {
		for _, l := range s.t.Nodes[node].Log {
			if l.At < s.t.Window.Begin || l.At > max(s.t.Window.Stop, s.t.Window.End) {
				continue
			}

			if l.Severity <= 3 || slices.ContainsFunc(kernelPatterns[:], func(p string) bool {
				return strings.Contains(strings.ToLower(l.Text), p)
			}) {
				return because(evidence.ReasonKernelLog, at{Node: node, Element: "kernel"},
					"kernel of %s: %s", node, shorten(l.Text, 160))
			}
		}
	}
	return nil
}

func shorten(text string, most int) string {
	r := []rune(strings.TrimSpace(text))
	if len(r) <= most {
		return string(r)
	}
	return string(r[:most-1]) + "…"
}

// linkFlap returns a reason if a link went up or down in the window.
func linkFlap(s trialCheck) []evidence.Reason {
	for _, node := range s.watched() {
		for _, c := range metrics.SeriesOf(s.t.Nodes[node], "link", "carrier_changes") {
			if d, ok := c.Curve.Moved(s.t.Window.Start, s.t.Window.End); ok && d >= 1 {
				return because(evidence.ReasonLinkFlap, at{Node: node, Element: c.Label, Value: new(d)},
					"the link of %s on %s changed %.0f times in the window", c.Label, node, d)
			}
		}
	}
	return nil
}

// grade returns the grade of a trial with the given reasons.
func grade(t *record.Trial, reasons []evidence.Reason) string {
	switch {
	case t.Status != record.TrialOK:
		return evidence.GradeFailed
	case len(reasons) > 0:
		return evidence.GradeSuspect
	}
	return evidence.GradeValid
}
