package validity

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// endMachines are the nodes of a pair that send and receive, near to far; none in other labs.
func (s suspect) endMachines() []string {
	t := metrics.TopologyOf(s.run, s.t.Row.Factors)
	if !metrics.IsPair(s.run) || t == nil {
		return nil
	}
	return []string{t.Near, t.Far}
}

// busyTester fires when a core of an end's machine was always busy: the kernel does most of the work of
// sending and receiving outside of the generator's own threads.
func busyTester(s suspect) []evidence.Reason {
	for _, node := range s.endMachines() {
		for _, c := range metrics.CoresOf(s.t.Nodes[node]) {
			if share, ok := c.Busy(s.t.Window.Start, s.t.Window.End); ok && share >= gateThread {
				return because(evidence.ReasonTesterLimited,
					"%s of the %s, an end of the path, was busy %s of the window", c.Name, node,
					unit.Percent(share))
			}
		}
	}
	return nil
}

// othersOnEnds fires when others used an end's machine in the window.
func othersOnEnds(s suspect) []evidence.Reason {
	for _, node := range s.endMachines() {
		m := metrics.NewMeasured()
		m.AddCPU(node, s.t.Nodes[node], s.t.Window)
		m.AddForeign(node, s.t.Nodes[node], s.t.Window)
		if v := m.Values[node+"_"+metrics.ForeignRatio]; v > gateForeign {
			return because(evidence.ReasonBackgroundLoad, "other processes used %s of a core on the %s",
				unit.Percent(v), node)
		}
		if v := m.Values[node+"_"+metrics.StealRatio]; v > gateSteal {
			return because(evidence.ReasonBackgroundLoad,
				"the hypervisor took %s of the cores of the %s away",
				unit.Percent(v), node)
		}
	}
	return nil
}
