package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// reversePath returns the rule for a queue that throttles acknowledgements: TCP sends no faster than they
// return.
func reversePath() Rule {
	return Rule{Class: ReversePath, Label: "the way of the acknowledgements is saturated",
		Means: "a queue on the way back throttles at least one packet in four and has packets waiting in " +
			"it for most of the window, or sends what it is set to, while none on the way of the data " +
			"does; or half of the acknowledgements die; or the added RTT passes in a queue on the way back",
		Judge: func(o *Observation) Judgement {
			died, some := o.acksDie()
			q, why := o.acksHeld()
			switch {
			case why != "" && some:
				return died
			case why != "":
				return missing(why)
			}
			data, _, _ := o.held()
			facts := append(o.heldFacts(q)[:2:2], fact("qlen_packets", q.node, q.port, q.waited,
				"acknowledgements waited there in "+unit.Percent(q.waited)+" of the samples"))
			held := Judgement{Node: q.node, Element: q.port, GainAtMost: o.gainToTester(), Facts: facts,
				Terms: []Term{requires("acks-impaired", q.throttles().Met).by(facts[0]),
					requires("acks-wait", degree(q.waited, .5, .9)),
					contradicts("data-held", degree(data.holds(), .03, .25))},
				Text: fmt.Sprintf("the acknowledgements are held to %s by the queue at %s", mbps(q.rateBps),
					q.place())}
			if a, ofData, known := o.Ledger().waits(); known && !ofData {
				text := fmt.Sprintf("acknowledgements wait for %s at the %s's %s port",
					unit.Nanoseconds(a.WaitedNs), a.Node, a.Element)
				e := fact("acks_waited_ns", a.Node, a.Element, a.WaitedNs, text)
				held = likelier(held, Judgement{Node: a.Node, Element: a.Element, Text: text,
					GainAtMost: held.GainAtMost, Facts: factList{e}, Terms: []Term{
						requires("acks-impaired", degree(a.WaitedNs, 5e6, 15e6)).by(e),
						requires("acks-wait", 1), held.Terms[2]}})
			}
			if some {
				return likelier(held, died)
			}
			return held
		},
		Remedies: []Remedy{
			{System: "linux", Do: "raise the rate of the queue, or let CAKE thin out acknowledgements",
				Commands: []string{"tc qdisc change dev DEV root cake ack-filter"},
				Risk:     "above the link rate, delay grows"},
			{System: "openwrt", Do: "raise the SQM rate of that direction", Commands: []string{
				"uci set sqm.@queue[0].upload=KBITS", "uci commit sqm", "service sqm restart"},
				Risk: "above the link rate, delay grows"},
			{Do: "ask for a line with a faster way back: TCP needs about 2 % of its rate there"},
		}}
}

// acksDie judges a way back on which most acknowledgements die: TCP learns late, or never, that data arrived.
func (o *Observation) acksDie() (j Judgement, ok bool) {
	l := o.Ledger()
	if l == nil || len(l.Acks) == 0 || l.Acks[0].Out == nil {
		return j, false
	}
	sent := *l.Acks[0].Out
	worst, ok := deadliest(l.Acks)
	share := ratio(worst.DiedPackets(), sent)
	if got := l.Acks[len(l.Acks)-1].In; got != nil { // those that arrived did not die
		share = min(share, 1-ratio(*got, sent))
	}
	if !ok || share < .3 || sent < 10 || strings.Contains(worst.Died[0].By, "cake") {
		return j, false // CAKE thins acknowledgements out
	}
	e := fact("acks_died", worst.Node, worst.Element, worst.DiedPackets(), fmt.Sprintf("%.0f of %.0f "+
		"packets on the way back died there, by %s", worst.DiedPackets(), sent, worst.Died[0].By))
	return Judgement{Node: worst.Node, Element: worst.Element, Facts: factList{e},
		Terms: []Term{requires("acks-impaired", degree(share, .3, .5)).by(e), requires("acks-wait", 1),
			contradicts("data-held", 0)},
		GainAtMost: o.gainToTester(), Text: fmt.Sprintf("%s of the acknowledgements die at the %s's %s",
			unit.Percent(min(share, 1)), worst.Node, worst.Element)}, true
}

// acksHeld returns the queue on the way of the acknowledgements that throttles most.
func (o *Observation) acksHeld() (q queue, why string) {
	if d := o.load().Direction; !o.IsTCP() || d == record.Both {
		return q, "the load has no way back of its own"
	}
	all := o.returnQueues()
	if len(all) == 0 {
		return q, "no port on the way back has a queue with counters"
	}
	return slices.MaxFunc(all, func(a, b queue) int { return cmp.Compare(a.holds(), b.holds()) }), ""
}
