package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Where the load's packets say that they belong to the window: bits of UDP's payload (struct datagram of
// package traffic; mark of frames.c in probe/bpf).
const (
	port           = 20000
	frameSize      = 46 // IP length of the smallest Ethernet frame
	datagramSize   = 200
	datagramMark   = 48 // 8 bits
	datagramWindow = 4
	datagramEnd    = 5
	framesMark     = 128 // 2 bits
	framesWindow   = 1
)

// planted is what is done to packets on their way.
type planted string

const (
	nothing    planted = "nothing"
	loss       planted = "loss"
	duplicates planted = "duplicates"
	reordering planted = "reordering"
)

type row struct {
	name   string
	engine traffic.Engine
	mode   string // of UDP
	ip     int
	pps    float64 // 0 = flat out
	plant  planted
	netem  *string // what plants on a virtual router; "" = it counts only
	share  float64 // of all packets
}

// localRows are flat out where the sender's own core carries a packet to its end, so that no queue can
// overflow, and else slow enough.
func localRows() []row {
	frames, sockets := rig.Engine("xdp"), rig.Engine("native")
	return []row{
		{name: "frames, IPv4", engine: frames, ip: 4, plant: nothing, share: .35},
		{name: "frames, IPv6", engine: frames, ip: 6, plant: nothing, share: .2},
		{name: "frames, 1 of 1000 dropped", engine: frames, ip: 4, plant: loss, share: .2},
		{name: "frames, 1 of 1000 doubled", engine: frames, ip: 4, plant: duplicates, share: .1},
		{name: "frames, 1 of 1000 held back", engine: frames, ip: 4, pps: 50e3, plant: reordering,
			share: .01},
		{name: "datagrams, exact", engine: sockets, mode: record.UDPExact, ip: 4, pps: 200e3, plant: nothing,
			share: .04},
		{name: "datagrams, exact, 1 of 1000 dropped", engine: sockets, mode: record.UDPExact, ip: 4,
			pps: 200e3, plant: loss, share: .04},
		{name: "datagrams, exact, 1 of 1000 doubled", engine: sockets, mode: record.UDPExact, ip: 4,
			pps: 200e3, plant: duplicates, share: .02},
		{name: "datagrams, exact, 1 of 1000 held back", engine: sockets, mode: record.UDPExact, ip: 4,
			pps: 50e3, plant: reordering, share: .01},
		{name: "datagrams, count, 1 of 1000 dropped", engine: sockets, mode: record.UDPCount, ip: 4,
			pps: 200e3, plant: loss, share: .03},
	}
}

// guestRows are rates that an emulated router forwards.
func guestRows() []row {
	exact := func(name string, pps float64, plant planted, netem string, share float64) row {
		return row{name: "datagrams, exact" + name, engine: rig.Engine("native"), mode: record.UDPExact,
			ip:  4,
			pps: pps, plant: plant, netem: &netem, share: share}
	}
	return []row{
		exact("", 8e3, nothing, "", .3),
		exact(", netem loss 1 %", 8e3, loss, "loss 1%", .3),
		exact(", netem duplicate 1 %", 8e3, duplicates, "duplicate 1%", .2),
		// All but one of 1000 pass those that are delayed.
		exact(", netem holds 1 of 1000 back", 4e3, reordering, "delay 50ms reorder 99.9%", .2),
	}
}

type stand struct {
	lab      *lab.Lab
	length   time.Duration // of one load
	out, log io.Writer
}

// account is what was planted and what the engine found.
type account struct {
	sent, lost, duplicates, reordered int64
	planted                           [3]int64 // lost, duplicates, reordered
	full                              int64    // dropped by full queues, also of packets after the window
}

// row runs loads until enough packets were sent, and holds each to its account.
func (b *stand) row(ctx context.Context, r row, packets int64) (account, error) {
	var all account
	for all.sent < packets {
		a, err := b.once(ctx, r)
		if err != nil {
			return all, err
		}
		// What is dropped by a queue cannot come twice or late.
		odd := a.duplicates != a.planted[1] || a.reordered != a.planted[2]
		if a.full > 0 {
			odd = a.duplicates > a.planted[1] || a.reordered > a.planted[2]
		}
		if odd || a.lost < a.planted[0] || a.lost > a.planted[0]+a.full {
			return all, fmt.Errorf("of %d packets planted %d lost, %d duplicates, %d reordered, dropped by "+
				"full queues %d; found %d, %d, %d", a.sent,
				a.planted[0], a.planted[1], a.planted[2], a.full, a.lost, a.duplicates, a.reordered)
		}
		all.sent, all.lost, all.duplicates, all.reordered = all.sent+a.sent, all.lost+a.lost, all.duplicates+
			a.duplicates, all.reordered+a.reordered
		all.full += a.full
		for i := range all.planted {
			all.planted[i] += a.planted[i]
		}
	}
	fmt.Fprintf(b.out, "| %s | %d | %d | %d | %d | %d | %d | %d | %d |\n", r.name, all.sent, all.planted[0],
		all.full, all.lost,
		all.planted[1], all.duplicates, all.planted[2], all.reordered)
	return all, nil
}

func (b *stand) once(ctx context.Context, r row) (a account, err error) {
	load := record.Load{Protocol: "udp", Direction: record.Up, Streams: 1, IP: r.ip, PacketSize: datagramSize,
		UDPMode: r.mode, Opener: "near",
		Port: port, Duration: b.length, Interval: 100 * time.Millisecond, Tag: fmt.Sprint("accounts ",
			host.Monotonic())}
	if r.mode == "" {
		load.PacketSize = frameSize + (r.ip-4)*10
	}
	if headers := 28 + (r.ip-4)*10; r.pps > 0 {
		load.RateBps = r.pps * 8 * float64(load.PacketSize-headers)
	}
	near, far, err := rig.Ends(ctx, b.lab, 0, r.ip)
	if err != nil {
		return a, err
	}
	if c := r.engine.Check(ctx, near, far, load); c.State != check.Yes || c.Reason != "" {
		return a, fmt.Errorf("%s: %v: %s", r.engine.Name(), c.State, c.Reason)
	}
	count, err := b.plant(ctx, r)
	if err != nil {
		return a, err
	}
	before, err := b.full(ctx)
	if err != nil {
		return a, errors.Join(err, count(nil, &a))
	}
	t, err := r.engine.Offer(ctx, near, far, load, rig.Clock{Load: load})
	if err != nil {
		return a, errors.Join(err, count(nil, &a))
	}
	if a.full, err = b.full(ctx); err != nil {
		return a, errors.Join(err, count(nil, &a))
	}
	a.full -= before
	for _, c := range t.Caveats {
		if c.Kind == "engine-fell-back" {
			return a, errors.Join(errors.New(c.Text), count(nil, &a))
		}
	}
	for i := range t.Flows {
		p := t.Flows[i].Packets
		if p.Sent != p.Received+p.Lost || p.Sent == 0 {
			return a, errors.Join(fmt.Errorf("sent %d, received %d, lost %d", p.Sent, p.Received, p.Lost),
				count(nil, &a))
		}
		a.sent, a.lost = a.sent+p.Sent, a.lost+p.Lost
		if p.Duplicates != nil {
			a.duplicates, a.reordered = a.duplicates+*p.Duplicates, a.reordered+*p.Reordered
		}
	}
	return a, count(t, &a)
}

// full is how many packets the queues on the way have dropped: those of the devices, and the cores'
// backlogs.
func (b *stand) full(ctx context.Context) (int64, error) {
	sum := int64(0)
	for node, ports := range map[string][]string{b.lab.Topology.Near: {"lan"}, "router": {"lan", "wan"},
		b.lab.Topology.Far: {"wan"}} {
		counters, err := b.lab.Counters(ctx, node, ports...)
		if err != nil {
			return 0, err
		}
		for _, c := range counters {
			sum += int64(c.RxDropped + c.TxDropped)
		}
	}
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 {
			n, err := strconv.ParseInt(f[1], 16, 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}
