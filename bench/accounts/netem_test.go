package accounts

import (
	"encoding/json"
	"fmt"

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
func (b stand) plantNetem(r row) func(*record.Traffic, *account) {
	rules := fmt.Sprintf(netemRules, *r.netem, port, datagramWindow, 28+datagramMark/8)
	if r.plant == reordering {
		rules += fmt.Sprintf(endRules, port, datagramEnd, 28+datagramMark/8)
	}

	b.onRouter(rules, "tc", "-batch", "-")
	tapped := b.helper(b.lab.Topology.Far, tapRole)
	inBefore, outBefore := b.routed()
	return func(t *record.Traffic, a *account) {
		var seen sight
		must(b.T, json.Unmarshal([]byte(tapped()), &seen))
		in, out := b.routed()
		in = in - inBefore
		out = out - outBefore
		b.devicesAgree(in, out, t)
		counted := b.find(`netem 11:.*\n Sent \d+ bytes (\d+) pkt \(dropped (\d+), overlimits \d+ requeues (\d+)\)`,
			b.onRouter("", "tc", "-s", "qdisc", "show", "dev", "wan"))
		b.onRouter("", "tc", "qdisc", "del", "dev", "wan", "root")
		passed := counted[0]
		dropped := counted[1]
		first := counted[2]
		a.planted = [3]int64{dropped, max(passed+dropped-a.sent, 0), 0}
		if r.plant == reordering {
			a.planted[2] = passed - first
		}

		b.Logf("router in %d, out %d; netem passed %d, dropped %d, %d first; tap %+v; engine sent %d, lost, "+
			"duplicates, reordered %d", in, out, passed, dropped, first, seen, a.sent, a.found)
		b.agree(a, passed, seen)
	}
}

// routed returns what the router's devices have received and sent.
func (b stand) routed() (in, out int64) {
	c, err := b.lab.Counters(b.Context(), "router", "lan", "wan")
	must(b.T, err)
	return int64(c["lan"].RxPackets), int64(c["wan"].TxPackets)
}

// devicesAgree holds the router's devices to the engine's totals. They count handshakes and ends of streams
// too that did not reach the engine.
func (b stand) devicesAgree(in, out int64, t *record.Traffic) {
	const handshakes = 10
	sent := int64(0)
	arrived := int64(0)
	for i := range t.Flows {
		s := t.Flows[i].Sent.Column("packets")
		r := t.Flows[i].Received.Column("packets")
		sent, arrived = sent+int64(s[len(s)-1]), arrived+int64(r[len(r)-1])
	}

	if in < sent || in > sent+handshakes || out < arrived || out > arrived+handshakes {
		b.Fatalf("the router's devices counted %d in and %d out, the engine %d sent and %d arrived", in, out,
			sent, arrived)
	}
}

// agree holds what the engine found to what left the router and what the tap saw. What was held back but
// had no packet come after it in time, be it the window's last or before a pause, is not reordered.
func (b stand) agree(a *account, passed int64, seen sight) {
	arrived := a.sent - a.found[0] + a.found[1]
	switch {
	case passed < arrived || passed > arrived+a.full || seen.Packets != arrived:
		b.Fatalf("netem let %d packets pass, the tap saw %d, the engine %d", passed, seen.Packets, arrived)
	case seen.Again != a.found[1] || seen.Late != a.found[2]:
		b.Fatalf("the tap saw %d packets twice and %d reordered, the engine %d and %d", seen.Again, seen.Late,
			a.found[1], a.found[2])
	case seen.Late < a.planted[2] && seen.Late+seen.Paused >= a.planted[2]:
		a.planted[2] = seen.Late
	}
}
