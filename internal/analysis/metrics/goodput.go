package metrics

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func (m *Measured) addGoodput(tr *record.Traffic) {
	up, down, err := tr.Goodput()
	if err != nil {
		m.Lack(err.Error(), Goodput)
		return
	}

	m.Set(Goodput, up+down)
	another := func(f record.Flow) bool { return f.Direction != tr.Flows[0].Direction }
	if slices.ContainsFunc(tr.Flows, another) {
		m.Set(GoodputUp, up)
		m.Set(GoodputDown, down)
	}
}

// Received returns one curve of received bytes for each flow whose receiver recorded a series. all reports
// whether the receivers of all flows did.
func Received(tr *record.Traffic) (curves []statistics.Curve, all bool) {
	if tr == nil {
		return nil, false
	}

	all = len(tr.Flows) > 0
	for _, f := range tr.Flows {
		var c statistics.Curve
		v := f.Received.Column("bytes")
		if v != nil {
			c = statistics.NewCurve(f.Received.T, v)
		}

		if len(c.T) < 2 {
			all = false
			continue
		}

		curves = append(curves, c)
	}

	return curves, all
}
