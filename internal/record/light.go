package record

import (
	"maps"
	"slices"
	"strconv"
)

// Light is the trial without what grows with its length: series, raw output, and of probes all but their
// round trips. The trial itself keeps them.
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
	for _, slot := range []**Latency{&t.Idle, &t.Loaded} {
		if *slot != nil {
			l := **slot
			l.UserRTT, l.SentAt, l.Late, l.EchoNs = nil, nil, nil, nil
			*slot = &l
		}
	}
	return t
}

// Apart is the trial with copies of all in which a table, raw output or the latency of a hop hangs, so that
// these can be taken out of it.
func (t Trial) Apart() Trial {
	t.Meter, t.Foreign, t.Traffic = copyOf(t.Meter), copyOf(t.Foreign), copyOf(t.Traffic)
	if t.Traffic != nil {
		t.Traffic.Flows = slices.Clone(t.Traffic.Flows)
		for i, f := range t.Traffic.Flows {
			t.Traffic.Flows[i].TCP = copyOf(f.TCP)
		}
	}
	t.Hops = slices.Clone(t.Hops)
	for i, h := range t.Hops {
		t.Hops[i] = copyOf(h)
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

// Tables names every place of a trial where a table can hang, as docs/reference/store.md does.
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
			// n is a copy of the map's value, but its slice is the trial's.
			slots["nodes/"+name+"/"+strconv.Itoa(i)] = &n.Samples[i].Table
		}
	}
	return slots
}
