package diagnosis

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Ledger accounts for the packets of one trial and for what delayed them, stage by stage.
type Ledger struct {
	Data []Account `json:"data"`           // in the order in which the load's data meet them
	Acks []Account `json:"acks,omitempty"` // in that of TCP's acknowledgements; of a load in one direction
	// MissedPackets bounds what the ends miss. One bound is what was sent again or never arrived, of which a
	// part was lost before the window; the other what left the sender and did not reach the receiver, of
	// which a part may still be under way. Absent where nothing counted them.
	MissedPackets []float64 `json:"missed_packets,omitempty"`
	DiedPackets   float64   `json:"died_packets"` // of the data, in all stages
	// RestPackets are missed and died nowhere that is counted; negative: more died than the ends miss.
	RestPackets float64 `json:"rest_packets"`
	RestWhere   string  `json:"rest_where,omitempty"` // the stages between which the rest is lost

	AddedNs  *float64 `json:"added_rtt_ns,omitempty"` // median RTT under load above its minimum
	WaitedNs float64  `json:"waited_ns"`              // in all queues, of the data and of the acknowledgements
	// WaitedWhere names what else packets waited for, where queues do not explain the added RTT.
	WaitedWhere string `json:"waited_where,omitempty"`

	Work   []Work  `json:"work,omitempty"`
	Sender *Sender `json:"sender,omitempty"` // of TCP
}

// Account is one stage of the way: what came in, what left, what died there and how long packets waited. In
// and out are packets as they are on the wire: merged ones are counted in pieces.
type Account struct {
	Node     string   `json:"node"`
	Element  string   `json:"element"` // device, or "ip" for what lies between the ports
	Stage    string   `json:"stage"`   // one of the Stage… constants
	In       *float64 `json:"in_packets,omitempty"`
	Out      *float64 `json:"out_packets,omitempty"`
	Died     []Death  `json:"died,omitempty"`
	Held     float64  `json:"held_packets,omitempty"` // more waited at the window's end than at its beginning
	WaitedNs float64  `json:"waited_ns,omitempty"`    // mean of a packet, by backlog and rate (Little's law)
	Missing  string   `json:"missing,omitempty"`      // why nothing is known of it
}

// Death counts packets that one thing dropped.
type Death struct {
	Packets float64 `json:"packets"`
	By      string  `json:"by"`
	Reason  string  `json:"reason,omitempty"` // the kernel's, of include/net/dropreason-core.h
}

// Kinds of stages.
const (
	StageFilter = "filter" // of traffic control, where packets arrive or before they are queued
	StageIP     = "ip"     // the network stack and packet filter of a node
	StageQueue  = "queue"  // of a device by which packets leave
	StageLink   = "link"   // from port to port
	StageSocket = "socket" // of the receiver
)

// Work is how one core spent the window.
type Work struct {
	Node string `json:"node"`
	Core
}

// Sender is why TCP sent no faster, in shares of the time in which it had data to send (RFC 4898's
// SndLimTime, as tcp_info has them).
type Sender struct {
	Node           string   `json:"node"`
	Busy           *float64 `json:"busy_ratio,omitempty"`
	RwndLimited    *float64 `json:"rwnd_limited_ratio,omitempty"`
	SndbufLimited  *float64 `json:"sndbuf_limited_ratio,omitempty"`
	NetworkLimited *float64 `json:"network_limited_ratio,omitempty"`
	MSS            int      `json:"mss_bytes,omitempty"`
}

// Died is how many packets died at the stage.
func (a Account) DiedPackets() (sum float64) {
	for _, d := range a.Died {
		sum += d.Packets
	}
	return sum
}

func (a *Account) dies(packets float64, by string) {
	if packets > 0 {
		a.Died = append(a.Died, Death{Packets: packets, By: by})
	}
}

// Ledger is that of the trial; nil of one without a known way. It is made once.
func (o *Observation) Ledger() *Ledger {
	if o.ledger == nil && len(o.hops()) > 0 && o.Trial.Traffic != nil {
		o.ledger = o.makeLedger()
	}
	return o.ledger
}

func (o *Observation) makeLedger() *Ledger {
	hops := o.hops()
	l := &Ledger{Data: o.accounts(hops, o.dataPackets)}
	if d := o.load().Direction; o.IsTCP() && d != record.Both {
		var back []hop
		for _, h := range slices.Backward(hops) {
			back = append(back, hop{h.in, h.out})
		}
		l.Acks = o.accounts(back, nil)
	}
	o.receive(l)
	o.balancePackets(l)
	o.balanceDelay(l)
	for _, node := range o.nodes() {
		for _, c := range o.Cores(node) {
			l.Work = append(l.Work, Work{node, c})
		}
	}
	l.Sender = o.senderLedger()
	return l
}

// accounts are the stages of some hops, without what is above IP at their ends. Sent is how many packets of
// its way the first node's transport layer sent.
func (o *Observation) accounts(hops []hop, sent func(node string) (float64, bool)) (out []Account) {
	var arrived []Account // the filters by which packets came to the node
	for i, h := range hops {
		first := i == 0 || hops[i-1].in.Node != h.out.Node
		before := Account{Node: h.out.Node, Element: "ip", Stage: StageIP}
		if first && sent != nil {
			if n, ok := sent(h.out.Node); ok {
				before.In = &n
			}
		}
		if !first {
			before.In = (&Ledger{Data: out}).arrived()
		}
		queues, _ := o.queuesOf(o.queuePlaces([]hop{h}, false), false)
		filters, _ := o.queuesOf(o.queuePlaces([]hop{h}, true), true)
		var polices, leaving, arriving []Account
		for _, q := range queues {
			a := o.queueAccount(q)
			if q.node == h.out.Node {
				leaving = append(leaving, a)
			} else {
				arriving = append(arriving, a)
			}
		}
		if len(leaving) == 0 {
			_, why := o.Columns(h.out.Node, "qdisc", "packets")
			leaving = append(leaving, Account{Node: h.out.Node, Element: h.out.Port, Stage: StageQueue,
				Out: o.wire(h.out, "tx"), Missing: why})
		}
		for _, q := range filters {
			a := Account{Node: q.node, Element: q.port, Stage: StageFilter}
			a.dies(q.drops, "a filter of traffic control")
			switch {
			case q.drops == 0:
			case q.node == h.out.Node:
				polices = append(polices, a)
			default:
				arriving = append([]Account{a}, arriving...)
			}
		}
		before.Out = cmp.Or(leaving[0].In, o.wire(h.out, "tx"))
		if first {
			o.diesAtSender(&before, leaving[0].In != nil)
		} else {
			filters := slices.Concat(arrived, polices)
			if sent != nil { // a node's counters are taken for those of the data
				o.diesCounted(&before, hops[i-1].in, filters)
			}
			o.diesBetween(&before, filters, hops[i-1].in)
		}
		link := Account{Node: h.in.Node, Element: h.in.Port, Stage: StageLink, In: o.wire(h.out, "tx"),
			Out: o.wire(h.in, "rx")}
		o.diesOnLink(&link, h)
		out = slices.Concat(out, []Account{before}, polices, leaving, []Account{link}, arriving)
		arrived = slices.DeleteFunc(slices.Clone(arriving), func(a Account) bool {
			return a.Stage != StageFilter
		})
	}
	return out
}

// wire is how many packets passed a port, merged ones counted in pieces; nil where it was not counted.
func (o *Observation) wire(at record.TopoPort, direction string) *float64 {
	f := o.passed(at.Node, at.Port, direction)
	if f.packets == 0 {
		return nil
	}
	return new(f.packets * o.pieces(f))
}

// pieces is how many segments a frame holds on average, of those that passed a port: merged ones have one
// header.
func (o *Observation) pieces(f frames) float64 {
	if f.size() <= maxFrame {
		return 1
	}
	segment := float64(leastMSS)
	if s := o.senderLedger(); s != nil && s.MSS > 0 {
		segment = float64(s.MSS)
	}
	header := 14 + 20 + 32.0 // of Ethernet, IPv4 and TCP with timestamps
	if o.Factor(factor.IP) == "6" {
		header += 20
	}
	return max((f.size()-header)/segment, 1)
}

// dataPackets is how many packets of data TCP and UDP of a node sent.
func (o *Observation) dataPackets(node string) (float64, bool) {
	return o.grew(node, "TcpOutSegs", "TcpRetransSegs", "UdpOutDatagrams", "Udp6OutDatagrams")
}

func (o *Observation) queueAccount(q queue) Account {
	a := Account{Node: q.node, Element: q.port, Stage: StageQueue, Out: new(q.packets), Held: o.heldIn(q),
		WaitedNs: o.waitedIn(q)}
	at := record.TopoPort{Node: q.node, Port: q.port}
	a.dies(q.drops*o.pieces(o.passed(at.Node, at.Port, "tx")), "the queue ("+cmp.Or(q.kind,
		"of a kind that is not known")+")")
	a.In = new(q.packets + a.DiedPackets() + a.Held)
	refused, _ := o.Sum(q.node, "netdev", "tx_dropped", func(l string) bool { return l == q.port })
	a.dies(refused-q.drops, "the device")
	return a
}

// diesAtSender is what the sender's transport layer sent and its port's queue never had. It is exact where
// that queue counts.
func (o *Observation) diesAtSender(a *Account, exact bool) {
	if a.In == nil || a.Out == nil || o.tunnel() != "" || !exact {
		return
	}
	n, again := *a.In-*a.Out, 0.0
	if s := o.senderLedger(); s != nil {
		again, _ = o.Metric(metrics.Retransmits)
	}
	// TCP's counters are read less often than the queue's, and hold control connections, too.
	if n > .08**a.In || n > .02**a.In && again > n/3 {
		a.dies(n, uncounted)
	}
}

// diesCounted is what a router's counters hold of the packets that died in its network stack.
func (o *Observation) diesCounted(a *Account, in record.TopoPort, filters []Account) {
	node := in.Node
	for _, c := range []struct{ probe, stem, by string }{
		{"softnet", "dropped", "the backlog of a core (netdev_max_backlog)"},
		{"conntrack", "drop", "the connection table"},
		{"conntrack", "insert_failed", "the connection table"},
		{"netdev", "rx_dropped", "the device's driver"},
	} {
		n, _ := o.Sum(node, c.probe, c.stem, func(l string) bool {
			return l != "cpu" && (c.probe != "netdev" || l == in.Port)
		})
		a.dies(n, c.by)
	}
	for _, c := range []struct{ by, stems string }{
		{byHeader, "IpInHdrErrors Ip6InHdrErrors"},
		{"the MTU of the next link", "IpFragFails Ip6InTooBigErrors"},
		{byRoute, "IpExtInNoRoutes Ip6InNoRoutes IpInAddrErrors Ip6InAddrErrors"},
	} {
		n, _ := o.grew(node, strings.Fields(c.stems)...)
		a.dies(n, c.by)
	}
	columns, _ := o.Columns(node, "drops", "skb_drops")
	total, told, rules := 0.0, a.DiedPackets()+o.queueDrops(node), false
	for _, c := range columns {
		n, _ := c.Grew()
		switch {
		case c.Label == "":
			total = n
		case slices.Contains(countedReasons, c.Label),
			strings.HasPrefix(c.Label, "TC_") && len(filters) > 0:
		case n > 0:
			told, rules = told+n, rules || slices.Contains(ruleReasons, c.Label)
			a.Died = append(a.Died, Death{n, "the kernel, which says " + c.Label, c.Label})
		}
	}
	a.dies(total-told, uncounted)
	if n, ok := o.lostInIP(in); ok && !rules && len(columns) == 0 {
		a.dies(n/o.merged(in), uncounted)
	}
}

// diesBetween is what a router received by one port and did not queue at the other. What its counters hold
// may be merged packets: together they stand for what is missing between the ports.
func (o *Observation) diesBetween(a *Account, filters []Account, in record.TopoPort) {
	if a.In == nil || a.Out == nil || o.tunnel() != "" {
		return
	}
	counted, missing := a.DiedPackets(), *a.In-*a.Out
	for _, f := range filters {
		counted += f.DiedPackets()
	}
	least := max(leastMissing, .03**a.In)
	if counted > 0 {
		atMost := 1.0
		if m := o.merged(in); m > 1.02 { // packets that die may be larger than the average
			atMost = 1.25 * m
		}
		scale := min(max(missing/counted, 1), atMost)
		if counted > missing+least { // a part of them went the other way
			if scale = missing / counted; missing < least {
				scale = 0
			}
		}
		for _, x := range append([]Account{*a}, filters...) {
			for i := range x.Died {
				x.Died[i].Packets *= scale
			}
		}
		a.Died = slices.DeleteFunc(a.Died, func(d Death) bool { return d.Packets == 0 })
		missing -= scale * counted
	}
	if missing > least {
		a.dies(missing, uncounted)
	}
}

// leastMissing bounds what two counters of packets that were merged in between may differ by.
const leastMissing = 8

const (
	uncounted = "a rule or filter, or what counts no drops"
	byHeader  = "the network stack: the TTL ran out, or a header is wrong"
	byRoute   = "the routing table: it has no route, or one that drops"
)

// queueDrops is how many packets all queues and filters of a node dropped.
func (o *Observation) queueDrops(node string) float64 {
	n, _ := o.Sum(node, "qdisc", "drops", func(label string) bool {
		return !strings.Contains(label, "@") || strings.HasSuffix(label, "@ingress")
	})
	return n
}

// merged is how many packets of the wire a packet of the network stack stands for, of those that came by a
// port.
func (o *Observation) merged(at record.TopoPort) float64 {
	received, ok := o.grew(at.Node, "IpInReceives", "Ip6InReceives")
	rx := o.passed(at.Node, at.Port, "rx")
	data := received // of it what came by this port
	for _, port := range o.ports(at.Node) {
		if port != at.Port {
			data -= o.passed(at.Node, port, "rx").packets
		}
	}
	if !ok || data <= 0 {
		return o.pieces(rx)
	}
	return max(ratio(rx.packets, data), 1) * o.pieces(rx)
}

// countedReasons are the kernel's drop reasons of what other counters hold.
var countedReasons = []string{"QDISC_DROP", "QDISC_OVERLIMIT", "QDISC_CONGESTED", "CPU_BACKLOG", "FULL_RING",
	"PKT_TOO_BIG", "TCP_CSUM", "UDP_CSUM", "NO_SOCKET", "TCP_INVALID_SEQUENCE", "TCP_OLD_DATA",
	"SKB_CONSUMED", "IP_INHDR", "IP_INNOROUTES", "NOT_SPECIFIED"}

// diesOnLink is what left one port and did not arrive at the next, where both count the same packets.
func (o *Observation) diesOnLink(a *Account, h hop) {
	faulty, _ := o.Sum(h.in.Node, "netdev", "rx_errors", func(l string) bool { return l == h.in.Port })
	a.dies(faulty, "the receiving device, as damaged")
	tx, rx := o.passed(h.out.Node, h.out.Port, "tx"), o.passed(h.in.Node, h.in.Port, "rx")
	if tx.packets == 0 || rx.packets == 0 || ratio(tx.size(), rx.size()) > 1.05 ||
		ratio(rx.size(), tx.size()) > 1.05 {
		return
	}
	if n := (tx.packets - rx.packets) * o.pieces(tx); n-ring > .01*tx.packets {
		a.dies(n-faulty, "the link, or what counts no drops")
	}
}

// arrived is how many packets came out of the last stage that counts them.
func (l *Ledger) arrived() *float64 {
	for _, a := range slices.Backward(l.Data) {
		if a.Out != nil || a.Stage == StageLink {
			return a.Out
		}
	}
	return nil
}

// receive adds the stages of the receiver above its port.
func (o *Observation) receive(l *Ledger) {
	hops := o.hops()
	if o.load().Direction == record.Both {
		return
	}
	in := hops[len(hops)-1].in
	ip := Account{Node: in.Node, Element: "ip", Stage: StageIP, In: l.arrived()}
	if n, ok := o.lostInIP(in); ok {
		ip.dies(n, "a rule or filter, or what counts no drops")
	}
	socket := Account{Node: in.Node, Element: "socket", Stage: StageSocket}
	for _, c := range []struct{ by, stems string }{
		{"wrong checksums", "TcpInCsumErrors UdpInCsumErrors Udp6InCsumErrors IpExtInCsumErrors"},
		{"a socket's receive buffer", "UdpRcvbufErrors Udp6RcvbufErrors TcpExtTCPRcvQDrop " +
			"TcpExtTCPBacklogDrop TcpExtTCPZeroWindowDrop TcpExtTCPOFODrop TcpExtOfoPruned TcpExtRcvPruned"},
	} {
		n, _ := o.grew(in.Node, strings.Fields(c.stems)...)
		socket.dies(n, c.by)
	}
	l.Data = append(l.Data, ip, socket)
}

// deadliest is the stage at which most of the data die; false where none does, or the way is not known.
func (l *Ledger) deadliest() (most Account, ok bool) {
	if l == nil {
		return most, false
	}
	for _, a := range l.Data {
		if a.DiedPackets() > most.DiedPackets() {
			most, ok = a, true
		}
	}
	return most, ok
}

// Tolerance is how many packets the sums of a ledger may lie apart: 1 % of what is missed, 0.3 % of what was
// sent, since merged packets are counted in pieces, or five.
func Tolerance(missed, sent float64) float64 { return max(.01*missed, .003*sent, 5) }

// balancePackets holds what died against what the ends miss.
func (o *Observation) balancePackets(l *Ledger) {
	for _, a := range l.Data {
		l.DiedPackets += a.DiedPackets()
	}
	between, known := o.endsMiss(l)
	again, why := o.missed()
	switch {
	case known && why == "":
		l.MissedPackets = []float64{min(between, again), max(between, again)}
	case known:
		l.MissedPackets = []float64{between, between}
	case why == "":
		l.MissedPackets = []float64{again, again}
	default:
		return
	}
	low, high := l.MissedPackets[0], l.MissedPackets[1]
	l.RestPackets = max(low-l.DiedPackets, 0) + min(high-l.DiedPackets, 0)
	sent := 0.0
	if out := l.Data[0].Out; out != nil {
		sent = *out
	}
	if math.Abs(l.RestPackets) > Tolerance(high, sent) {
		l.RestWhere = l.restWhere()
	}
}

// endsMiss is how many packets the sender sent in the window and the receiver did not get, without those that
// wait in a queue.
func (o *Observation) endsMiss(l *Ledger) (n float64, ok bool) {
	first, last := l.Data[0], l.Data[len(l.Data)-2]
	sent := first.In
	if sent == nil || first.Out != nil && *first.Out > *sent {
		sent = first.Out // UDP counts no datagram that its own queue refused
	}
	if o.load().Direction == record.Both || sent == nil || last.In == nil {
		return 0, false
	}
	n = *sent - *last.In
	for _, a := range l.Data[len(l.Data)-2:] {
		n += a.DiedPackets()
	}
	for _, a := range l.Data {
		n -= a.Held
	}
	return max(n, 0), true
}

// restWhere locates what died uncounted, or was counted without being missed: where most packets appear or
// vanish between two counters. A node that nothing watches has none.
func (l *Ledger) restWhere() (where string) {
	most := 0.0
	for _, a := range l.Data {
		if a.Missing != "" {
			return fmt.Sprintf("at the %s's %s: %s", a.Node, a.Element, a.Missing)
		}
		if a.In == nil || a.Out == nil {
			continue
		}
		if gap := *a.In - *a.Out - a.DiedPackets() - a.Held; math.Abs(gap) > most {
			most, where = math.Abs(gap), fmt.Sprintf("at the %s's %s (%s)", a.Node, a.Element, a.Stage)
		}
	}
	return where
}
