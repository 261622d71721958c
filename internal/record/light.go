package record

import (
	"maps"
	"slices"
	"strconv"
)

// Light returns a copy of the trial without the data that grows with the trial's length: series, raw
// output, and everything about probes except round-trip times.
func (t Trial) Light() Trial {
	t.Nodes = nil
	t = t.Apart()
	for _, slot := range t.Tables() {
		*slot = nil
	}

	if t.Foreign != nil {
		t.Foreign.Raw = nil
	}

	if t.Traffic != nil {
		t.Traffic.Raw = nil
	}

	for _, l := range []*Latency{t.Idle, t.Loaded} {
		if l != nil {
			l.UserRTT = nil
			l.SentAt = nil
			l.Late = nil
			l.EchoNs = nil
		}
	}

	return t
}

// Apart returns a copy of the trial in which series and raw output can be removed without affecting the
// original.
func (t Trial) Apart() Trial {
	t.Meter = copyOf(t.Meter)
	t.Foreign = copyOf(t.Foreign)
	t.Idle = copyOf(t.Idle)
	t.Loaded = copyOf(t.Loaded)
	t.Traffic = copyOf(t.Traffic)
	if t.Traffic != nil {
		t.Traffic.Flows = slices.Clone(t.Traffic.Flows)
		for i, f := range t.Traffic.Flows {
			t.Traffic.Flows[i].TCP = copyOf(f.TCP)
		}
	}

	t.Hops = slices.Clone(t.Hops)
	for i, h := range t.Hops {
		h = copyOf(h)
		h.Idle = copyOf(h.Idle)
		h.Loaded = copyOf(h.Loaded)
		t.Hops[i] = h
	}

	t.Nodes = maps.Clone(t.Nodes)
	for name, n := range t.Nodes {
		n.Samples = slices.Clone(n.Samples)
		t.Nodes[name] = n
	}

	return t
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

// Tables returns pointers to all fields that contain a table. The keys are the names of the fields in
// docs/reference/store.md.
func (t *Trial) Tables() map[string]**Table {
	slots := map[string]**Table{}
	if t.Traffic != nil {
		for i := range t.Traffic.Flows {
			f := &t.Traffic.Flows[i]
			at := "traffic/flows/" + strconv.Itoa(i) + "/"
			slots[at+"sent"] = &f.Sent
			slots[at+"received"] = &f.Received
			if f.TCP != nil {
				slots[at+"tcp"] = &f.TCP.Series
			}
		}
	}

	if t.Meter != nil {
		slots["meter"] = &t.Meter.Table
	}

	if t.Foreign != nil {
		slots["foreign"] = &t.Foreign.Series
	}

	for name, n := range t.Nodes {
		for i := range n.Samples {
			// The pointer is into the slice, which the trial shares with its copy n.
			slots["nodes/"+name+"/"+strconv.Itoa(i)] = &n.Samples[i].Table
		}
	}

	return slots
}

// latencies returns the latency measurements of the trial by name.
func (t *Trial) latencies() map[string]*Latency {
	all := map[string]*Latency{"idle": t.Idle, "loaded": t.Loaded}
	for i, h := range t.Hops {
		at := "hops/" + strconv.Itoa(i) + "/"
		all[at+"idle"] = h.Idle
		all[at+"loaded"] = h.Loaded
	}

	maps.DeleteFunc(all, func(_ string, l *Latency) bool { return l == nil })
	return all
}
