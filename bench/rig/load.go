package rig

import (
	"context"
	"errors"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Sums are totals over the flows of a load.
type Sums struct {
	Goodput               float64 // bit/s that arrived
	Gigabytes             float64 // that arrived
	PPS, SentPPS          float64 // packets that arrived and that were sent, per second
	Sent, Lost            int64   // packets
	Duplicates, Reordered int64   // packets, if reported
	CPU                   float64 // seconds, both ends
	Memory                int64   // bytes, both ends
}

// Loss returns the share of lost packets.
func (s Sums) Loss() float64 { return float64(s.Lost) / float64(max(s.Sent, 1)) }

// Sum adds up the flows of a load. It returns an error if the accounts of one do not balance.
func Sum(t *record.Traffic) (s Sums, err error) {
	for _, f := range t.Flows {
		if f.ReceiverNs <= 0 || f.Packets != nil && f.SenderNs <= 0 {
			return s, fmt.Errorf("stream %d sent for %d and received for %d ns", f.Stream, f.SenderNs,
				f.ReceiverNs)
		}

		s.Gigabytes += float64(f.ReceivedBytes) / 1e9
		p := f.Packets
		if p == nil {
			continue
		}

		if p.Sent != p.Received+p.Lost {
			return s, fmt.Errorf("stream %d: sent %d, received %d, lost %d", f.Stream, p.Sent, p.Received,
				p.Lost)
		}

		s.PPS += 1e9 * float64(p.Received) / float64(f.ReceiverNs)
		s.SentPPS += 1e9 * float64(p.Sent) / float64(f.SenderNs)
		s.Sent, s.Lost = s.Sent+p.Sent, s.Lost+p.Lost
		if p.Duplicates != nil {
			s.Duplicates, s.Reordered = s.Duplicates+*p.Duplicates, s.Reordered+*p.Reordered
		}
	}

	up, down, _ := t.Goodput() // each flow has a window
	s.Goodput = up + down
	if s.Gigabytes == 0 && s.Sent == 0 {
		return s, errors.New("no byte was received")
	}

	for _, u := range t.Ends {
		s.CPU += float64(u.UserNs+u.SystemNs) / 1e9
		s.Memory += u.MemoryBytes
	}

	return s, nil
}

// Packets offers a load of packets on the plain path, exactly as requested.
func Packets(ctx context.Context, l *lab.Lab, e traffic.Engine, load record.Load) (t *record.Traffic, s Sums,
	err error) {
	ends, err := Ends(ctx, l, load.IP)
	if err != nil {
		return nil, s, err
	}

	if t, err = e.Offer(ctx, ends[0], ends[1], load, Clock{Load: load}); err != nil {
		return nil, s, fmt.Errorf("%s: %w", e.Name(), err)
	}

	for _, c := range t.Caveats {
		if c.Kind == "engine-fell-back" {
			return nil, s, errors.New(c.Text)
		}
	}

	if s, err = Sum(t); err == nil && s.Sent == 0 {
		err = errors.New("no packet was counted")
	}

	if err != nil {
		err = fmt.Errorf("%s: %w", e.Name(), err)
	}

	return t, s, err
}
