package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ours measures with one of our probes. Every slot must be accounted for, and every probe be stamped by the
// kernel: anything else is another measurement.
func ours(name string) func(context.Context, *bench) (measured, error) {
	return func(ctx context.Context, b *bench) (measured, error) {
		load := record.Load{
			Protocol: "echo", Direction: record.Up, Streams: 1, IP: 4, PacketSize: packetSize, Opener: "near",
			Port: 20900, Duration: time.Duration(b.seconds) * time.Second, Interval: interval,
			Tag: fmt.Sprintf("latency %d", host.Monotonic()),
		}
		l, err := rig.Prober(name).Probe(ctx, b.near, b.far, load, rig.Clock{Load: load})
		if err != nil {
			return measured{}, err
		}
		r := measured{tool: name, sent: len(l.RTT)}
		for _, ns := range l.RTT {
			if ns >= 0 {
				r.rtt = append(r.rtt, float64(ns))
			}
		}
		slices.Sort(r.rtt)
		switch {
		case l.Stamps != "kernel":
			return measured{}, fmt.Errorf("%s stamps (%v), want the kernel's", l.Stamps, l.Details)
		case len(l.RTT)+int(l.SkippedSlots) != b.count():
			return measured{}, fmt.Errorf("%d probes and %d slots skipped, want %d together", len(l.RTT),
				l.SkippedSlots, b.count())
		case len(r.rtt) == 0:
			return measured{}, fmt.Errorf("no probe of %d was answered", r.sent)
		}
		return r, nil
	}
}
