package metrics

import (
	"cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// meterSlack is the tolerance, in ns, by which a meter's readings may begin late or end early in an interval.
// In a long interval, the tolerance is a fifth of its length instead. Smart plugs measure about once per
// second, and are queried as often.
const meterSlack = int64(1.5e9)

// addDrawn computes the power without and with load. Each comes from the best source that the run has. A
// meter measures the whole device. Without a meter, the sources are, best first: the sensors of the router,
// the sensors of the machine that runs all nodes, and the figures that the user entered. In a run with a
// meter, no other source is used.
func (m *Measured) addDrawn(t *record.Trial, p place) {
	idle := t.Window
	measured := t.Row.Kind == record.RowIdle
	for _, ph := range t.Phases {
		if ph.Name == record.PhaseIdle && !measured {
			idle = record.Window{Start: ph.Start, End: ph.End}
			measured = true
		}
	}

	typed := p.meter != nil && p.meter.TypedIn()
	if measured && !typed {
		watts, why := p.drawn(t, idle)
		m.setUnless(why, PowerIdle, watts)
	}

	if !t.Row.OfCell() {
		return
	}

	if typed {
		for name, watts := range map[string]float64{PowerIdle: p.meter.IdleW, PowerLoaded: p.meter.LoadedW} {
			if watts > 0 {
				m.Set(name, watts)
			} else {
				m.Lack("it was not typed in", name)
			}
		}
	} else {
		watts, why := p.drawn(t, t.Window)
		if p.meter == nil && why != "" && p.watts > 0 {
			watts = p.watts
			why = ""
		}

		m.setUnless(why, PowerLoaded, watts)
	}

	if t.Meter != nil {
		n := 0
		for _, at := range cmp.Or(t.Meter.Table, &record.Table{}).T {
			if t.Window.Holds(at) {
				n++
			}
		}

		m.Set(PowerReadings, float64(n))
	}
}

// drawn returns the mean power in an interval of a trial. If the power is unknown, it returns the reason.
func (p place) drawn(t *record.Trial, w record.Window) (watts float64, why string) {
	if p.meter != nil {
		return metered(t.Meter, w)
	}

	why = "no power source"
	if p.apart {
		why = "no machine carries all nodes"
	}

	if host, ok := t.Nodes[record.HostNode]; ok {
		watts, why = PowerOf(host, w.Start, w.End)
	}

	if p.own && len(p.routers) > 0 {
		v, no := PowerOf(t.Nodes[p.routers[0]], w.Start, w.End)
		if no == "" && v > 0 {
			return v, ""
		}
	}

	return watts, why
}

// metered returns the mean of a meter's readings in an interval. The readings must cover the interval.
func metered(s *record.Samples, w record.Window) (watts float64, why string) {
	if s == nil {
		return 0, "the meter was not read"
	}

	v := s.Table.Column("power_w")
	if v == nil {
		return 0, cmp.Or(s.Unavailable, "the meter gave no reading")
	}

	c := statistics.NewCurve(s.Table.T, v)
	watts, ok := c.Mean(w.Start, w.End)
	if !ok || !c.Covers(w.Start, w.End, max((w.End-w.Start)/5, meterSlack)) {
		return 0, "the readings of the meter do not cover the window"
	}

	return watts, ""
}
