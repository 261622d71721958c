package diagnosis

import (
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Classes of limit that two ends tell apart and that no single trial shows, or that name no place.
const (
	perPacket      = "per-packet-limit"
	perByte        = "per-byte-limit"
	oneCorePerFlow = "one-core-per-flow"
)

// pathRule is one class of limit as the cells of a path show it.
type pathRule struct {
	class string
	judge func(*sweep) Judgement
}

// sweepRules lists the classes, in the order in which the reference has them.
func sweepRules() []pathRule {
	return []pathRule{{perPacket, limited(judgePerPacket)}, {oneCorePerFlow, judgeOneCore},
		{perByte, limited(judgePerByte)}, {Shaper, limited(judgeShaper)}, {Policer, limited(judgePolicer)},
		{SmallQueue, judgeSmallQueue},
		{RandomLoss, judgeRandomLoss}, {Reordering, judgeReordering},
		{PMTUBlackHole, judgeBlackHole}, {Fragmentation, judgeFragmentation},
		{ConntrackFull, judgeTable}, {ConnectionRate, judgeConnections},
		{ReceiveWindow, judgeWindow}, {SlowReader, judgeReader}, {SendBuffer, judgeSendBuffer},
		{SlowSender, judgeSender}, {Tester, judgeTester}}
}

// limited judges by how much the limit counts packets, and bytes, where that is known.
func limited(judge func(s *sweep, packets, bytes float64) Judgement) func(*sweep) Judgement {
	return func(s *sweep) Judgement {
		packets, bytes, why := s.counted()
		if why != "" {
			return missing(why)
		}
		return judge(s, packets, bytes)
	}
}

// judge asks every class.
func (s *sweep) judge() []Judgement {
	var out []Judgement
	for _, r := range sweepRules() {
		j := r.judge(s)
		j.Class = r.class
		if j.NotExamined != "" {
			j.Score = math.NaN()
		}
		out = append(out, j)
	}
	return out
}

// counted says by how much the limit counts packets, and bytes; why says why neither is known.
func (s *sweep) counted() (packets, bytes float64, why string) {
	switch {
	case len(s.limited) == 0:
		return 0, 0, "no load exceeded the path: its limit is above what the tester can send"
	case math.IsNaN(s.slope):
		return 0, 0, "only one packet size exceeded the path"
	}
	return ramp(s.slope, -.65, -.2, -3, 3), ramp(s.slope, -.35, -.8, -3, 3), ""
}

// said is a fact of the sizes: what passed, of the smallest and of the largest.
func (s *sweep) said() evidence.Evidence {
	small, large := s.flat[0], s.flat[len(s.flat)-1]
	a, b := small.or(metrics.PacketRate, 0), large.or(metrics.PacketRate, 0)
	e := fact(metrics.PacketRate, "", "", a, metrics.Say(metrics.PacketRate, a)+" of "+
		unit.Significant(small.size(), 4)+"-byte packets, "+metrics.Say(metrics.PacketRate, b)+" of "+
		unit.Significant(large.size(), 4)+"-byte ones")
	return against(e, b)
}

func judgePerPacket(s *sweep, packets, _ float64) Judgement {
	return Judgement{Score: packets, Facts: factList{s.said()}, Text: metrics.Say(
		metrics.PacketRate, s.pps) + " at any packet size: a per-packet limit, typical of a CPU"}
}

// judgeOneCore is a limit per packet that several flows share less than one does.
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
	gain := several / math.Max(one, 1)
	return Judgement{Score: math.Min(packets+1.5, ramp(gain, 1.15, 1.5, -3, 4.5)),
		GainAtMost: gain, Text: "one core per flow: " + metrics.Say(metrics.PacketRate, one) +
			" with one, " + metrics.Say(metrics.PacketRate, several) + " with several",
		Facts: factList{against(fact(metrics.PacketRate, "", "", several,
			"several streams carry "+unit.Times(gain)+" what one does"), one)}}
}

// waits says how full the queue before a limit per byte is: below 0 there is none, above 0 one.
func (s *sweep) waits() (float64, evidence.Evidence) {
	const few = 6 * 1514 * 8 // bits of packets that any device holds
	full := math.Max(few/s.bps*1e9, 1e6)
	return ramp(s.addedNs/full, .4, 1.6, -3, 3), fact(metrics.RTTAdded, "", "", s.addedNs, "TCP adds "+
		metrics.Say(metrics.RTTAdded, s.addedNs)+" to the RTT")
}

// judgePerByte is a limit that counts bytes and is no rate limiter: it is uneven, or several streams pass it
// faster than one.
func judgePerByte(s *sweep, _, bytes float64) Judgement {
	rates := make([]float64, 0, len(s.limited))
	for _, c := range s.limited {
		rates = append(rates, c.or(metrics.PacketRate, 0)*(c.size()+ethernetHeader)*8)
	}
	uneven := spread(rates)
	return Judgement{Score: math.Min(bytes, ramp(uneven, .1, .4, -3, 1.5)),
		Text: "a per-byte limit of about " + metrics.Say(metrics.Goodput, s.bps),
		Facts: factList{fact(metrics.Goodput, "", "", s.bps,
			"the bit rates of the packet sizes differ by "+unit.Percent(uneven))}}
}

func judgeShaper(s *sweep, _, bytes float64) Judgement {
	queue, added := s.waits()
	return Judgement{Score: math.Min(bytes, queue), Facts: factList{s.said(), added},
		Text: "a shaper or a slower link at " + metrics.Say(metrics.Goodput, s.bps) + ", with " +
			bytesText(s.queueBytes()) + " queued in front of it"}
}

func judgePolicer(s *sweep, _, bytes float64) Judgement {
	queue, added := s.waits()
	again := math.Max(s.one.again(), s.many.again())
	return Judgement{Score: math.Min(bytes, -queue) + ramp(again, .0005, .01, -2, .5),
		Text: "a policer at " + metrics.Say(metrics.Goodput, s.bps) + ": it drops, and queues " +
			"no more than " + bytesText(s.queueBytes()),
		Facts: factList{added, fact(metrics.Retransmits, "", "", again,
			"TCP retransmits "+unit.Percent(again)+" of its segments")}}
}

// judgeSmallQueue is a path that carries a steady rate and drops of bursts, such as TCP's.
func judgeSmallQueue(s *sweep) Judgement {
	udp, tcp := s.udp(), s.tcp()
	if udp <= 0 || tcp <= 0 {
		return missing("TCP or UDP goodput is missing")
	}
	share, again := tcp/udp, math.Max(s.one.again(), s.many.again())
	score := math.Min(ramp(share, .35, .8, 3, -3), ramp(again, .001, .01, -3, 3))
	score = math.Min(score, ramp(s.restLost(), .001, .02, 3, -2))
	out := Judgement{Score: score, Text: "a queue too short for TCP bursts: TCP reaches " +
		metrics.Say(metrics.Goodput, tcp) + ", UDP " + metrics.Say(metrics.Goodput, udp),
		Facts: factList{against(fact(metrics.Goodput, "", "", tcp, "TCP reaches "+
			unit.Percent(share)+" of the UDP rate"), udp), fact(metrics.Retransmits, "", "", again,
			"TCP retransmits "+unit.Percent(again)+" of its segments")}}
	// A burst that lost a segment waits for it at least as long as the kernel's shortest timer.
	name := metrics.FlowTime("completion", metrics.Percentiles[0])
	if took, ok := s.bursts.value(name); ok {
		out.Score += ramp(took, 10*s.idleNs+5e6, 10*s.idleNs+50e6, -2, 1.5)
		out.Facts = append(out.Facts, fact(name, "", "", took, "a burst of ten segments takes "+
			metrics.Say(name, took)))
	}
	return out
}

// atRest are the cells whose rate is below the limit.
func (s *sweep) atRest() []*Cell {
	return slices.DeleteFunc([]*Cell{s.low, s.half}, func(c *Cell) bool {
		_, ok := c.value(metrics.LossRatio)
		return !ok
	})
}

// restLost is the most that a load below the limit lost.
func (s *sweep) restLost() float64 { return most(s.atRest(), (*Cell).lost) }

func judgeRandomLoss(s *sweep) Judgement {
	rest := s.atRest()
	if len(rest) == 0 {
		return missing("no load below the limit was measured")
	}
	// Loss at every rate alike is the path's; loss at the higher one alone is a limit's.
	least, most := math.Inf(1), s.restLost()
	for _, c := range rest {
		least = math.Min(least, c.lost())
	}
	lost := math.Max(least, most/10)
	return Judgement{Score: math.Min(ramp(lost, .0004, .004, -4, 5), ramp(most, .5, .9, 5, -4)),
		Text: "packets are lost at any rate: " + unit.Percent(most) + " of them",
		Facts: factList{fact(metrics.LossRatio, "", "", most, unit.Percent(most)+
			" of the packets are lost at half the path's rate or less")}}
}

func judgeReordering(s *sweep) Judgement {
	worst, ok := 0.0, false
	for _, c := range s.atRest() {
		late, has := c.value(metrics.Reordered)
		if n := c.or(metrics.PacketRate, 0) * c.Seconds; has && n > 0 {
			worst, ok = math.Max(worst, late/n), true
		}
	}
	if !ok {
		return missing("no load below the limit was measured in exact mode")
	}
	return Judgement{Score: ramp(worst, .002, .03, -4, 5), Text: "packets are reordered: " +
		unit.Percent(worst) + " arrive out of order", Facts: factList{fact(
		metrics.Reordered, "", "", worst, unit.Percent(worst)+
			" of the packets arrive out of order below the limit")}}
}

// judgeBlackHole is a path that small packets pass and large ones do not.
func judgeBlackHole(s *sweep) Judgement {
	if len(s.flat) < 2 {
		return missing("only one packet size was measured")
	}
	small, large := s.flat[0], s.flat[len(s.flat)-1]
	passed, ok := small.value(metrics.PacketRate)
	if !ok || passed <= 0 {
		return missing("small packets do not get through either")
	}
	lost := 1.0 // what failed carried nothing
	if v, ok := large.value(metrics.PacketRate); ok {
		if v > 0 {
			lost = large.lost()
		}
	} else if large.Failed == 0 {
		return missing("large packets were not measured")
	}
	tcp := s.tcp() / math.Max(s.short.goodput(), 1)
	return Judgement{Score: math.Min(ramp(lost, .99, .9999, -4, 6), ramp(tcp, .05, .5, 6, -4)),
		Text: "packets of " + unit.Significant(large.size(), 4) + " bytes are dropped silently: " +
			"a PMTU black hole", Facts: factList{against(fact(metrics.LossRatio, "", "", lost,
			unit.Percent(lost)+" of the large packets are lost, small ones get through"), small.lost())}}
}

// judgeFragmentation is a path for which a large packet is two.
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
	even := below.size() / large.size() // where bytes are counted
	return Judgement{Score: ramp(share/even, .55, .85, 4, -4),
		Text: "packets of " + unit.Significant(large.size(), 4) + " bytes cost as much as two: they are " +
			"fragmented on the path", Facts: factList{against(fact(metrics.PacketRate, "", "", b,
			"the packet rate at the largest size is "+unit.Percent(share)+" of that at the next"), a)}}
}

// answered is the share of new connections, begun at a rate, that were done in time.
func (s *sweep) answered() (share, rate float64, ok bool) {
	if rate, ok = s.opened.value(metrics.FlowRate); ok {
		if asked := factor.ConnectionRate.Number(s.opened.Factors); asked > 0 {
			return rate / float64(asked), rate, true
		}
	}
	return 0, 0, false
}

// connecting is the fact of new connections, after what is the matter with loads that are open.
func (s *sweep) connecting(share, rate float64) factList {
	return factList{fact(metrics.FlowRate, "", "", rate, unit.Percent(share)+
		" of the new connections complete in time, "+metrics.Say(metrics.FlowRate, rate))}
}

func judgeTable(s *sweep) Judgement {
	share, rate, ok := s.answered()
	switch {
	case !ok && s.opened != nil && s.opened.Failed > 0 && s.tcp() > 0:
		return Judgement{Score: 2, Text: "new connections fail while open ones keep working: the " +
			"conntrack table is full"}
	case !ok:
		return missing("new connections were not measured")
	}
	return Judgement{Score: math.Min(ramp(share, .02, .3, 5, -4), ramp(s.restLost(), .03, .15, 5, -3)),
		Text: "the conntrack table is full: only " + metrics.Say(metrics.FlowRate, rate) +
			" are opened, while open ones keep working", Facts: s.connecting(share, rate)}
}

func judgeConnections(s *sweep) Judgement {
	share, rate, ok := s.answered()
	if !ok {
		return missing("new connections were not measured")
	}
	score := math.Min(ramp(share, .02, .15, -3, 4), ramp(share, .75, .9, 4, -4))
	return Judgement{Score: math.Min(score, ramp(s.restLost(), .03, .15, 5, -3)),
		Text:  "new connections: " + metrics.Say(metrics.FlowRate, rate) + " at most",
		Facts: s.connecting(share, rate)}
}

// windowBytes is how much TCP has under way: less than two segments is no window's doing.
func (s *sweep) windowBytes() float64 {
	return s.one.goodput() / 8 * math.Max(s.one.or(metrics.RTTTCP, s.idleNs), s.idleNs) / 1e9
}

// perFlow says by a score, up to 4, that each flow has its own limit, and by one down to -4 that all share
// one: by what several carry of what one does, or, where that is not known, by what one has under way.
func (s *sweep) perFlow() float64 {
	if one, many := s.one.goodput(), s.many.goodput(); one > 0 && many > 0 {
		return ramp(many/one, 1.2, 1.8, -4, 4)
	}
	return ramp(s.windowBytes(), 1000, 4000, -4, 4)
}

// limitedBy judges TCP that something at an end limits, by the share of the time; with is said beside that.
func (s *sweep) limitedBy(metric, what, with, text string) Judgement {
	share, ok := s.one.value(metric)
	if !ok {
		return missing("TCP_INFO is missing")
	}
	return Judgement{Score: ramp(share, .15, .5, -4, 4), Text: text,
		Facts: factList{fact(metric, "", "", share,
			"the "+what+" limits TCP for "+unit.Percent(share)+" of the time"+with)}}
}

func judgeWindow(s *sweep) Judgement {
	j := s.limitedBy(metrics.RwndLimited, "receive window", "",
		"the receive window is too small: "+bytesText(s.windowBytes())+" per RTT")
	j.Score = math.Min(j.Score, s.perFlow())
	return j
}

func judgeReader(s *sweep) Judgement {
	j := s.limitedBy(metrics.RwndLimited, "receive window", ", with "+bytesText(s.windowBytes())+" in flight",
		"the receiving application reads only "+metrics.Say(metrics.Goodput, s.one.goodput()))
	j.Score = math.Min(j.Score, -s.perFlow())
	return j
}

func judgeSendBuffer(s *sweep) Judgement {
	return s.limitedBy(metrics.SndbufLimited, "send buffer", "",
		"the send buffer is too small: "+bytesText(s.windowBytes())+" per RTT")
}

// judgeSender is a sender that has nothing to send, though the path would carry far more.
func judgeSender(s *sweep) Judgement {
	busy, ok := s.one.value(metrics.BusyRatio)
	udp := s.udp()
	if !ok || udp <= 0 {
		return missing("TCP_INFO is missing, or no UDP gets through")
	}
	share := s.one.goodput() / udp
	return Judgement{Score: math.Min(ramp(busy, .5, .9, 4, -3), ramp(share, .2, .5, 4, -3)),
		Text: "the sending application writes only " + metrics.Say(metrics.Goodput, s.one.goodput()),
		Facts: factList{fact(metrics.BusyRatio, "", "", busy,
			"TCP had data to send for "+unit.Percent(busy)+" of the time")}}
}

// judgeTester is the answer where nothing between the ends held any load back.
func judgeTester(s *sweep) Judgement {
	worst := most(s.flat, (*Cell).lost)
	share := s.tcp() / math.Max(s.udp(), 1)
	score := math.Min(ramp(worst, .005, .05, 3, -3), ramp(s.addedNs, 3e6, 8e6, 3, -3))
	return Judgement{Score: math.Min(score, ramp(share, .25, .5, -1, 3)),
		Text: "nothing between the ends limits these loads: the tester does, at " +
			metrics.Say(metrics.Goodput, math.Max(s.tcp(), s.udp())),
		Facts: factList{fact(metrics.LossRatio, "", "", worst, "at most "+unit.Percent(worst)+
			" of what was sent at full rate is lost")}}
}
