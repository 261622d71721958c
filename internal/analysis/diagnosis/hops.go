package diagnosis

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// wayNodes returns the nodes on the path of the load's packets.
func (o *Observation) wayNodes() (out []string) {
	for _, h := range o.hops() {
		for _, node := range []string{h.out.Node, h.in.Node} {
			if !slices.Contains(out, node) {
				out = append(out, node)
			}
		}
	}
	return out
}

// hop is a link on the load's path: the port through which data leaves one node, and the port at which it
// reaches the next.
type hop struct{ out, in place }

// hops returns the links on the path of the load's data, in order. For a load in both directions, the links
// of "up" come before the links of "down".
func (o *Observation) hops() []hop {
	port := func(p record.TopoPort) place { return place{p.Node, p.Port} }
	var up []hop
	for _, l := range o.Topology().Links {
		up = append(up, hop{port(l.Ends[0]), port(l.Ends[1])})
	}

	switch o.load().Direction {
	case record.Down:
		return reversed(up)
	case record.Both:
		return append(up, reversed(up)...)
	}

	return up
}

// reversed returns the links for the other direction.
func reversed(hops []hop) (back []hop) {
	for _, h := range slices.Backward(hops) {
		back = append(back, hop{h.in, h.out})
	}
	return back
}

// queue holds measurements of the queue at a port on the load's path.
type queue struct {
	place
	kind       string  // kind of the root qdisc; "" if the samples lack it
	managed    bool    // the queue has a shaper or AQM; false for a single FIFO
	packets    float64 // packets sent in the window
	drops      float64
	early      float64 // drops before the window, while the load started
	refused    float64 // packets that the device behind the queue dropped, before and in the window
	overlimits float64 // throttling events ÷ packets
	rateBps    float64 // frame rate of the port
	setBps     float64 // configured rate limit; 0 means none, or unknown
	owned      bool    // the rate was set by the owner, or by a queue of the plan
	waited     float64 // share of the window's samples in which packets waited; 1 if not sampled
	fifos      bool    // the queue's classes are FIFOs
	polices    bool    // the port's filters include a policer
	full       bool    // a sample shows the queue at least 90 % full; false if its limit is unknown
}

// idle returns the certainty, from 0 to 1, that a throttling queue does not limit the load. The kernel counts
// an overlimit for each packet that waits for a token, even far below the configured rate. A queue at 80 % of
// its rate or less counts as idle, unless packets wait all the time. If the rate is unknown, the queue counts
// as idle if it drops nothing and is mostly empty.
func (q queue) idle() float64 {
	switch {
	case q.setBps > 0:
		used := q.rateBps / q.setBps
		idle := degree(used, .93, .8)
		if used < 1 && (q.managed || q.drops == 0) {
			// A queue that is never empty sends all that its shaper passes, so it limits the load. A queue
			// that is sometimes empty delays packets only while it is not empty.
			idle *= degree((q.waited-used)/(1-used), .95, .6)
		}

		return idle
	case q.drops > 0:
		return 0
	}
	return degree(q.waited, .8, .4)
}

// holds returns the number of overlimits per packet, multiplied by the degree to which the queue is not idle.
// If overlimits are not counted, as with fq, a port that sends at the queue's rate counts as throttled.
func (q queue) holds() float64 {
	if q.owned && q.overlimits == 0 {
		return .3 * degree(q.rateBps/q.setBps, .88, .96)
	}

	over := q.overlimits
	if over > .03 && among(q.kind, shaping) {
		// One overlimit may delay several packets, which the token bucket's burst then passes together.
		over = max(over, .25*degree(q.waited, .7, .95))
	}

	return over * (1 - q.idle())
}

// throttles returns a term that requires frequent throttling by a queue.
func (o *Observation) throttles(q queue) Term {
	return requires("throttles", q.holds(), .03, .25).by(o.heldFacts(q)[0])
}

// String returns a description such as "the router's WAN port".
func (q queue) String() string {
	if len(q.Element) <= 3 {
		return "the " + q.Node + "'s " + strings.ToUpper(q.Element) + " port"
	}
	return "the " + q.Node + "'s port " + q.Element
}

// lost returns the share of packets that the queue dropped.
func (q queue) lost() float64 { return ratio(q.drops, q.packets+q.drops) }

// queues returns the queues at the ports of some hops. why is the reason for a missing queue.
func (o *Observation) queues(hops []hop) (all []queue, why string) {
	for _, at := range o.queuePlaces(hops) {
		q, lacks := o.queueAt(at)
		if lacks == "" {
			all = append(all, q)
		}

		why = cmp.Or(why, lacks)
	}
	return all, cmp.Or(why, "no port on the path has a queue with counters")
}

// filters returns the filters at the ports of some hops that may drop packets before they are queued, with
// the numbers of passed and dropped packets.
func (o *Observation) filters(hops []hop) (all []queue) {
	add := func(at place) {
		from := place{at.Node, at.Element + "@ingress"}
		packets, why := o.sum(from, "qdisc", "packets")
		if why != "" && o.found(at).Polices(true) { // the filters are attached to the root qdisc
			from = at
			packets, why = o.sum(from, "qdisc", "packets")
		}

		if why == "" {
			all = append(all, queue{place: at, packets: packets, drops: o.total(from, "qdisc", "drops")})
		}
	}
	for _, h := range hops {
		if o.found(h.out).FiltersLeaving() {
			add(h.out)
		}

		add(h.in)
	}
	return all
}

// queuePlaces returns the devices whose queues the packets of some hops pass: the devices through which the
// packets leave a node, and devices to which a filter redirects them, such as an ifb.
func (o *Observation) queuePlaces(hops []hop) (out []place) {
	add := func(node string, devices ...string) {
		for _, device := range devices {
			if device != "" {
				out = append(out, place{node, device})
			}
		}
	}
	for _, h := range hops {
		leaves := o.found(h.out)
		add(h.out.Node, leaves.Master)
		add(h.out.Node, o.carriers(h.out, .5, 2)...)
		add(h.out.Node, h.out.Element)
		add(h.out.Node, leaves.RedirectsTo(true)...)
		add(h.in.Node, o.found(h.in).RedirectsTo(false)...)
	}
	return out
}

// carriers returns a node's other devices, such as a VLAN or a veth in front of the port, that sent at least
// low times and at most high times as many bytes as the port. The load's packets passed these devices, too.
func (o *Observation) carriers(at place, low, high float64) (out []string) {
	columns, _ := o.Columns(at.Node, "netdev", "tx_bytes")
	port := o.passed(at, "tx").bytes
	master := o.found(at).Master
	for _, c := range columns {
		n, _ := c.Grew()
		if o.extra(at.Node, c.Label) && c.Label != master && port > 0 && n > low*port && n < high*port {
			out = append(out, c.Label)
		}
	}

	return out
}

// extra reports whether a device is neither a port of its node, nor the loopback device, nor an ifb.
func (o *Observation) extra(node, device string) bool {
	return device != "lo" && !strings.HasPrefix(device, "ifb") && !o.isPort(node, device)
}

// found returns a port's device from the inventory, or an empty device if the inventory was not read.
func (o *Observation) found(at place) *record.NetDevice {
	for _, e := range o.Run.Environments {
		d := e.Inventory.Device(at.Element)
		if e.Node == at.Node && d != nil {
			return d
		}
	}
	return &record.NetDevice{}
}

// queueAt returns the queue of a device. why is the reason if it has no counters.
func (o *Observation) queueAt(at place) (q queue, why string) {
	packets, why := o.sum(at, "qdisc", "packets")
	if why != "" {
		_, why = o.Columns(at.Node, "qdisc", "packets")
		return q, cmp.Or(why, "no port on the path has a queue with counters")
	}

	device := o.found(at)
	sent := o.passed(at, "tx")
	q = queue{
		place:   at,
		packets: packets,
		drops:   o.total(at, "qdisc", "drops"),
		early:   o.columnAt(at, "qdisc", "drops").grewBefore(),
		refused: o.total(at, "netdev", "tx_dropped") + o.columnAt(at, "netdev", "tx_dropped").grewBefore(),
		// The kernel counts segments as packets, but counts overlimits per merged packet.
		overlimits: ratio(o.total(at, "qdisc", "overlimits"), packets) * o.pieces(sent),
		rateBps:    8 * o.perSecond(sent.bytes),
		polices:    device.Polices(true),
	}
	q.kind, q.managed = o.kindOf(at)
	q.setBps, q.owned, q.fifos = o.setTo(at)
	length := o.columnAt(at, "qdisc", "qlen_packets")
	share, sampled := length.waited()
	q.waited = max(share, yes(!sampled))
	root, _ := device.Root()
	longest, _ := length.Largest()
	q.full = device.Missing == "" && root.Kind == q.kind && root.LimitPackets > 0 &&
		longest >= .9*root.LimitPackets
	return q, ""
}

// setTo returns the configured rate of a port's queue, whether the rate belongs to a shaper rather than to an
// emulated link, and whether the queue's classes have FIFOs. The plan or the owner may have configured the
// rate.
func (o *Observation) setTo(at place) (bps float64, owned, fifos bool) {
	cell := o.Row.Factors
	set := false
	for _, name := range cell.Names() {
		plain, where := factor.Split(name)
		level := cell[name]
		here := where == at.Node || where == at.Node+"."+at.Element ||
			where == "" && slices.Contains(o.Routers(), at.Node)
		if !here || level == "off" || !among(plain, "shape queue") && !hasFault(level,
			"link_rate") {
			continue
		}

		set = true
		q, _ := qdisc.ParseOne(level)
		owned = owned || q.RateBps() > 0 && q.Kind != "netem"
		bps = cmp.Or(q.RateBps(), factor.Bitrate(level), bps)
	}

	d := o.found(at)
	if set || d.Missing != "" {
		return bps, owned, false
	}

	bps = d.RateBps()
	root, _ := d.Root()
	if bps == 0 && root.FlowRateBps > 0 && o.IsTCP() {
		bps = root.FlowRateBps * float64(max(o.load().Streams, 1))
	}

	leaves := d.Leaves()
	fifos = len(leaves) > 0
	for _, leaf := range leaves {
		for _, q := range d.Below(leaf.Handle) {
			fifos = fifos && strings.HasSuffix(q.Kind, "fifo")
		}
	}

	return bps, bps > 0, fifos
}

// shaping lists the qdiscs that limit a rate.
const shaping = "tbf htb hfsc cake"

// managing lists the qdiscs that have classes or AQM.
const managing = "htb hfsc cake fq_codel codel fq_pie pie"

// kindOf returns the kind of a port's qdisc, and whether it has classes or is in managing. If the qdisc was
// replaced, each kind has its own columns, and the latest kind counts.
func (o *Observation) kindOf(at place) (kind string, managed bool) {
	table, _ := metrics.SamplesOf(o.Nodes[at.Node], "qdisc")
	latest := int64(math.MinInt64)
	for i, name := range table.Names {
		of, stem, _ := strings.Cut(name, "/")
		managed = managed || strings.HasPrefix(of, at.Element+"@") && of != at.Element+"@ingress"
		k, ok := strings.CutPrefix(stem, "kind_")
		if !ok || of != at.Element {
			continue
		}

		for row, t := range table.T {
			if t <= o.Window.End && t > latest && table.V[i][row] == 1 {
				kind, latest = k, t
			}
		}
	}

	return kind, (managed || among(kind, managing)) && kind != "mq" && kind != "netem"
}

// delay holds the delay that a load adds to RTTs, in ns.
type delay struct {
	probes, tcp float64 // median RTT of probes, and of TCP itself, each minus lowest
	lowest      float64 // lowest RTT seen
}

// addedDelay returns the delay that the load adds. ok is false without a measurement.
func (o *Observation) addedDelay() (d delay, ok bool) {
	d.lowest = math.Inf(1)
	rtts := o.Metrics.RTTs["loaded"]
	if len(rtts) > 0 {
		d.lowest = rtts[0]
	}

	for _, name := range []string{metrics.MinRTTTCP, metrics.RTTIdle} {
		if v, _ := o.idle(name); v > 0 {
			d.lowest = min(d.lowest, v)
		}
	}

	v, ok := o.Metric(metrics.RTTTCP)
	d.tcp = max(v-d.lowest, 0)
	if len(rtts) > 0 {
		d.probes = max(statistics.QuantileSorted(rtts, .5)-d.lowest, 0)
	}

	return d, ok || len(rtts) > 0
}

// queueing returns the delay of probes or, if it is larger, the delay of TCP. The delay of TCP counts for at
// most 5 ms more than the delay of probes, because the ends may add that much to TCP's own RTT.
func (d delay) queueing() float64 { return max(d.probes, min(d.tcp, d.probes+5e6)) }

// fact reports the median RTT of probes under load, with the lowest RTT as its baseline.
func (d delay) fact(text string, args ...any) Fact {
	return against(seen("rtt_loaded_p50_ns", d.lowest+d.probes, text, args...), d.lowest)
}

// resent returns the share of TCP's segments that were retransmitted. ok is false if they were not counted.
func (o *Observation) resent() (share float64, ok bool) {
	count, ok := o.Metric(metrics.Retransmits)
	got, has := o.Metric(metrics.Goodput)
	mss := o.mss()
	if !ok || !has || mss == 0 {
		return 0, false
	}

	return ratio(count, count+got/8*o.Window.Seconds()/float64(mss)), true
}

// tcpFlows returns the load's TCP flows.
func (o *Observation) tcpFlows() (out []record.Flow) {
	if o.Traffic == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.Traffic.Flows),
		func(f record.Flow) bool { return f.TCP == nil })
}

// mss returns the largest MSS of the load's TCP flows, or 0 if it is unknown.
func (o *Observation) mss() (bytes int) {
	for _, f := range o.tcpFlows() {
		bytes = max(bytes, f.TCP.MSS)
	}
	return bytes
}

// lossOf returns the share of data that was lost, with its evidence: UDP packets that did not arrive, or TCP
// segments that were retransmitted.
func (o *Observation) lossOf() (share float64, e Fact, ok bool) {
	name := metrics.LossRatio
	if o.IsTCP() {
		name = metrics.Retransmits
		share, ok = o.resent()
	} else {
		share, ok = o.Metric(name)
		share = max(share-o.value(metrics.UnsentRatio), 0)
	}
	return share, seen(name, share, "%h of the load's packets were lost or retransmitted"), ok
}

// grew returns the sum of the growth of protocol counters at a node.
func (o *Observation) grew(node, stems string) (sum float64, ok bool) {
	sum, why := o.sum(place{Node: node}, "snmp", stems)
	return sum, why == ""
}

// maxOnPath returns the node on the load's path at which one of several sums of protocol counters grew most,
// and that growth. known is false if no node reports the first sum.
func (o *Observation) maxOnPath(sums ...string) (highest float64, at string, known bool) {
	for _, node := range o.wayNodes() {
		for i, stems := range sums {
			v, ok := o.grew(node, stems)
			known = known || ok && i == 0
			if v > highest {
				highest, at = v, node
			}
		}
	}
	return highest, at, known
}
