package metrics

import "github.com/chokepoint-lab/chokepoint/internal/record"

func (m *Measured) addNodes(t *record.Trial, p place) {
	if t.Cipher == nil && (t.Row.Kind != record.RowLoad || t.Traffic == nil) {
		return
	}

	w := t.Window
	if host, ok := t.Nodes[record.HostNode]; ok {
		m.addMachine(record.HostNode, host, w)
		ns, why := grown(host, "guests", w, nil, "guest_cpu_ns")
		m.setUnless(why, GuestsCPU, ns/float64(w.End-w.Start))
		// The row "cpu" is the probe's sum over all cores.
		allCores := func(label string) bool { return label == "cpu" }
		for name, stem := range map[string]string{softnetDrops: "dropped", SoftnetSqueeze: "time_squeeze"} {
			sum, why := grown(host, "softnet", w, allCores, stem)
			m.setUnless(why, name, sum)
		}
	} else {
		why := "nothing watched the host"
		if p.apart {
			why = "no machine carries all nodes"
			m.addEnds(t, p)
		}

		m.Lack(why, append(prefixed(record.HostNode, machineStems...), softnetDrops, SoftnetSqueeze,
			GuestsCPU)...)
	}

	m.addRouters(t, p)
}

// addEnds adds the metrics named by endStems for both ends of the path, which are separate machines.
func (m *Measured) addEnds(t *record.Trial, p place) {
	for _, end := range p.ends {
		one := NewMeasured()
		one.addMachine(end, t.Nodes[end], t.Window, p.sharing(t, end)...)
		for _, name := range prefixed(end, endStems...) {
			m.setUnless(one.Missing[name], name, one.Values[name])
		}
	}
}
