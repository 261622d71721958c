package metrics

import "cmp"

// addEfficiency adds goodput divided by CPU time, and goodput divided by power.
func (m *Measured) addEfficiency(p place) {
	rate, ok := m.Values[Goodput]
	if !ok {
		m.Lack("there is no goodput", GoodputPerCPU, GoodputPerRouter, GoodputPerWatt)
		return
	}

	// The unit is bits per second ÷ CPU seconds per second, that is, bits per CPU second.
	m.ratio(GoodputPerCPU, rate, m.busy, "the CPU time of the host is unknown")
	why := p.why
	if p.own {
		why = "the CPU time of a router is unknown"
	}

	m.ratio(GoodputPerRouter, rate, m.routers, why)
	m.ratio(GoodputPerWatt, rate, m.Values[PowerLoaded], cmp.Or(m.Missing[PowerLoaded], "the power is 0 W"))
}

func (m *Measured) ratio(name string, over, under float64, why string) {
	if under > 0 {
		why = ""
	}

	m.setUnless(why, name, over/under)
}
