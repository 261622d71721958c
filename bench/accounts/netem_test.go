package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// netemRules lead the window's packets through netem, and past it all others; but where packets are delayed
// the end-of-stream is delayed longer, so that it comes last.
const (
	netemRules = `qdisc replace dev wan root handle 1: htb
class add dev wan parent 1: classid 1:1 htb rate 10gbit quantum 1514
qdisc add dev wan parent 1:1 handle 11: netem limit 10000 %s
filter add dev wan parent 1: protocol ip u32 match ip dport %d 0xffff match u8 %d 0xff at %d flowid 1:1
`
	endRules = `class add dev wan parent 1: classid 1:2 htb rate 10gbit quantum 1514
qdisc add dev wan parent 1:2 handle 12: netem limit 10000 delay 100ms
filter add dev wan parent 1: protocol ip u32 match ip dport %d 0xffff match u8 %d 0xff at %d flowid 1:2
`
)

// plantNetem has the router's netem plant among the window's packets and count them: what it dropped; what
// it let pass beyond what it was given, the doubled; and what it let pass without putting it first (in its
// words: requeued), which it held back. The router's devices count too, all packets of the load, and a tap
// at the far end counts what arrives of the window, and in which order.
func (b *stand) plantNetem(ctx context.Context, r row) (func(*record.Traffic, *account) error, error) {
	rules := fmt.Sprintf(netemRules, *r.netem, port, datagramWindow, 28+datagramMark/8)
	if r.plant == reordering {
		rules += fmt.Sprintf(endRules, port, datagramEnd, 28+datagramMark/8)
	}
	if _, err := b.onRouter(ctx, rules, "tc", "-batch", "-"); err != nil {
		return nil, err
	}
	tapped, err := b.startTap(ctx)
	if err != nil {
		return nil, err
	}
	before, err := b.lab.Counters(ctx, "router", "lan", "wan")
	if err != nil {
		return nil, err
	}
	return func(t *record.Traffic, a *account) error {
		seen, err := tapped()
		if err != nil || t == nil {
			return err
		}
		after, err := b.lab.Counters(ctx, "router", "lan", "wan")
		if err != nil {
			return err
		}
		in, out := int64(after["lan"].RxPackets-before["lan"].RxPackets),
			int64(after["wan"].TxPackets-before["wan"].TxPackets)
		if err := devicesAgree(in, out, t); err != nil {
			return err
		}
		n, err := b.netem(ctx)
		if err != nil {
			return err
		}
		a.planted = [3]int64{n.dropped, max(n.passed+n.dropped-a.sent, 0), 0}
		if r.plant == reordering {
			a.planted[2] = n.passed - n.first
		}
		fmt.Fprintf(b.log, "%s: router in %d, out %d; netem %+v; tap %+v; engine sent %d, lost %d, "+
			"duplicates %d, reordered %d\n",
			r.name, in, out, n, seen, a.sent, a.lost, a.duplicates, a.reordered)
		return a.agree(n, seen)
	}, nil
}

// devicesAgree holds the router's devices to the engine's totals. They count handshakes and ends of streams
// too that did not reach the engine.
func devicesAgree(in, out int64, t *record.Traffic) error {
	const handshakes = 10
	sent, arrived := int64(0), int64(0)
	for i := range t.Flows {
		s, r := t.Flows[i].Sent.Column("packets"), t.Flows[i].Received.Column("packets")
		sent, arrived = sent+int64(s[len(s)-1]), arrived+int64(r[len(r)-1])
	}
	if in < sent || in > sent+handshakes || out < arrived || out > arrived+handshakes {
		return fmt.Errorf("the router's devices counted %d in and %d out, the engine %d sent and %d arrived",
			in, out, sent, arrived)
	}
	return nil
}

// agree holds what the engine found to what left the router and what the tap saw. What was held back but
// had no packet come after it in time, be it the window's last or before a pause, is not reordered.
func (a *account) agree(n netem, seen sight) error {
	arrived := a.sent - a.lost + a.duplicates
	switch {
	case n.passed < arrived || n.passed > arrived+a.full || seen.Packets != arrived:
		return fmt.Errorf("netem let %d packets pass, the tap saw %d, the engine %d", n.passed, seen.Packets,
			arrived)
	case seen.Again != a.duplicates || seen.Late != a.reordered:
		return fmt.Errorf("the tap saw %d packets twice and %d reordered, the engine %d and %d", seen.Again,
			seen.Late, a.duplicates, a.reordered)
	case seen.Late < a.planted[2] && seen.Late+seen.Paused >= a.planted[2]:
		a.planted[2] = seen.Late
	}
	return nil
}

// netem is what the router's has counted.
type netem struct{ passed, dropped, first int64 }

// netem reads the counters, and takes it away.
func (b *stand) netem(ctx context.Context) (n netem, err error) {
	text, err := b.onRouter(ctx, "", "tc", "-s", "qdisc", "show", "dev", "wan")
	if err != nil {
		return n, err
	}
	m := regexp.MustCompile(`netem 11:.*\n Sent \d+ bytes (\d+) pkt \(dropped (\d+), overlimits \d+ requeues (\d+)\)`).FindStringSubmatch(text)
	if m == nil {
		return n, fmt.Errorf("no counters of netem in %q", text)
	}
	for i, c := range []*int64{&n.passed, &n.dropped, &n.first} {
		*c, _ = strconv.ParseInt(m[i+1], 10, 64)
	}
	_, err = b.onRouter(ctx, "", "tc", "qdisc", "del", "dev", "wan", "root")
	return n, err
}
