package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
)

func echo(ctx context.Context, b *bench) (measured, error) { return ours(ctx, b, latency.Echo{}) }

func icmp(ctx context.Context, b *bench) (measured, error) { return ours(ctx, b, latency.ICMP{}) }

// ours measures with one of our probes. Every slot must be accounted for, and every probe be stamped by the
// kernel: anything else is another measurement.
func ours(ctx context.Context, b *bench, p traffic.Prober) (measured, error) {
	near := traffic.End{Node: b.near.Name, Agent: b.near.Agent, Addr: b.addr[0], Target: b.addr[0],
		Offset: b.offset[0]}
	far := traffic.End{Node: b.far.Name, Agent: b.far.Agent, Addr: b.addr[1], Target: b.addr[1],
		Offset: b.offset[1]}
	load := record.Load{
		Protocol: "echo", Direction: record.Up, Streams: 1, IP: 4, PacketSize: packetSize, Opener: "near",
		Port:     20900,
		Duration: time.Duration(b.o.seconds) * time.Second, Interval: interval, Tag: fmt.Sprintf("latency %d",
			host.Monotonic()),
	}
	l, err := p.Probe(ctx, near, far, load, clock{load})
	if err != nil {
		return measured{}, err
	}
	r := measured{tool: p.Name(), sent: len(l.RTT)}
	for _, ns := range l.RTT {
		if ns >= 0 {
			r.rtt = append(r.rtt, float64(ns))
		}
	}
	slices.Sort(r.rtt)
	switch {
	case l.Stamps != "kernel":
		return measured{}, fmt.Errorf("%s stamps (%v), want the kernel's", l.Stamps, l.Details)
	case len(l.RTT)+int(l.SkippedSlots) != b.o.count():
		return measured{}, fmt.Errorf("%d probes and %d slots skipped, want %d together", len(l.RTT),
			l.SkippedSlots, b.o.count())
	case len(r.rtt) == 0:
		return measured{}, fmt.Errorf("no probe of %d was answered", r.sent)
	}
	return r, nil
}

// clock conducts one probe that runs alone.
type clock struct{ load record.Load }

func (c clock) Ready(context.Context) (record.Window, error) {
	w := record.Window{Begin: host.Monotonic() + int64(50*time.Millisecond)}
	w.Start = w.Begin
	w.End = w.Start + int64(c.load.Duration)
	w.Stop = w.End + int64(200*time.Millisecond)
	return w, nil
}

func (clock) Progress(traffic.Progress) {}
