package diagnosis

import (
	"cmp"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// Classes of limit that only the blackbox analysis reports: no single trial shows them, or they have no known
// location.
const (
	perPacket      = "per-packet-limit"
	perByte        = "per-byte-limit"
	oneCorePerFlow = "one-core-per-flow"
	perFlowLimit   = "per-flow-limit"
)

// sweepRules lists the classes with their rules, in the order of the reference.
var sweepRules = []struct {
	class string
	check func(*sweep) Candidate
}{{perPacket, checkPerPacket}, {oneCorePerFlow, checkOneCore}, {perByte, checkPerByte},
	{perFlowLimit, checkPerFlow}, {Shaper, checkShaper}, {Policer, checkPolicer},
	{SmallQueue, checkSmallQueue}, {RandomLoss, checkRandomLoss}, {Reordering, checkReordering},
	{PMTUBlackHole, checkBlackHole}, {Fragmentation, checkFragmentation}, {ConntrackFull, checkTable},
	{ConnectionRate, checkConnections}, {ReceiveWindow, checkWindow}, {SlowReader, checkReader},
	{SendBuffer, checkSendBuffer}, {SlowSender, checkSender}, {Tester, checkTester}}

// counting lists the classes whose rules need to know whether the limit counts packets or bytes.
var counting = []string{perPacket, oneCorePerFlow, perByte, perFlowLimit, Shaper, Policer}

// check applies the rule of every class. Terms keep their prior weights. The fitted weights do not apply,
// even for classes with the same names, because they were fitted to telemetry of nodes.
func (s *sweep) check() []Candidate {
	var out []Candidate
	for _, r := range sweepRules {
		j := missing(s.uncounted)
		if j.NotExamined == "" || !slices.Contains(counting, r.class) {
			j = checked(r.check, s)
		}

		j.Class = r.class
		out = append(out, j)
	}

	Rate(out, Weights{})
	return out
}

// special returns a candidate for a class that must outweigh the limit that any path shows at full rate. It
// adds a supporting term, which is met to the same degree as the given terms together.
func special(terms ...Term) Candidate {
	return candidate(append(terms, supports("special", met(terms...)))...)
}

// said returns a fact with the packet rates at the smallest and the largest packet size.
func (s *sweep) said() Fact {
	small, large := s.sizes()
	return against(seen(metrics.PacketRate, small.pps(), "%r of %.4g-byte packets, %r of %.4g-byte ones",
		small.pps(), small.size(), large.pps(), large.size()), large.pps())
}

func checkPerPacket(s *sweep) Candidate {
	return candidate(requires("per-packet", s.packets)).facts(s.said()).
		text("%r at any packet size: a per-packet limit, typical of a CPU", s.pps)
}

// checkOneCore checks a per-packet limit that is lower for one flow than for several.
func checkOneCore(s *sweep) Candidate {
	several, ok := s.spread.value(metrics.PacketRate)
	needs(ok, "small packets in several streams were not measured")
	one := greatest(s.flat, (*Cell).pps).pps() // at any size, because the limit counts packets
	gain := several / max(one, 1)
	return special(requires("per-packet", s.packets), requires("several-carry-more", gain, 1.15, 1.5)).
		facts(against(seen(metrics.PacketRate, several, "several streams carry %m what one does", gain),
			one)).
		gain(gain).
		text("one core per flow: %r with one, %r with several", one, several)
}

// waits returns the certainty, from 0 to 1, that a queue fills in front of a per-byte limit. TCP's own RTT
// must grow more than the probes' RTT, because it also grows when the ends lack CPU time. Probes do not pass
// through a flow's own queue.
func (s *sweep) waits() (float64, Fact) {
	const few = 6 * 1514 * 8 // bits in six full frames, which any device buffers
	full := max(few/s.bps*1e9, 1e6)
	return max(degree(s.probedNs/full, .4, 1.6), degree(s.tcpNs/full, 1.5, 4)),
		seen(metrics.RTTAdded, s.addedNs(), "TCP adds %n to the RTT")
}

// resent returns the share of TCP's segments that were retransmitted, with its fact.
func (s *sweep) resent() (float64, Fact) {
	again := max(s.one.again(), s.many.again())
	return again, seen(metrics.Retransmits, again, "TCP retransmits %h of its segments")
}

// checkPerByte checks for a limit that counts bytes but is not a rate limiter: the rate varies, and packets
// are neither queued nor dropped.
func checkPerByte(s *sweep) Candidate {
	uneven := spread(s.rates)
	queue, _ := s.waits()
	again, _ := s.resent()
	return candidate(requires("per-byte", s.bytes),
		requires("uneven", uneven, .1, .4),
		contradicts("queued", queue),
		contradicts("resent", again, .0005, .01)).
		facts(seen(metrics.Goodput, s.bps, "the bit rates of the packet sizes differ by %h", uneven)).
		text("a per-byte limit of about %b", s.bps)
}

// checkPerFlow checks for a per-byte limit that applies to each flow separately. Several TCP streams must
// carry more together than a single TCP stream, and more than a single UDP flow at full rate.
func checkPerFlow(s *sweep) Candidate {
	one := s.one.goodput()
	several := s.many.goodput()
	needs(one > 0 && several > 0, "TCP was not measured with one stream and with several")
	streams := factor.Streams.Of(s.many.Factors)
	return special(requires("per-byte", s.bytes), requires("several-carry-more", several/one, 1.3, 2),
		requires("more-than-udp", several/max(s.udp(), 1), 1.1, 1.6)).
		facts(against(seen(metrics.Goodput, several, "%s streams of TCP carry %m what one does", streams,
			several/one), one), s.said()).
		gain(several/one).
		text("each flow has a limit of its own, of about %b: %s streams of TCP reach %b", s.bps, streams,
			several)
}

func checkShaper(s *sweep) Candidate {
	queue, added := s.waits()
	return candidate(requires("per-byte", s.bytes), requires("queue", queue)).facts(s.said(), added).
		text("a shaper or a slower link at %b, with %k queued in front of it", s.bps, s.queueBytes())
}

func checkPolicer(s *sweep) Candidate {
	queue, added := s.waits()
	again, resent := s.resent()
	drops := max(again, greatest(s.flat, (*Cell).lost).lost())
	return candidate(requires("per-byte", s.bytes),
		requires("no-queue", 1-queue),
		requires("drops", drops, .0005, .01)).
		facts(added, resent).
		text("a policer at %b: it drops, and queues no more than %k", s.bps, s.queueBytes())
}

// checkSmallQueue checks for a path that carries a steady rate but drops packets from bursts, such as TCP's.
func checkSmallQueue(s *sweep) Candidate {
	udp := s.udp()
	tcp := s.tcp()
	needs(udp > 0 && tcp > 0, "TCP or UDP goodput is missing")
	share := tcp / udp
	again, resent := s.resent()
	j := candidate(requires("slow-tcp", share, .8, .35),
		requires("resent", again, .001, .01),
		requires("steady-passes", s.restLost(), .02, .001)).
		facts(against(seen(metrics.Goodput, tcp, "TCP reaches %h of the UDP rate", share), udp), resent).
		text("a queue too short for TCP bursts: TCP reaches %b, UDP %b", tcp, udp)
	// If a burst loses a segment, it takes at least as long as the kernel's minimum retransmission timeout.
	name := metrics.FlowTime("completion", metrics.Percentiles[0])
	if took, ok := s.bursts.value(name); ok {
		slow := degree(took, 10*s.idleNs+5e6, 10*s.idleNs+50e6)
		return j.with(supports("slow-bursts", slow), contradicts("quick-bursts", 1-slow)).
			facts(seen(name, took, "a burst of ten segments takes %n"))
	}

	return j
}

// atRest returns the UDP cells with a set rate below the limit.
func (s *sweep) atRest() []*Cell {
	return slices.DeleteFunc([]*Cell{s.low, s.half}, func(c *Cell) bool {
		_, ok := c.value(metrics.LossRatio)
		return !ok
	})
}

// restLost returns the highest loss of the loads below the limit.
func (s *sweep) restLost() float64 { return greatest(s.atRest(), (*Cell).lost).lost() }

// checkRandomLoss checks whether the loss is the same at every rate below the limit. If so, the path causes
// it. Loss that occurs only at the higher rate is caused by a limit.
func checkRandomLoss(s *sweep) Candidate {
	lowest := math.Inf(1)
	lost := s.restLost()
	for _, c := range s.atRest() {
		lowest = min(lowest, c.lost())
	}

	needs(!math.IsInf(lowest, 1), "no load below the limit was measured")
	return special(requires("lossy", max(lowest, lost/10), .0004, .004), requires("some-pass", lost, .9, .5)).
		facts(seen(metrics.LossRatio, lost, "%h of the packets are lost at half the path's rate or less")).
		text("packets are lost at any rate: %h of them", lost)
}

func checkReordering(s *sweep) Candidate {
	worst := -1.0
	for _, c := range s.atRest() {
		late, ok := c.value(metrics.Reordered)
		n := c.pps() * c.Seconds
		if ok && n > 0 {
			worst = max(worst, late/n)
		}
	}

	needs(worst >= 0, "no load below the limit was measured in exact mode")
	return special(requires("out-of-order", worst, .002, .03)).
		facts(seen(metrics.Reordered, worst, "%h of the packets arrive out of order below the limit")).
		text("packets are reordered: %h arrive out of order", worst)
}

// checkBlackHole checks for a path that passes small packets but not large ones.
func checkBlackHole(s *sweep) Candidate {
	small, large := s.sizes()
	v, ok := large.value(metrics.PacketRate)
	needs(small.pps() > 0, "small packets do not get through either")
	needs(ok || large.Failed > 0, "large packets were not measured")
	lost := 1.0 // a failed trial carried no packets
	if v > 0 {
		lost = large.lost()
	}

	return special(requires("large-lost", lost, .99, .9999),
		requires("tcp-stuck", s.tcp()/max(s.short.goodput(), 1), .5, .05)).
		facts(against(seen(metrics.LossRatio, lost,
			"%h of the large packets are lost, small ones get through"), small.lost())).
		text("packets of %.4g bytes are dropped silently: a PMTU black hole", large.size())
}

// checkFragmentation checks for a path on which a large packet costs as much as two.
func checkFragmentation(s *sweep) Candidate {
	needs(len(s.flat) >= 3, "fewer than three packet sizes were measured")
	below := s.flat[len(s.flat)-2]
	large := s.flat[len(s.flat)-1]
	needs(min(below.pps(), large.pps()) > 0 && (large.exceeds() || below.exceeds()),
		"neither size exceeded the path")
	share := large.pps() / below.pps()
	even := below.size() / large.size() // ratio expected if the limit counts bytes
	return special(requires("large-cost-two", share/even, .85, .55)).
		facts(against(seen(metrics.PacketRate, large.pps(),
			"the packet rate at the largest size is %h of that at the next", share), below.pps())).
		text("packets of %.4g bytes cost as much as two: they are fragmented on the path", large.size())
}

// answered returns the share of new connections, started at a set rate, that completed in time, and their
// rate.
func (s *sweep) answered() (share, rate float64, ok bool) {
	rate, ok = s.opened.value(metrics.FlowRate)
	if !ok {
		return 0, 0, false
	}

	asked := factor.ConnectionRate.Number(s.opened.Factors)
	return ratio(rate, float64(asked)), rate, asked > 0
}

// connecting checks for a limit on new connections. It requires that the loads on open connections get
// through.
func (s *sweep) connecting(share, rate float64, terms ...Term) Candidate {
	return special(append(terms, requires("open-ones-pass", s.restLost(), .15, .03))...).
		facts(seen(metrics.FlowRate, rate, "%h of the new connections complete in time, %s", share,
			metrics.Say(metrics.FlowRate, rate)))
}

func checkTable(s *sweep) Candidate {
	share, rate, ok := s.answered()
	switch {
	case ok:
		return s.connecting(share, rate, requires("few-answered", share, .3, .02)).
			text("the conntrack table is full: only %s are opened, while open ones keep working",
				metrics.Say(metrics.FlowRate, rate))
	case s.opened != nil && s.opened.Failed > 0 && s.tcp() > 0:
		// If nothing limits the other loads, new connections fail for another reason.
		return candidate(contradicts("nothing-limits", met(checkTester(s).Terms...))).
			text("new connections fail while open ones keep working: the conntrack table is full")
	}
	return missing("new connections were not measured")
}

func checkConnections(s *sweep) Candidate {
	share, rate, ok := s.answered()
	needs(ok, "new connections were not measured")
	return s.connecting(share, rate, requires("some-answered", share, .02, .15),
		requires("some-unanswered", share, .9, .75)).
		text("new connections: %s at most", metrics.Say(metrics.FlowRate, rate))
}

// windowBytes returns the bytes that one TCP stream has in flight.
func (s *sweep) windowBytes() float64 {
	return s.one.goodput() / 8 * max(s.one.median(metrics.RTTTCP), s.idleNs) / 1e9
}

// perFlow returns the certainty, from 0 to 1, that each flow is limited separately. It uses the ratio of the
// rate of several flows to the rate of one flow. If that ratio is unknown, it uses the bytes that one flow
// has in flight: with fewer than two segments in flight, no window limits the flow.
func (s *sweep) perFlow() float64 {
	one, many := s.one.goodput(), s.many.goodput()
	if one > 0 && many > 0 {
		return degree(many/one, 1.2, 1.8)
	}
	return degree(s.windowBytes(), 1000, 4000)
}

// limitedBy checks whether an end limits TCP. metric is the share of the time in which the end did so.
func (s *sweep) limitedBy(what, metric string, terms ...Term) Candidate {
	share, ok := s.one.value(metric)
	needs(ok, "TCP_INFO is missing")
	return special(append(terms, requires("limits-tcp", share, .15, .5))...).
		facts(seen(metric, share, "the %s limits TCP for %h of the time, with %k in flight", what, share,
			s.windowBytes()))
}

func checkWindow(s *sweep) Candidate {
	return s.limitedBy("receive window", metrics.RwndLimited, requires("per-flow", s.perFlow())).
		text("the receive window is too small: %k per RTT", s.windowBytes())
}

func checkReader(s *sweep) Candidate {
	return s.limitedBy("receive window", metrics.RwndLimited, requires("shared", 1-s.perFlow())).
		text("the receiving application reads only %b", s.one.goodput())
}

func checkSendBuffer(s *sweep) Candidate {
	return s.limitedBy("send buffer", metrics.SndbufLimited).
		text("the send buffer is too small: %k per RTT", s.windowBytes())
}

// checkSender checks for a sender without data to send, although the path could carry far more.
func checkSender(s *sweep) Candidate {
	busy, ok := s.one.value(metrics.BusyRatio)
	udp := s.udp()
	needs(ok && udp > 0, "TCP_INFO is missing, or no UDP gets through")
	return special(requires("idle", busy, .9, .5),
		requires("path-carries-more", s.one.goodput()/udp, .5, .2)).
		facts(seen(metrics.BusyRatio, busy, "TCP had data to send for %h of the time")).
		text("the sending application writes only %b", s.one.goodput())
}

// received returns the highest goodput of an application. It prefers TCP's goodput, because counting UDP
// packets may cost the receiver less than delivering data to an application.
func (s *sweep) received() float64 { return cmp.Or(s.tcp(), s.udp()) }

// checkTester checks for loads that nothing on the path limits.
func checkTester(s *sweep) Candidate {
	if s.tcp() <= 0 || s.udp() <= 0 {
		return missing("TCP or UDP at full rate has no goodput")
	}

	worst := greatest(s.flat, (*Cell).lost).lost()
	return candidate(requires("no-loss", worst, .05, .005),
		requires("no-queue", s.addedNs(), 8e6, 3e6),
		requires("tcp-reaches-udp", s.tcp()/s.udp(), .25, .5)).
		facts(seen(metrics.LossRatio, worst, "at most %h of what was sent at full rate is lost")).
		text("nothing between the ends limits these loads: the tester does, at %b", s.received())
}
