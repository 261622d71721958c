package diagnosis

import (
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// numbers returns the facts about one direction that are shown for every class.
func (s *sweep) numbers() (out factList) {
	add := func(metric string, value float64, text string, args ...any) {
		out = append(out, seen(metric, value, text, args...))
	}
	switch why := s.uncounted; {
	case why != "":
		add(metrics.Goodput, s.received(), "%b are received; %s", s.received(), why)
	case s.packets > .5:
		add(metrics.PacketRate, s.pps, "%r at any packet size")
	case s.bytes > .5:
		add(metrics.Goodput, s.bps, "%b including Ethernet headers, at any packet size")
	default:
		out = append(out, s.said())
	}

	if one, several := s.flat[0].pps(), s.spread.pps(); one > 0 && several > 0 {
		add(metrics.PacketRate, several, "several flows carry %m the small packets of one", several/one)
	}

	if s.bps > 0 && s.bytes > .5 {
		add(metrics.RTTAdded, s.addedNs(), "queue of %k (%n)", s.queueBytes(), s.addedNs())
	}

	if share, rate, ok := s.answered(); ok {
		add(metrics.FlowRate, rate, "%h of %s new connections/s are answered", min(share, 1),
			factor.ConnectionRate.Of(s.opened.Factors))
	}

	if s.idleNs > 0 {
		add(metrics.RTTIdle, s.idleNs, "idle RTT %n")
	}

	return out
}

// asymmetric is the ratio above which the directions are reported as different.
const asymmetric = 1.5

// pathText joins the texts of the directions.
func pathText(all []PathDirection) string {
	if len(all) == 2 && all[0].Class == all[1].Class && (all[0].Class == Tester || all[0].Class == Unknown) {
		return "up and down: " + all[0].Text
	}

	var parts []string
	for _, d := range all {
		parts = append(parts, d.Direction+": "+d.Text)
	}

	return strings.Join(parts, "; ")
}

// addBoth adds facts that compare the two directions.
func (p *Path) addBoth(cells []Cell) {
	tcp := func(direction string) float64 { return sweepOf(cells, direction).one.goodput() }
	up := tcp(record.Up)
	down := tcp(record.Down)
	both := tcp(record.Both)
	if up <= 0 || down <= 0 {
		return
	}

	if max(up/down, down/up) >= asymmetric {
		p.Facts = append(p.Facts,
			against(seen(metrics.Goodput, up, "asymmetric: TCP reaches %b up and %b down", up, down), down))
	}

	if both <= 0 {
		return
	}

	e := seen(metrics.Goodput, both, "both directions at once reach %h of the sum of the two alone",
		both/(up+down))
	if both < .7*(up+down) && !slices.ContainsFunc(p.Directions, func(d PathDirection) bool {
		return d.Class == Tester
	}) {
		e.Text += ": they share a limit"
	}

	p.Facts = append(p.Facts, against(e, up+down))
}

// access lists, for each class, the access that would reveal more.
var access = map[string]string{
	perPacket: "a shell on the router (or its system's counters): which core is saturated, and " +
		"whether by softirq, rules or a process",
	oneCorePerFlow: "a shell on the router: which core handles each flow's interrupts and softirqs",
	perByte:        "a shell on the router: whether encryption, copying or the bus is the limit",
	Shaper: "the configuration of the router and of the line: whether the rate is set by a queue " +
		"on the router, the link speed, or the provider",
	Policer: "the configuration of the router and of the line: what drops, and with which burst size",
	perFlowLimit: "the rules of the router and of the line: which of them counts each flow or host by " +
		"itself",
	RandomLoss: "the error counters of the links (ethtool -S, radio statistics), and a peer on each " +
		"side of the router: which link loses",
	SmallQueue:     "the length of the router's transmit queue (tc -s qdisc, txqueuelen)",
	ConntrackFull:  "nf_conntrack_count and nf_conntrack_max on the router, or the provider's limit",
	ConnectionRate: "a shell on the router: which core is saturated while connections are opened",
	PMTUBlackHole:  "the MTU of each link, and where ICMP is filtered: traceroute --mtu",
	Fragmentation:  "the MTU of each link and tunnel on the path",
	Reordering:     "a capture on each side of the router: which hop sends one flow over two paths",
}

// accessAny is the access that would reveal more about any class.
const accessAny = "chokepoint on the router itself (run --lab, or --driver over ssh): two ends cannot " +
	"tell which core, which queue, heat or clock"
