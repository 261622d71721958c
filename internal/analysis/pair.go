package analysis

import (
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// isPair reports whether the ends are two machines of their own, with something between that nobody
// watched.
func isPair(run *record.Run) bool { return run.Lab == "pair" }

// endMachines are the nodes of a pair that send and receive, near to far; none in other labs.
func (s suspect) endMachines() []string {
	t := topologyOf(s.run, s.t.Row.Factors)
	if !isPair(s.run) || t == nil {
		return nil
	}
	return []string{t.Near, t.Far}
}

// busyTester fires when a core of an end's machine was always busy: the kernel does most of the work of
// sending and receiving outside of the generator's own threads.
func busyTester(s suspect) []Reason {
	for _, node := range s.endMachines() {
		for _, c := range coresOf(s.t.Nodes[node]) {
			if share, ok := c.busy(s.t.Window.Start, s.t.Window.End); ok && share >= gateThread {
				return because(ReasonTesterLimited,
					"%s of the %s, an end of the path, was busy %s of the window", c.name, node,
					unit.Percent(share))
			}
		}
	}
	return nil
}

// othersOnEnds fires when others used an end's machine in the window.
func othersOnEnds(s suspect) []Reason {
	for _, node := range s.endMachines() {
		m := newMeasured()
		m.addCPU(node, s.t.Nodes[node], s.t.Window)
		m.addForeign(node, s.t.Nodes[node], s.t.Window)
		if v := m.values[node+"_"+foreignRatio]; v > gateForeign {
			return because(ReasonBackgroundLoad, "other processes used %s of a core on the %s",
				unit.Percent(v), node)
		}
		if v := m.values[node+"_"+stealRatio]; v > gateSteal {
			return because(ReasonBackgroundLoad, "the hypervisor took %s of the cores of the %s away",
				unit.Percent(v), node)
		}
	}
	return nil
}
