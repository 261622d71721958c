package record

import "slices"

// Light is the trial without what grows with its length: series, raw output, and of probes all but their
// round trips. The trial itself keeps them.
func (t Trial) Light() Trial {
	t.Nodes = nil
	if t.Meter != nil {
		m := *t.Meter
		m.Table = nil
		t.Meter = &m
	}
	if t.Foreign != nil {
		f := *t.Foreign
		f.Series, f.Raw = nil, nil
		t.Foreign = &f
	}
	if t.Traffic != nil {
		tr := *t.Traffic
		tr.Raw, tr.Flows = nil, slices.Clone(tr.Flows)
		for i := range tr.Flows {
			f := &tr.Flows[i]
			f.Sent, f.Received = nil, nil
			if f.TCP != nil {
				tcp := *f.TCP
				tcp.Series = nil
				f.TCP = &tcp
			}
		}
		t.Traffic = &tr
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
