package diagnosis

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Ledger accounts for the packets and the delay of one trial, stage by stage.
type Ledger struct {
	Trial string    `json:"trial,omitempty"`
	Data  []Account `json:"data"`           // stages of the load's data, in the order in which it passes them
	Acks  []Account `json:"acks,omitempty"` // acknowledgements of TCP; only for a one-way load
	// MissedPackets holds a lower and an upper bound of the number of packets missing at the ends. One bound
	// is the number of lost datagrams or retransmitted segments, some of which were lost before the window.
	// The other is the number of packets that left the sender and did not reach the receiver, some of which
	// were still in flight. MissedPackets is absent if neither was counted.
	MissedPackets []float64 `json:"missed_packets,omitempty"`
	DiedPackets   float64   `json:"died_packets"` // number of lost data packets, over all stages
	// RestPackets is the number of missed packets whose loss no counter explains. It is negative if the
	// counters show more lost packets than missed ones.
	RestPackets float64 `json:"rest_packets"`
	// RestWhere describes the first stage without counters or, if all have counters, the stage whose counters
	// differ most, by at least half of RestPackets.
	RestWhere string `json:"rest_where,omitempty"`

	// AddedNs is the delay that the load adds. For TCP it is the mean RTT in the window minus the minimum, or
	// the median RTT of probes minus the lowest RTT, whichever is larger. For datagrams it is the median
	// one-way delay.
	AddedNs  *float64 `json:"added_rtt_ns,omitempty"`
	WaitedNs float64  `json:"waited_ns"` // total time in queues, of the data and the acknowledgements
	// WaitedWhere describes where packets spent at least half of the added RTT that queues do not explain:
	// waiting for a busy core or, if no core was busy, in one or two of these places, according to probes to
	// each router: the segments between two nodes, and the endpoints. It is "" if queues explain the added
	// RTT, or if no place is known.
	WaitedWhere string `json:"waited_where,omitempty"`

	Work   []Work  `json:"work,omitempty"`
	Sender *Sender `json:"sender,omitempty"` // TCP only
}

// Account counts the packets that entered, left and were lost at one stage of the path, and the time they
// waited. In and Out count segments as on the wire, even if the kernel merged them.
type Account struct {
	Node     string   `json:"node"`
	Element  string   `json:"element"` // device, or "ip" for the network stack between the ports
	Stage    string   `json:"stage"`   // one of the Stage… constants
	In       *float64 `json:"in_packets,omitempty"`
	Out      *float64 `json:"out_packets,omitempty"`
	Died     []Death  `json:"died,omitempty"`
	Held     float64  `json:"held_packets,omitempty"` // growth of the backlog in the window
	WaitedNs float64  `json:"waited_ns,omitempty"`    // mean time: backlog ÷ drain rate (Little's law)
	Missing  string   `json:"missing,omitempty"`      // why there are no counters
}

// Death counts packets that were dropped at one place.
type Death struct {
	Packets float64 `json:"packets"`
	By      string  `json:"by"`
	Reason  string  `json:"reason,omitempty"` // drop reason of the kernel, see include/net/dropreason-core.h
}

// Kinds of stages.
const (
	StageFilter = "filter" // tc filters, on arrival or before the queue
	StageIP     = "ip"     // network stack and packet filter of a node
	StageQueue  = "queue"  // queue of the device through which packets leave
	StageLink   = "link"   // from one port to the next
	StageSocket = "socket" // socket of the receiver
)

// Work splits the window of one core by the kind of work.
type Work struct {
	Node string `json:"node"`
	Core
}

// Sender splits the time in which TCP had data to send by what limited TCP. The source is tcp_info's
// chronographs, which correspond to SndLimTime in RFC 4898.
type Sender struct {
	Node           string   `json:"node"`
	Busy           *float64 `json:"busy_ratio,omitempty"`
	RwndLimited    *float64 `json:"rwnd_limited_ratio,omitempty"`
	SndbufLimited  *float64 `json:"sndbuf_limited_ratio,omitempty"`
	NetworkLimited *float64 `json:"network_limited_ratio,omitempty"`
	MSS            int      `json:"mss_bytes,omitempty"`
}

// DiedPackets returns the number of packets lost at the stage.
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

// SharesAt returns two shares, from 0 to 1, for a node or one of its elements: the share of the packets
// missing at the ends that were lost there, and the share of the added RTT that packets spent in queues
// there. Unknown shares are 0. Packets dropped by a rule count as lost in the network stack.
func (l *Ledger) SharesAt(node, element string) (died, waited float64) {
	if l == nil || node == "" {
		return 0, 0
	}

	for i, a := range slices.Concat(l.Data, l.Acks) {
		byRule := strings.HasPrefix(element, "rule") && a.Stage == StageIP
		if a.Node != node || element != "" && element != a.Element && !byRule {
			continue
		}

		waited += a.WaitedNs
		if i < len(l.Data) {
			died += a.DiedPackets()
		}
	}

	missed := 0.0
	if l.MissedPackets != nil {
		missed = l.MissedPackets[1]
	}

	return min(ratio(died, missed), 1), min(ratio(waited, *cmp.Or(l.AddedNs, new(0.0))), 1)
}

// Ledger returns the accounts of the trial, or nil if its path is unknown. The result is cached.
func (o *Observation) Ledger() *Ledger {
	if o.ledger == nil && len(o.hops()) > 0 && o.Traffic != nil {
		o.ledger = o.makeLedger()
	}
	return o.ledger
}

func (o *Observation) makeLedger() *Ledger {
	hops := o.hops()
	l := &Ledger{Trial: o.ID, Data: o.accounts(hops, true), Sender: o.senderLedger()}
	if o.IsTCP() && !o.bothWays() {
		l.Acks = o.accounts(reversed(hops), false)
	}

	o.receive(l)
	o.balancePackets(l)
	o.balanceDelay(l)
	for _, node := range o.nodes() {
		for _, c := range o.Cores(node) {
			l.Work = append(l.Work, Work{node, c})
		}
	}

	return l
}

// accountAt returns an empty account of a stage.
func accountAt(at place, stage string) Account {
	return Account{Node: at.Node, Element: at.Element, Stage: stage}
}

// accounts returns the stages along some hops, without the layers above IP at their ends. data selects data
// or acknowledgements.
func (o *Observation) accounts(hops []hop, data bool) (out []Account) {
	var arrived []Account // filters through which packets arrived at the node
	for i, h := range hops {
		stack := accountAt(place{h.out.Node, "ip"}, StageIP)
		filtersOut, filtersIn := split(o.filterAccounts(h), h.out.Node)
		leaving, arriving := o.queueAccounts(h)
		stack.Out = cmp.Or(leaving[0].In, o.wire(h.out, "tx"))
		if i == 0 || hops[i-1].in.Node != h.out.Node {
			sent, ok := o.grew(h.out.Node, "TcpOutSegs TcpRetransSegs UdpOutDatagrams Udp6OutDatagrams")
			if ok && data {
				stack.In = &sent
			}

			o.diesAtSender(&stack, leaving[0].In != nil)
		} else {
			stack.In = leftLast(out)
			filters := slices.Concat(arrived, filtersOut)
			if data { // a node's counters cover both directions, but most packets are data
				o.diesCounted(&stack, hops[i-1].in, filters)
			}

			o.diesBetween(&stack, filters, hops[i-1].in)
		}

		link := accountAt(h.in, StageLink)
		link.In, link.Out = o.wire(h.out, "tx"), o.wire(h.in, "rx")
		o.diesOnLink(&link, h)
		out = slices.Concat(out, []Account{stack}, filtersOut, leaving, []Account{link}, filtersIn, arriving)
		arrived = filtersIn
	}
	return out
}

// split separates the accounts at the node that packets leave from the accounts at the next node.
func split(all []Account, node string) (leaving, arriving []Account) {
	for _, a := range all {
		if a.Node == node {
			leaving = append(leaving, a)
		} else {
			arriving = append(arriving, a)
		}
	}
	return leaving, arriving
}

// filterAccounts returns the filters of a hop that dropped packets.
func (o *Observation) filterAccounts(h hop) (out []Account) {
	for _, q := range o.filters([]hop{h}) {
		if q.drops > 0 {
			a := accountAt(q.place, StageFilter)
			a.dies(q.drops, "a filter of traffic control")
			out = append(out, a)
		}
	}
	return out
}

// queueAccounts returns the queues of a hop: at least one at the node that packets leave, and those at the
// next node.
func (o *Observation) queueAccounts(h hop) (leaving, arriving []Account) {
	queues, why := o.queues([]hop{h})
	var all []Account
	for _, q := range queues {
		all = append(all, o.queueAccount(q))
	}

	leaving, arriving = split(all, h.out.Node)
	if len(leaving) == 0 {
		none := accountAt(h.out, StageQueue)
		none.Out = o.wire(h.out, "tx")
		none.Missing = why
		leaving = append(leaving, none)
	}

	return leaving, arriving
}

// leftLast returns the number of packets that left the last stage that counted them. It returns nil if that
// stage is followed by a link, which has no count.
func leftLast(stages []Account) *float64 {
	for _, a := range slices.Backward(stages) {
		if a.Out != nil || a.Stage == StageLink {
			return a.Out
		}
	}
	return nil
}

// wire returns the number of segments that passed a port, or nil if they were not counted.
func (o *Observation) wire(at place, direction string) *float64 {
	f := o.passed(at, direction)
	if f.packets == 0 {
		return nil
	}

	probes := o.hopProbes(at, direction)
	f = frames{f.packets - probes.packets, f.bytes - probes.bytes}
	return new(f.packets * o.pieces(f))
}

// hopProbes returns the probes to routers, or their answers, that passed a port. They are no packets of the
// load: they end at a router or begin there, so that none crosses the last link. In a lab of two machines,
// the topology's router stands for all routers on the path.
func (o *Observation) hopProbes(at place, direction string) (f frames) {
	links := o.Topology().Links
	for i, link := range links[:max(len(links)-1, 0)] {
		e := slices.Index(link.Ends[:], record.TopoPort{Node: at.Node, Port: at.Element})
		for _, h := range o.Hops {
			if e < 0 || h.Loaded == nil || h.Number <= i {
				continue
			}

			n := len(h.Loaded.RTT)
			if (direction == "tx") != (e == 0) { // answers
				n = len(metrics.Answered(h.Loaded))
			}

			f.packets += float64(n)
			f.bytes += float64(n * (h.Loaded.Size + ethernetHeader))
		}
	}

	return f
}

// pieces estimates the number of segments in a frame, because GRO and GSO merge several behind one header.
func (o *Observation) pieces(f frames) float64 {
	if f.size() <= maxFrame {
		return 1
	}

	header := ethernetHeader + 20 + 32.0 // Ethernet, IPv4, and TCP with timestamps, in bytes
	if o.Factor(factor.IP) == "6" {
		header += 20
	}

	return max((f.size()-header)/float64(cmp.Or(o.mss(), ethernetMSS)), 1)
}

// queueAccount returns the account of a queue. Packets that the device dropped have already left the queue.
func (o *Observation) queueAccount(q queue) Account {
	refused := o.total(q.place, "netdev", "tx_dropped")
	before, after := o.columnAt(q.place, "qdisc", "qlen_packets").ends()
	a := accountAt(q.place, StageQueue)
	sent := q.packets - o.hopProbes(q.place, "tx").packets
	a.Out, a.Held, a.WaitedNs = new(sent-refused), after-before, o.waitedIn(q)
	a.dies(q.drops*o.pieces(o.passed(q.place, "tx")), "the queue ("+cmp.Or(q.kind, "of unknown kind")+")")
	a.In = new(sent + a.DiedPackets() + a.Held)
	a.dies(refused, "the device")
	return a
}

// diesAtSender adds the packets that the sender's transport layer sent but its port's queue never received.
// It does nothing if that queue has no counters.
func (o *Observation) diesAtSender(a *Account, counted bool) {
	if a.In == nil || a.Out == nil || o.tunnel() != "" || !counted {
		return
	}

	n := *a.In - *a.Out
	// Small differences mean nothing, because TCP's counters are read less often than the queue's, and
	// include control connections.
	if n > .08**a.In || n > .02**a.In && o.value(metrics.Retransmits) > n/3 {
		a.dies(n, uncounted)
	}
}

// dropCounters lists counters of packets that a network stack dropped.
var dropCounters = []struct{ probe, stems, by string }{
	{"softnet", "dropped", "the backlog of a core (netdev_max_backlog)"},
	{"conntrack", "drop insert_failed", "the connection table"},
	{"netdev", "rx_dropped", "the device's driver"},
	{"xfrm", lateCounters, byReplay},
	{"snmp", "IpInHdrErrors Ip6InHdrErrors", byHeader},
	{"snmp", "IpFragFails Ip6InTooBigErrors", "the MTU of the next link"},
	{"snmp", "IpExtInNoRoutes Ip6InNoRoutes IpInAddrErrors Ip6InAddrErrors", byRoute},
}

const wrongChecksums = "TcpInCsumErrors UdpInCsumErrors Udp6InCsumErrors IpExtInCsumErrors"

// socketCounters lists counters of the receiver above its network stack.
var socketCounters = []struct{ stems, by string }{
	{wrongChecksums, "wrong checksums"},
	{"UdpRcvbufErrors Udp6RcvbufErrors TcpExtTCPRcvQDrop TcpExtTCPBacklogDrop TcpExtTCPZeroWindowDrop " +
		"TcpExtTCPOFODrop TcpExtOfoPruned TcpExtRcvPruned", "a socket's receive buffer"},
}

// diesCounted adds the packets that a router's network stack dropped, as counted by dropCounters.
func (o *Observation) diesCounted(a *Account, in place, filters []Account) {
	for _, c := range dropCounters {
		n, _ := o.sumOf(in.Node, c.probe, func(label string) bool {
			return label != "cpu" && (c.probe != "netdev" || label == in.Element)
		}, c.stems)
		a.dies(n, c.by)
	}

	columns, _ := o.Columns(in.Node, "drops", "skb_drops")
	queued, _ := o.sumOf(in.Node, "qdisc", func(label string) bool {
		return !strings.Contains(label, "@") || strings.HasSuffix(label, "@ingress")
	}, "drops")
	told := a.DiedPackets() + queued
	total := 0.0
	rules := false
	for _, c := range columns {
		n, _ := c.Grew()
		switch {
		case c.Label == "":
			total = n
		case among(c.Label, countedReasons),
			strings.HasPrefix(c.Label, "TC_") && len(filters) > 0:
		case n > 0:
			told += n
			rules = rules || among(c.Label, ruleReasons)
			a.Died = append(a.Died, Death{n, "the kernel, which says " + c.Label, c.Label})
		}
	}

	if o.load().IP == 6 {
		told += o.echoes(in.Node)
	}

	a.dies(total-told, uncounted)
	if n, ok := o.lostInIP(in); ok && !rules && len(columns) == 0 {
		a.dies(n, uncounted)
	}
}

// echoes returns the number of probes that a router answered. Linux frees ICMPv6 echo requests as it frees
// packets that it drops (icmpv6_rcv in net/ipv6/icmp.c).
func (o *Observation) echoes(router string) (n float64) {
	links := o.Topology().Links
	for _, h := range o.Trial.Hops {
		if h.Number <= len(links) && links[h.Number-1].Ends[1].Node == router {
			n += float64(len(metrics.Answered(h.Loaded)))
		}
	}
	return n
}

// diesBetween scales the losses counted in a router, because the counters may count merged packets, each of
// which stands for several segments. It scales them to the number of packets that the router received on one
// port minus the number that it queued on the other port.
func (o *Observation) diesBetween(a *Account, filters []Account, in place) {
	if a.In == nil || a.Out == nil || o.tunnel() != "" {
		return
	}

	all := append([]Account{*a}, filters...)
	counted := 0.0
	missing := *a.In - *a.Out
	for _, f := range all {
		counted += f.DiedPackets()
	}

	noise := max(countingNoise, .03**a.In)
	if counted > 0 {
		limit := 1.0
		m := o.merged(in)
		if m > 1.02 { // lost packets may contain more segments than the average
			limit = 1.25 * m
		}

		scale := min(max(missing/counted, 1), limit)
		if counted > missing+noise { // some of the losses were in the other direction
			scale = missing / counted
			if missing < noise {
				scale = 0
			}
		}

		for _, x := range all {
			for i := range x.Died {
				x.Died[i].Packets *= scale
			}
		}

		a.Died = slices.DeleteFunc(a.Died, func(d Death) bool { return d.Packets == 0 })
		missing -= scale * counted
	}

	if missing > noise {
		a.dies(missing, uncounted)
	}
}

// countingNoise is the largest difference, in packets, between two counters that merging of packets explains.
const countingNoise = 8

const (
	uncounted = "a rule or filter, or what counts no drops"
	byHeader  = "the network stack: the TTL ran out, or a header is wrong"
	byRoute   = "the routing table: it has no route, or one that drops"
)

// merged estimates the number of segments in a packet of the network stack that arrived at a port.
func (o *Observation) merged(at place) float64 {
	data, ok := o.grew(at.Node, "IpInReceives Ip6InReceives")
	rx := o.passed(at, "rx")
	for _, port := range o.ports(at.Node) {
		if port != at {
			data -= o.passed(port, "rx").packets
		}
	}

	if !ok || data <= 0 {
		return o.pieces(rx)
	}

	return max(ratio(rx.packets, data), 1) * o.pieces(rx)
}

// countedReasons lists the kernel's drop reasons for packets that other counters also count.
const countedReasons = "QDISC_DROP QDISC_OVERLIMIT QDISC_CONGESTED CPU_BACKLOG FULL_RING PKT_TOO_BIG " +
	"TCP_CSUM UDP_CSUM NO_SOCKET TCP_INVALID_SEQUENCE TCP_OLD_DATA SKB_CONSUMED IP_INHDR IP_INNOROUTES " +
	"NOT_SPECIFIED"

// diesOnLink adds the packets that left one port and did not arrive at the next. It compares the counters
// only if both count packets of the same size.
func (o *Observation) diesOnLink(a *Account, h hop) {
	faulty := o.total(h.in, "netdev", "rx_errors")
	a.dies(faulty, "the receiving device, as damaged")
	tx := o.passed(h.out, "tx")
	rx := o.passed(h.in, "rx")
	if tx.packets == 0 || rx.packets == 0 || max(ratio(tx.size(), rx.size()),
		ratio(rx.size(), tx.size())) > 1.05 {
		return
	}

	n := (tx.packets - rx.packets) * o.pieces(tx)
	if n-ring > .01*tx.packets {
		a.dies(n-faulty, "the link, or what counts no drops")
	}
}

// receive adds the receiver's stages above its port.
func (o *Observation) receive(l *Ledger) {
	hops := o.hops()
	if o.bothWays() {
		return
	}

	in := hops[len(hops)-1].in
	ip := accountAt(place{in.Node, "ip"}, StageIP)
	ip.In = leftLast(l.Data)
	if n, ok := o.lostInIP(in); ok {
		ip.dies(n*o.merged(in), uncounted)
	}

	socket := accountAt(place{in.Node, "socket"}, StageSocket)
	for _, c := range socketCounters {
		n, _ := o.grew(in.Node, c.stems)
		socket.dies(n, c.by)
	}

	l.Data = append(l.Data, ip, socket)
}

// Tolerance returns the largest difference, in packets, that a ledger may have between its sums. It is the
// largest of 1 % of the missed packets, 0.3 % of the sent packets (segments in merged packets are estimated),
// and five packets.
func Tolerance(missed, sent float64) float64 { return max(.01*missed, .003*sent, 5) }

// balancePackets compares the number of packets counted as lost with the number missing at the ends.
func (o *Observation) balancePackets(l *Ledger) {
	for _, a := range l.Data {
		l.DiedPackets += a.DiedPackets()
	}

	var missed []float64
	if n, ok := o.endsMiss(l); ok {
		missed = append(missed, n)
	}

	if n, why := o.missed(); why == "" {
		missed = append(missed, n)
	}

	if len(missed) == 0 {
		return
	}

	low := slices.Min(missed)
	high := slices.Max(missed)
	l.MissedPackets = []float64{low, high}
	l.RestPackets = max(low-l.DiedPackets, 0) + min(high-l.DiedPackets, 0)
	sent := *cmp.Or(l.Data[0].Out, new(0.0))
	if math.Abs(l.RestPackets) > Tolerance(high, sent) {
		l.RestWhere = l.restWhere(math.Abs(l.RestPackets) / 2)
	}
}

// endsMiss returns the number of packets that the sender sent in the window and the receiver did not get,
// without the packets that wait in a queue.
func (o *Observation) endsMiss(l *Ledger) (n float64, ok bool) {
	first := l.Data[0]
	last := l.Data[len(l.Data)-2]
	sent := first.In
	if sent == nil || first.Out != nil && *first.Out > *sent {
		sent = first.Out // UDP's counter excludes datagrams that its own queue rejected
	}

	if o.bothWays() || sent == nil || last.In == nil {
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

// restWhere locates packets that were lost without being counted, or counted as lost without being missing.
// It returns the first stage without counters. If all stages have counters, it returns the stage whose
// counters differ most, if they differ by at least enough.
func (l *Ledger) restWhere(enough float64) (where string) {
	for _, a := range l.Data {
		if a.Missing != "" {
			return say("at the %s's %s: %s", a.Node, a.Element, a.Missing)
		}

		if a.In == nil || a.Out == nil {
			continue
		}

		gap := math.Abs(*a.In - *a.Out - a.DiedPackets() - a.Held)
		if gap >= enough {
			enough = gap
			where = say("at the %s's %s (%s)", a.Node, a.Element, a.Stage)
		}
	}
	return where
}
