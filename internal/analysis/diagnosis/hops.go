package diagnosis

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// wayNodes lists the nodes that the load's packets pass.
func (o *Observation) wayNodes() []string {
	var out []string
	for _, h := range o.hops() {
		for _, node := range []string{h.out.Node, h.in.Node} {
			if !slices.Contains(out, node) {
				out = append(out, node)
			}
		}
	}
	return out
}

// hop is a link of the load's way: the port by which its data leave a node, and the port where they arrive.
type hop struct{ out, in record.TopoPort }

// hops lists the links that the load's data pass, in order; with both directions, up comes first.
func (o *Observation) hops() []hop {
	t := o.Topology()
	if t == nil {
		return nil
	}
	var out []hop
	if o.load().Direction != record.Down {
		for _, l := range t.Links {
			out = append(out, hop{l.Ends[0], l.Ends[1]})
		}
	}
	if d := o.load().Direction; d == record.Down || d == record.Both {
		for _, l := range slices.Backward(t.Links) {
			out = append(out, hop{l.Ends[1], l.Ends[0]})
		}
	}
	return out
}

// queue describes the queue of a port by which the load's data leave a node, or by which they arrive.
type queue struct {
	node, port string
	kind       string  // of the root, "" where the samples lack it
	managed    bool    // it is a shaper's or keeps its delay short, rather than one FIFO
	packets    float64 // in the window, sent
	drops      float64
	early      float64 // drops before the window, while the load began
	refused    float64 // what the device behind it dropped, then and in the window
	overlimits float64 // ÷ packets: how often it throttled
	uneven     float64 // of what the port sent, see spread
	rateBps    float64 // that the port sent, frames
	setBps     float64 // to which it limits the port; 0 = none, or not known
	owned      bool    // the rate was found there, not set by the plan
	waited     float64 // share of the window's samples with packets in it; 1 where nothing sampled it
	fifos      bool    // it has classes, and each has a FIFO
	polices    bool    // its filters also drop what exceeds a rate
	roomy      bool    // it was never a quarter full, where its limit is known
	full       bool    // a sample saw it nine tenths full, where its limit is known
}

// idle rates from 0 to 1 how surely a throttling queue does not limit the load: the kernel counts an
// overlimit for each packet that waits for a token, even far below the rate. A queue is idle from a fifth
// below its configured rate, unless packets wait in it all the time. Where that rate is not known, it is idle
// if it drops nothing and is mostly empty.
func (q queue) idle() float64 {
	switch {
	case q.setBps > 0:
		used := q.rateBps / q.setBps
		idle := degree(used, .93, .8)
		if used < 1 && (q.managed || q.drops == 0) {
			// A queue that is never empty gets all its shaper lets pass. One that is busy for a part of the
			// time holds packets for that part.
			idle *= degree((q.waited-used)/(1-used), .95, .6)
		}
		return idle
	case q.drops > 0:
		return 0
	}
	return degree(q.waited, .8, .4)
}

// holds counts the overlimits per packet with which the queue may have limited the load. Uncounted ones, as
// with fq, show in a port that sends at the rate its queue is set to.
func (q queue) holds() float64 {
	if q.owned && q.overlimits == 0 {
		return .3 * degree(q.rateBps/q.setBps, .88, .96)
	}
	over := q.overlimits
	if over > .03 && slices.Contains([]string{"tbf", "htb", "hfsc", "cake"}, q.kind) {
		// One overlimit may stand for several packets that its burst then lets pass.
		over = max(over, .25*degree(q.waited, .7, .95))
	}
	return over * (1 - q.idle())
}

// throttles requires that the queue throttles often enough to limit the load.
func (q queue) throttles() Term { return requires("throttles", degree(q.holds(), .03, .25)) }

// atRate contradicts another cause of lost packets where a queue throttles at its rate: it then drops the
// excess.
func (q queue) atRate() Term { return contradicts("throttles", degree(q.holds(), .02, .2)) }

// place returns "the router's WAN port" for a queue.
func (q queue) place() string {
	if len(q.port) <= 3 {
		return "the " + q.node + "'s " + strings.ToUpper(q.port) + " port"
	}
	return "the " + q.node + "'s port " + q.port
}

// lost returns the share of its packets that the queue dropped.
func (q queue) lost() float64 { return ratio(q.drops, q.packets+q.drops) }

// queues returns the queues in which the load's data wait, from port to port, or, with ingress, those whose
// filters may drop them.
func (o *Observation) queues(ingress bool) (all []queue, why string) {
	return o.queuesOf(o.queuePlaces(o.hops(), ingress), ingress)
}

// returnQueues returns the queues in which the load's acknowledgements wait.
func (o *Observation) returnQueues() []queue {
	var back []hop
	for _, h := range slices.Backward(o.hops()) {
		back = append(back, hop{h.in, h.out})
	}
	all, _ := o.queuesOf(o.queuePlaces(back, false), false)
	return all
}

// queuePlaces lists the devices whose queues the packets of these hops pass: those by which they leave a
// node, and those to which a filter redirects them, such as an ifb. With ingress, it lists the devices that
// filter packets before they are queued.
func (o *Observation) queuePlaces(hops []hop, ingress bool) (out []record.TopoPort) {
	for _, h := range hops {
		leaves, arrives := o.found(h.out), o.found(h.in)
		if !ingress {
			if leaves != nil && leaves.Master != "" {
				out = append(out, record.TopoPort{Node: h.out.Node, Port: leaves.Master})
			}
			for _, device := range o.carriers(h.out, .5, 2) {
				out = append(out, record.TopoPort{Node: h.out.Node, Port: device})
			}
			out = append(out, h.out)
			for _, to := range leaves.RedirectsTo(true) {
				out = append(out, record.TopoPort{Node: h.out.Node, Port: to})
			}
			for _, to := range arrives.RedirectsTo(false) {
				out = append(out, record.TopoPort{Node: h.in.Node, Port: to})
			}
			continue
		}
		if leaves.FiltersLeaving() {
			out = append(out, h.out)
		}
		out = append(out, h.in)
	}
	return out
}

// carriers lists the other devices of a node that sent between low and high times as many bytes as a port,
// such as a VLAN or a veth in front of it: the load's packets passed them, too.
func (o *Observation) carriers(at record.TopoPort, low, high float64) (out []string) {
	columns, _ := o.Columns(at.Node, "netdev", "tx_bytes")
	port := o.passed(at.Node, at.Port, "tx").bytes
	master := ""
	if d := o.found(at); d != nil {
		master = d.Master
	}
	for _, c := range columns {
		n, _ := c.Grew()
		if c.Label != "lo" && c.Label != master && !strings.HasPrefix(c.Label, "ifb") && port > 0 &&
			!o.isPort(at.Node, c.Label) && n > low*port && n < high*port {
			out = append(out, c.Label)
		}
	}
	return out
}

// found returns a port's device from the inventory, nil if it was not read.
func (o *Observation) found(at record.TopoPort) *record.NetDevice {
	for _, e := range o.Run.Environments {
		if d := e.Inventory.Device(at.Port); e.Node == at.Node && d != nil {
			return d
		}
	}
	return nil
}

func (o *Observation) queuesOf(places []record.TopoPort, ingress bool) (all []queue, why string) {
	for _, at := range places {
		label := at.Port
		if ingress {
			label += "@ingress"
		}
		packets, ok := o.Sum(at.Node, "qdisc", "packets", only(label))
		if !ok && ingress && o.found(at).Polices(true) { // by filters at its root
			label = at.Port
			packets, ok = o.Sum(at.Node, "qdisc", "packets", only(label))
		}
		if !ok {
			_, no := o.Columns(at.Node, "qdisc", "packets")
			why = cmp.Or(why, no)
			continue
		}
		q := queue{node: at.Node, port: at.Port, packets: packets}
		q.drops, _ = o.Sum(at.Node, "qdisc", "drops", only(label))
		q.early = o.before(at.Node, "qdisc", "drops", label)
		if !ingress {
			q.refused, _ = o.Sum(at.Node, "netdev", "tx_dropped", only(label))
			q.refused += o.before(at.Node, "netdev", "tx_dropped", label)
		}
		over, _ := o.Sum(at.Node, "qdisc", "overlimits", only(label))
		// A queue counts the pieces of merged packets, but its overlimits in whole ones.
		q.overlimits = ratio(over, packets) * o.pieces(o.passed(at.Node, at.Port, "tx"))
		q.kind, q.managed = o.kindOf(at, label)
		q.rateBps, q.uneven = o.sentBy(at)
		if !ingress {
			q.setBps, q.owned, q.fifos = o.setTo(at)
			q.full, q.roomy = o.filled(at, q.kind)
			q.polices = o.found(at).Polices(true)
		}
		q.waited = 1
		if c, ok := o.columnOf(at.Node, "qdisc", "qlen_packets", label); ok {
			if share, sampled := c.waited(); sampled {
				q.waited = share
			}
		}
		all = append(all, q)
	}
	return all, cmp.Or(why, "no port on the path has a queue with counters")
}

// setTo returns the rate to which a port's queue is set, by the plan or by its owner (as found), and whether
// its classes have FIFOs.
func (o *Observation) setTo(at record.TopoPort) (bps float64, owned, fifos bool) {
	cell, set := o.Trial.Row.Factors, false
	for _, name := range cell.Names() {
		plain, place := factor.Split(name)
		level := cell[name]
		switch {
		case !slices.Contains(planted[Shaper], plain) && !hasFault(level, "link_rate"), level == "off":
			continue
		case plain == name && !slices.Contains(o.Routers(), at.Node),
			plain != name && place != at.Node && place != at.Node+"."+at.Port:
			continue
		}
		set = true
		if found := rateForm.FindStringSubmatch(level); found != nil {
			level = found[1]
		}
		if rate, err := unit.ParseBitrate(level); err == nil {
			bps = float64(rate)
		}
	}
	d := o.found(at)
	if set || d == nil || d.Missing != "" {
		return bps, false, false
	}
	leaves := d.Leaves()
	bps = d.RateBps()
	if root, _ := d.Root(); bps == 0 && root.FlowRateBps > 0 && o.IsTCP() {
		bps = root.FlowRateBps * float64(max(o.load().Streams, 1))
	}
	return bps, bps > 0, len(leaves) > 0 && !slices.ContainsFunc(leaves, func(c record.QueueFacts) bool {
		return slices.ContainsFunc(d.Below(c.Handle), func(q record.QueueFacts) bool {
			return !strings.HasSuffix(q.Kind, "fifo")
		})
	})
}

// filled reports whether a port's queue, if found in the inventory, held nine tenths of its packets in a
// sample, and whether it never held a quarter although its limit is large.
func (o *Observation) filled(at record.TopoPort, kind string) (full, roomy bool) {
	limit, known := math.Inf(1), 0.0
	if d := o.found(at); d != nil && d.Missing == "" {
		root, _ := d.Root()
		if root.Kind == kind && root.LimitPackets > 0 {
			limit, known = root.LimitPackets, root.LimitPackets
		}
		leaves := d.Leaves()
		if len(leaves) > 0 && !slices.ContainsFunc(leaves, func(c record.QueueFacts) bool {
			return len(d.Below(c.Handle)) > 0
		}) {
			known = defaultQueue
		}
	}
	c, _ := o.columnOf(at.Node, "qdisc", "qlen_packets", at.Port)
	most, _ := c.Largest()
	return most >= .9*limit, known > manyPackets && most < known/4
}

const (
	defaultQueue = 1000.0 // packets of a class without a queue of its own (txqueuelen of Ethernet)
	manyPackets  = 100.0
)

// before returns how far a port's counter grew before the window.
func (o *Observation) before(node, probe, stem, label string) (sum float64) {
	columns, _ := o.Columns(node, probe, stem)
	for _, c := range columns {
		if c.Label == label {
			n, _ := c.GrewBefore()
			sum += n
		}
	}
	return sum
}

// kindOf returns the kind of a port's queue, and whether it is a classful shaper or keeps delays short.
func (o *Observation) kindOf(at record.TopoPort, label string) (kind string, managed bool) {
	table, _ := metrics.SamplesOf(o.Trial.Nodes[at.Node], "qdisc")
	if table == nil {
		return "", false
	}
	latest := math.Inf(-1)
	for i, name := range table.Names {
		of, stem, _ := strings.Cut(name, "/")
		if of == label {
			// A port whose queue was replaced has a column for each kind.
			if k, ok := strings.CutPrefix(stem, "kind_"); ok {
				if at := lastSet(table.T, table.V[i], o.Trial.Window.End); at > latest {
					kind, latest = k, at
				}
			}
		}
		managed = managed || strings.HasPrefix(of, at.Port+"@") && of != at.Port+"@ingress"
	}
	return kind, (managed || slices.Contains([]string{"htb", "hfsc", "cake", "fq_codel", "codel", "fq_pie",
		"pie"}, kind)) && kind != "mq" && kind != "netem"
}

// lastSet returns when a column was last 1 up to a time, -Inf if never.
func lastSet(t []int64, v []float64, until int64) float64 {
	for i := len(t) - 1; i >= 0; i-- {
		if t[i] <= until && v[i] == 1 {
			return float64(t[i])
		}
	}
	return math.Inf(-1)
}

// parts is the number of equal parts into which the window is split to see how unevenly a port sent.
const parts = 5

// sentBy returns the rate of the frames that a port sent, and how uneven it was.
func (o *Observation) sentBy(at record.TopoPort) (bps, uneven float64) {
	columns, _ := o.Columns(at.Node, "netdev", "tx_bytes")
	for _, c := range columns {
		if c.Label != at.Port {
			continue
		}
		all, _ := c.Grew()
		var each []float64
		for i := range parts {
			if v, ok := c.GrewIn(float64(i)/parts, float64(i+1)/parts); ok {
				each = append(each, v)
			}
		}
		return 8 * o.perSecond(all), spread(each)
	}
	return 0, 0
}

// addedDelay returns the median RTT of probes beside the load, and of TCP itself, above the minimum seen; ok
// is false if nothing measured it.
func (o *Observation) addedDelay() (probes, tcp, least float64, ok bool) {
	least = math.Inf(1)
	if rtts := o.Metrics.RTTs["loaded"]; len(rtts) > 0 {
		least = rtts[0]
		probes, ok = statistics.QuantileSorted(rtts, .5), true
	}
	for _, name := range []string{"rtt_tcp_min_ns", metrics.RTT("idle", metrics.Percentiles[0])} {
		if v, has := o.idle(name); has && v > 0 {
			least = min(least, v)
		}
	}
	if v, has := o.Metric("rtt_tcp_ns"); has {
		tcp, ok = max(v-least, 0), true
	}
	return max(probes-least, 0), tcp, least, ok
}

// resent returns the share of TCP's segments that were retransmitted; ok is false where nothing counted them.
func (o *Observation) resent() (share, count float64, ok bool) {
	count, ok = o.Metric(metrics.Retransmits)
	got, has := o.Metric(metrics.Goodput)
	mss := 0
	if o.Trial.Traffic != nil {
		for _, f := range o.Trial.Traffic.Flows {
			if f.TCP != nil {
				mss = max(mss, f.TCP.MSS)
			}
		}
	}
	if !ok || !has || mss == 0 {
		return 0, 0, false
	}
	return ratio(count, count+got/8*o.Trial.Window.Seconds()/float64(mss)), count, true
}

// lossOf returns the share of data that was lost: of UDP's packets, or of segments that TCP retransmitted.
func (o *Observation) lossOf() (share float64, name string, ok bool) {
	if o.IsTCP() {
		share, _, ok = o.resent()
		return share, metrics.Retransmits, ok
	}
	share, ok = o.Metric(metrics.LossRatio)
	unsent, _ := o.Metric(metrics.UnsentRatio)
	return max(share-unsent, 0), metrics.LossRatio, ok
}

// grew returns the growth of protocol counters at a node, all together.
func (o *Observation) grew(node string, stems ...string) (sum float64, ok bool) {
	for _, stem := range stems {
		v, has := o.Sum(node, "snmp", stem, nil)
		sum, ok = sum+v, ok || has
	}
	return sum, ok
}

// maxOnPath finds the node of the load's way at which one of several sums of protocol counters grew most;
// known is false where no node reports the first of them.
func (o *Observation) maxOnPath(sums ...[]string) (most float64, at string, known bool) {
	for _, node := range o.wayNodes() {
		for i, stems := range sums {
			v, ok := o.grew(node, stems...)
			known = known || ok && i == 0
			if v > most {
				most, at = v, node
			}
		}
	}
	return most, at, known
}

// mbps formats a rate for a sentence.
func mbps(v float64) string { return unit.Bitrate(v).String() }
