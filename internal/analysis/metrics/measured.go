package metrics

import (
	"math"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Measured holds the metrics of one trial, and the reasons for missing ones. No metric is in both maps.
type Measured struct {
	Values  map[string]float64
	Missing map[string]string
	RTTs    map[string][]float64 // answered probes, sorted; keys are "idle" and "loaded"
	// ClockFrom is the source of the clock of a cipher's CPU.
	ClockFrom string
	// Confidence is the confidence in Responsiveness, if there is one.
	Confidence string
	busy       float64 // sum of the busy shares of the host's cores; 0 means unknown
	routers    float64 // sum of the busy shares of the routers' own cores; 0 means unknown
}

func NewMeasured() *Measured {
	return &Measured{Values: map[string]float64{}, Missing: map[string]string{}, RTTs: map[string][]float64{}}
}

func (m *Measured) Set(name string, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		m.Lack("not a number", name)
		return
	}

	m.Values[name] = v
	delete(m.Missing, name)
}

func (m *Measured) Lack(why string, names ...string) {
	for _, n := range names {
		if _, ok := m.Values[n]; !ok {
			m.Missing[n] = why
		}
	}
}

// Measure computes the metrics of one successful trial.
func Measure(t *record.Trial, p place) *Measured {
	m := NewMeasured()
	if t.Traffic != nil {
		m.addGoodput(t.Traffic)
		m.addPackets(t.Traffic)
		m.addTCP(t.Traffic, t.Window)
		m.addEngine(t.Traffic)
		m.addConsistency(t)
		m.addResponsiveness(t)
		m.addShortFlows(t)
	} else if t.Row.Kind == record.RowLoad && t.Foreign == nil {
		m.Lack("the engine reported nothing", Goodput)
	}

	m.addCipher(t)
	m.addLatency(t)
	if t.Foreign != nil {
		for name, v := range t.Foreign.Values {
			m.Set(name, v)
		}

		m.Lack(t.Foreign.Tool+" told none", Goodput)
		return m
	}

	m.addNodes(t, p)
	m.addDrawn(t, p)
	if t.Row.Kind == record.RowLoad {
		m.addEfficiency(p)
	}

	return m
}

// setUnless sets a value, or the reason why it is missing.
func (m *Measured) setUnless(why, name string, v float64) {
	if why != "" {
		m.Lack(why, name)
		return
	}

	m.Set(name, v)
}
