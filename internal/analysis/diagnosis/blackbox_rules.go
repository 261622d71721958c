package diagnosis

import (
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// Classes of limit that two ends can tell apart but that no single trial shows, or that name no place.
const (
	perPacket      = "per-packet-limit"
	perByte        = "per-byte-limit"
	oneCorePerFlow = "one-core-per-flow"
	perFlowLimit   = "per-flow-limit"
)

// pathRule describes one class of limit as the cells of a path show it.
type pathRule struct {
	class string
	judge func(*sweep) Judgement
}

// sweepRules lists the classes in the order of the reference.
func sweepRules() []pathRule {
	return []pathRule{{perPacket, limited(judgePerPacket)}, {oneCorePerFlow, judgeOneCore},
		{perByte, limited(judgePerByte)}, {perFlowLimit, limited(judgePerFlow)},
		{Shaper, limited(judgeShaper)}, {Policer, limited(judgePolicer)}, {SmallQueue, judgeSmallQueue},
		{RandomLoss, judgeRandomLoss}, {Reordering, judgeReordering}, {PMTUBlackHole, judgeBlackHole},
		{Fragmentation, judgeFragmentation}, {ConntrackFull, judgeTable},
		{ConnectionRate, judgeConnections}, {ReceiveWindow, judgeWindow}, {SlowReader, judgeReader},
		{SendBuffer, judgeSendBuffer}, {SlowSender, judgeSender}, {Tester, judgeTester}}
}

// limited calls judge with how far the limit counts packets, and bytes, where that is known.
func limited(judge func(s *sweep, packets, bytes float64) Judgement) func(*sweep) Judgement {
	return func(s *sweep) Judgement {
		packets, bytes, why := s.counted()
		if why != "" {
			return missing(why)
		}
		return judge(s, packets, bytes)
	}
}

// judge applies the rule of every class. Each term has its prior: the weights of classes of the same name
// were fitted to what nodes report.
func (s *sweep) judge() []Judgement {
	var out []Judgement
	for _, r := range sweepRules() {
		j := r.judge(s)
		j.Class = r.class
		out = append(out, j)
	}
	Rate(out, Weights{})
	return out
}

// special lets a class outweigh the limit that any path shows at full rate: it adds a term that is met as far
// as the others.
func special(terms ...Term) []Term { return append(terms, supports("special", met(terms...))) }

// counted returns how far the limit counts packets, and bytes; why gives the reason if neither is known.
func (s *sweep) counted() (packets, bytes float64, why string) {
	switch {
	case len(s.limited) == 0:
		return 0, 0, "no load exceeded the path: its limit is above what the tester can send"
	case math.IsNaN(s.slope):
		return 0, 0, "only one packet size exceeded the path"
	}
	return degree(s.slope, -.65, -.2), degree(s.slope, -.35, -.8), ""
}

// said returns a fact about packet sizes: the rate that passed, of the smallest and of the largest.
func (s *sweep) said() evidence.Evidence {
	small, large := s.flat[0], s.flat[len(s.flat)-1]
	a, b := small.or(metrics.PacketRate, 0), large.or(metrics.PacketRate, 0)
	return against(seen(metrics.PacketRate, a, "%r of %.4g-byte packets, %r of %.4g-byte ones", a,
		small.size(), b, large.size()), b)
}

func judgePerPacket(s *sweep, packets, _ float64) Judgement {
	return Judgement{Terms: []Term{requires("per-packet", packets)}, Facts: factList{s.said()},
		Text: say("%r at any packet size: a per-packet limit, typical of a CPU", s.pps)}
}

// judgeOneCore judges a per-packet limit that is lower for one flow than for several.
func judgeOneCore(s *sweep) Judgement {
	packets, _, why := s.counted()
	several, ok := s.spread.value(metrics.PacketRate)
	if !ok {
		return missing("small packets in several streams were not measured")
	}
	if why != "" {
		return missing(why)
	}
	// The best of any size: the limit is one per packet.
	one := most(s.flat, func(c *Cell) float64 { return c.or(metrics.PacketRate, 0) })
	gain := several / max(one, 1)
	return Judgement{Terms: special(requires("per-packet", packets),
		requires("several-carry-more", gain, 1.15, 1.5)),
		GainAtMost: gain, Text: say("one core per flow: %r with one, %r with several", one, several),
		Facts: factList{against(seen(metrics.PacketRate, several,
			"several streams carry %m what one does", gain), one)}}
}

// waits returns how far the queue in front of a per-byte limit is full. Probes do not see a flow's own queue,
// but TCP's RTT also grows where the ends have no time.
func (s *sweep) waits() (float64, evidence.Evidence) {
	const few = 6 * 1514 * 8 // bits of packets that any device holds
	full := max(few/s.bps*1e9, 1e6)
	return max(degree(s.probedNs/full, .4, 1.6), degree(s.tcpNs/full, 1.5, 4)), seen(metrics.RTTAdded,
		s.addedNs(), "TCP adds %n to the RTT", s.addedNs())
}

// resent returns the share of TCP's segments that were retransmitted.
func (s *sweep) resent() (float64, evidence.Evidence) {
	again := max(s.one.again(), s.many.again())
	return again, seen(metrics.Retransmits, again, "TCP retransmits %h of its segments", again)
}

// judgePerByte judges a limit that counts bytes and is no rate limiter: it is uneven, and neither queues nor
// drops.
func judgePerByte(s *sweep, _, bytes float64) Judgement {
	rates := make([]float64, 0, len(s.limited))
	for _, c := range s.limited {
		rates = append(rates, c.or(metrics.PacketRate, 0)*(c.size()+ethernetHeader)*8)
	}
	uneven := spread(rates)
	queue, _ := s.waits()
	again, _ := s.resent()
	return Judgement{Terms: []Term{requires("per-byte", bytes),
		requires("uneven", uneven, .1, .4),
		contradicts("queued", queue), contradicts("resent", again, .0005, .01)},
		Text: say("a per-byte limit of about %b", s.bps),
		Facts: factList{seen(metrics.Goodput, s.bps,
			"the bit rates of the packet sizes differ by %h", uneven)}}
}

// judgePerFlow judges a per-byte limit that each flow has to itself: several streams of TCP carry more than
// one, and more than one flow of UDP that is flat out.
func judgePerFlow(s *sweep, _, bytes float64) Judgement {
	one, several := s.one.goodput(), s.many.goodput()
	if one <= 0 || several <= 0 {
		return missing("TCP was not measured with one stream and with several")
	}
	streams := factor.Streams.Of(s.many.Factors) + " streams"
	return Judgement{Terms: special(requires("per-byte", bytes),
		requires("several-carry-more", several/one, 1.3, 2),
		requires("more-than-udp", several/max(s.udp(), 1), 1.1, 1.6)),
		GainAtMost: several / one,
		Text: say("each flow has a limit of its own, of about %b: %s of TCP reach %b", s.bps,
			streams, several),
		Facts: factList{against(seen(metrics.Goodput, several, "%s of TCP carry %m what one does",
			streams, several/one), one), s.said()}}
}

func judgeShaper(s *sweep, _, bytes float64) Judgement {
	queue, added := s.waits()
	return Judgement{Terms: []Term{requires("per-byte", bytes), requires("queue", queue)},
		Facts: factList{s.said(), added},
		Text: say("a shaper or a slower link at %b, with %s queued in front of it", s.bps,
			bytesText(s.queueBytes()))}
}

func judgePolicer(s *sweep, _, bytes float64) Judgement {
	queue, added := s.waits()
	again, resent := s.resent()
	drops := max(again, most(s.flat, (*Cell).lost))
	return Judgement{Terms: []Term{requires("per-byte", bytes), requires("no-queue", 1-queue),
		requires("drops", drops, .0005, .01)},
		Text:  say("a policer at %b: it drops, and queues no more than %s", s.bps, bytesText(s.queueBytes())),
		Facts: factList{added, resent}}
}

// judgeSmallQueue judges a path that carries a steady rate and drops from bursts, such as TCP's.
func judgeSmallQueue(s *sweep) Judgement {
	udp, tcp := s.udp(), s.tcp()
	if udp <= 0 || tcp <= 0 {
		return missing("TCP or UDP goodput is missing")
	}
	share := tcp / udp
	again, resent := s.resent()
	facts := factList{against(seen(metrics.Goodput, tcp, "TCP reaches %h of the UDP rate", share), udp),
		resent}
	slow, quick := 0.0, 0.0
	// A burst that lost a segment waits at least as long as the kernel's shortest retransmission timer.
	name := metrics.FlowTime("completion", metrics.Percentiles[0])
	if took, ok := s.bursts.value(name); ok {
		slow = degree(took, 10*s.idleNs+5e6, 10*s.idleNs+50e6)
		quick = 1 - slow
		facts = append(facts, seen(name, took, "a burst of ten segments takes %s", metrics.Say(name, took)))
	}
	return Judgement{Terms: []Term{requires("slow-tcp", share, .8, .35),
		requires("resent", again, .001, .01),
		requires("steady-passes", s.restLost(), .02, .001),
		supports("slow-bursts", slow), contradicts("quick-bursts", quick)},
		Text:  say("a queue too short for TCP bursts: TCP reaches %b, UDP %b", tcp, udp),
		Facts: facts}
}

// atRest returns the cells with a rate below the limit.
func (s *sweep) atRest() []*Cell {
	return slices.DeleteFunc([]*Cell{s.low, s.half}, func(c *Cell) bool {
		_, ok := c.value(metrics.LossRatio)
		return !ok
	})
}

// restLost returns the highest loss of a load below the limit.
func (s *sweep) restLost() float64 { return most(s.atRest(), (*Cell).lost) }

func judgeRandomLoss(s *sweep) Judgement {
	rest := s.atRest()
	if len(rest) == 0 {
		return missing("no load below the limit was measured")
	}
	// Equal loss at every rate comes from the path; loss at the higher rate alone comes from a limit.
	least, most := math.Inf(1), s.restLost()
	for _, c := range rest {
		least = min(least, c.lost())
	}
	return Judgement{Terms: special(requires("lossy", max(least, most/10), .0004, .004),
		requires("some-pass", most, .9, .5)),
		Text: say("packets are lost at any rate: %h of them", most),
		Facts: factList{seen(metrics.LossRatio, most, "%h of the packets are lost at half the path's rate "+
			"or less", most)}}
}

func judgeReordering(s *sweep) Judgement {
	worst, ok := 0.0, false
	for _, c := range s.atRest() {
		late, has := c.value(metrics.Reordered)
		if n := c.or(metrics.PacketRate, 0) * c.Seconds; has && n > 0 {
			worst, ok = max(worst, late/n), true
		}
	}
	if !ok {
		return missing("no load below the limit was measured in exact mode")
	}
	return Judgement{Terms: special(requires("out-of-order", worst, .002, .03)),
		Text: say("packets are reordered: %h arrive out of order", worst),
		Facts: factList{seen(metrics.Reordered, worst, "%h of the packets arrive out of order below the "+
			"limit", worst)}}
}

// judgeBlackHole judges a path that small packets pass and large ones do not.
func judgeBlackHole(s *sweep) Judgement {
	small, large := s.flat[0], s.flat[len(s.flat)-1]
	passed, ok := small.value(metrics.PacketRate)
	if !ok || passed <= 0 {
		return missing("small packets do not get through either")
	}
	lost := 1.0 // a failed trial carried nothing
	if v, ok := large.value(metrics.PacketRate); ok {
		if v > 0 {
			lost = large.lost()
		}
	} else if large.Failed == 0 {
		return missing("large packets were not measured")
	}
	tcp := s.tcp() / max(s.short.goodput(), 1)
	return Judgement{Terms: special(requires("large-lost", lost, .99, .9999),
		requires("tcp-stuck", tcp, .5, .05)),
		Text: say("packets of %.4g bytes are dropped silently: a PMTU black hole", large.size()),
		Facts: factList{against(seen(metrics.LossRatio, lost,
			"%h of the large packets are lost, small ones get through", lost), small.lost())}}
}

// judgeFragmentation judges a path on which a large packet counts as two.
func judgeFragmentation(s *sweep) Judgement {
	if len(s.flat) < 3 {
		return missing("fewer than three packet sizes were measured")
	}
	below, large := s.flat[len(s.flat)-2], s.flat[len(s.flat)-1]
	a, b := below.or(metrics.PacketRate, 0), large.or(metrics.PacketRate, 0)
	if a <= 0 || b <= 0 || !large.exceeds() && !below.exceeds() {
		return missing("neither size exceeded the path")
	}
	share := b / a
	even := below.size() / large.size() // if the limit counts bytes
	return Judgement{Terms: special(requires("large-cost-two", share/even, .85, .55)),
		Text: say("packets of %.4g bytes cost as much as two: they are fragmented on the path",
			large.size()), Facts: factList{against(seen(metrics.PacketRate, b,
			"the packet rate at the largest size is %h of that at the next", share), a)}}
}

// answered returns the share of new connections, started at a rate, that completed in time.
func (s *sweep) answered() (share, rate float64, ok bool) {
	if rate, ok = s.opened.value(metrics.FlowRate); ok {
		if asked := factor.ConnectionRate.Number(s.opened.Factors); asked > 0 {
			return rate / float64(asked), rate, true
		}
	}
	return 0, 0, false
}

// connecting returns the fact about new connections, after the facts about loads with open ones.
func (s *sweep) connecting(share, rate float64) factList {
	return factList{seen(metrics.FlowRate, rate, "%h of the new connections complete in time, %s", share,
		metrics.Say(metrics.FlowRate, rate))}
}

// openPass requires that loads over open connections get through.
func (s *sweep) openPass() Term { return requires("open-ones-pass", s.restLost(), .15, .03) }

func judgeTable(s *sweep) Judgement {
	share, rate, ok := s.answered()
	switch {
	case !ok && s.opened != nil && s.opened.Failed > 0 && s.tcp() > 0:
		// If nothing limits the other loads, these fail for another reason.
		return Judgement{Terms: []Term{contradicts("nothing-limits", met(judgeTester(s).Terms...))},
			Text: "new connections fail while open ones keep working: the conntrack table is full"}
	case !ok:
		return missing("new connections were not measured")
	}
	return Judgement{Terms: special(requires("few-answered", share, .3, .02), s.openPass()),
		Text: "the conntrack table is full: only " + metrics.Say(metrics.FlowRate, rate) +
			" are opened, while open ones keep working", Facts: s.connecting(share, rate)}
}

func judgeConnections(s *sweep) Judgement {
	share, rate, ok := s.answered()
	if !ok {
		return missing("new connections were not measured")
	}
	return Judgement{Terms: special(requires("some-answered", share, .02, .15),
		requires("some-unanswered", share, .9, .75), s.openPass()),
		Text:  "new connections: " + metrics.Say(metrics.FlowRate, rate) + " at most",
		Facts: s.connecting(share, rate)}
}

// windowBytes returns how much TCP has in flight: below two segments no window is the cause.
func (s *sweep) windowBytes() float64 {
	return s.one.goodput() / 8 * max(s.one.or(metrics.RTTTCP, s.idleNs), s.idleNs) / 1e9
}

// perFlow returns how far each flow has its own limit, rather than all sharing one: by the ratio of several
// flows to one, or, where that is not known, by what one has in flight.
func (s *sweep) perFlow() float64 {
	if one, many := s.one.goodput(), s.many.goodput(); one > 0 && many > 0 {
		return degree(many/one, 1.2, 1.8)
	}
	return degree(s.windowBytes(), 1000, 4000)
}

// limitedBy judges TCP that an end limits, by the share of the time; with is appended to that fact.
func (s *sweep) limitedBy(metric, what, with, text string, also ...Term) Judgement {
	share, ok := s.one.value(metric)
	if !ok {
		return missing("TCP_INFO is missing")
	}
	also = append(also, requires("limits-tcp", share, .15, .5))
	return Judgement{Terms: special(also...), Text: text,
		Facts: factList{seen(metric, share,
			"the %s limits TCP for %h of the time%s", what, share, with)}}
}

func judgeWindow(s *sweep) Judgement {
	return s.limitedBy(metrics.RwndLimited, "receive window", "", "the receive window is too small: "+
		bytesText(s.windowBytes())+" per RTT", requires("per-flow", s.perFlow()))
}

func judgeReader(s *sweep) Judgement {
	return s.limitedBy(metrics.RwndLimited, "receive window", ", with "+bytesText(s.windowBytes())+
		" in flight", say("the receiving application reads only %b", s.one.goodput()), requires("shared",
		1-s.perFlow()))
}

func judgeSendBuffer(s *sweep) Judgement {
	return s.limitedBy(metrics.SndbufLimited, "send buffer", "",
		"the send buffer is too small: "+bytesText(s.windowBytes())+" per RTT")
}

// judgeSender judges a sender that has nothing to send, though the path would carry far more.
func judgeSender(s *sweep) Judgement {
	busy, ok := s.one.value(metrics.BusyRatio)
	udp := s.udp()
	if !ok || udp <= 0 {
		return missing("TCP_INFO is missing, or no UDP gets through")
	}
	share := s.one.goodput() / udp
	return Judgement{Terms: special(requires("idle", busy, .9, .5),
		requires("path-carries-more", share, .5, .2)),
		Text: say("the sending application writes only %b", s.one.goodput()),
		Facts: factList{seen(metrics.BusyRatio, busy,
			"TCP had data to send for %h of the time", busy)}}
}

// received returns the highest goodput that an application received: TCP's where there is any, since packets
// of UDP that are only counted may cost less than any application's.
func (s *sweep) received() float64 {
	if tcp := s.tcp(); tcp > 0 {
		return tcp
	}
	return s.udp()
}

// judgeTester judges loads that nothing between the ends held back.
func judgeTester(s *sweep) Judgement {
	worst := most(s.flat, (*Cell).lost)
	if s.tcp() <= 0 || s.udp() <= 0 {
		return missing("TCP or UDP at full rate has no goodput")
	}
	share := s.tcp() / s.udp()
	return Judgement{Terms: []Term{requires("no-loss", worst, .05, .005),
		requires("no-queue", s.addedNs(), 8e6, 3e6),
		requires("tcp-reaches-udp", share, .25, .5)},
		Text: say("nothing between the ends limits these loads: the tester does, at %b", s.received()),
		Facts: factList{seen(metrics.LossRatio, worst, "at most %h of what was sent at full rate is lost",
			worst)}}
}
