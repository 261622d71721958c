package diagnosis_test

// The stages: lab and topology.
const (
	localForward = "local forward"
	vmForward    = "vm forward"
	vmToRouter   = "vm to-router"
)

// ofFault draws a load and plants one fault at a place.
func ofFault(load func(draw, string) levels, place func(levels) (factor string, t truth),
	level func(draw, string) string) func(draw, string) (levels, []planted) {
	return func(d draw, lab string) (levels, []planted) {
		l := load(d, lab)
		factor, t := place(l)
		return l, []planted{{levels{factor: level(d, lab)}, t}}
	}
}

// Places of a fault, with the element that limits there.
func atEgress(class string) func(levels) (string, truth) {
	return func(l levels) (string, truth) {
		return "fault@router." + egress(l), truth{"router", egress(l), class}
	}
}

func atSender(class string) func(levels) (string, truth) {
	return func(l levels) (string, truth) { return "fault@" + sender(l), truth{sender(l), "", class} }
}

func atReceiver(class string) func(levels) (string, truth) {
	return func(l levels) (string, truth) { return "fault@" + receiver(l), truth{receiver(l), "", class} }
}

func atRouter(class string) func(levels) (string, truth) {
	return func(levels) (string, truth) { return "fault@router", truth{"router", "", class} }
}

// Loads.
func anyTCP(d draw, _ string) levels   { return d.tcp() }
func plainTCP(d draw, _ string) levels { return d.plain() }
func fewTCP(d draw, _ string) levels   { return d.few() }

// far is a load over a path with a round trip that is long for a lab, which is part of the base.
func far(load func(draw, string) levels, low, high int) func(draw, string) levels {
	return func(d draw, lab string) levels {
		l := load(d, lab)
		return with(l, "fault@router."+ingress(l), "delay="+d.whole(low, high)+"ms")
	}
}

// pinned is a load whose router takes all interrupts on one core.
func pinned(load func(draw, string) levels) func(draw, string) levels {
	return func(d draw, lab string) levels { return with(load(d, lab), "irq_affinity", "0") }
}

// flowsLoad is one of short connections.
func flowsLoad(d draw, _ string) levels {
	return levels{"engine": "flows", "streams": d.of("4", "8", "16"), "ip": d.of("4", "6"),
		"direction": d.of("up", "down"), "flow_size": d.whole(500, 4000), "connection_rate": d.whole(80, 300)}
}

// rates are limits that bite in a lab.
func rates(name string) func(draw, string) string {
	return func(d draw, lab string) string {
		if lab == "vm" {
			return name + d.rate(8, 90)
		}
		return name + d.rate(8, 300)
	}
}

func fixed(text ...string) func(draw, string) string {
	return func(d draw, _ string) string { return d.of(text...) }
}

func whole(name string, low, high int, unit string) func(draw, string) string {
	return func(d draw, _ string) string { return name + d.whole(low, high) + unit }
}

// perClass is how many instances each planted class has; more are drawn of those that often do not bite.
const perClass = 20

func (p part) times(n int) part {
	p.n = n
	return p
}

// parts are what the suite is made of.
func parts() []part {
	both, vm := []string{localForward, vmForward}, []string{vmForward}
	fault := func(class string, stage []string, draw func(draw, string) (levels, []planted)) part {
		return part{class, kindFault, perClass, stage, draw}
	}
	all := []part{
		fault("link-rate", both, linkRate),
		fault("shaper", both, shaper),
		fault("policer", vm, ofFault(anyTCP, func(l levels) (string, truth) {
			return "policer@router." + ingress(l), truth{"router", ingress(l), "policer"}
		}, rates(""))),
		fault("slow-sender", both, ofFault(anyTCP, atSender("slow-sender"), rates("slow_writer="))),
		fault("slow-reader", both, ofFault(anyTCP, atReceiver("slow-reader"), rates("slow_reader="))),
		fault("send-buffer", vm, ofFault(far(fewTCP, 5, 30), atSender("send-buffer"),
			whole("send_buffer=", 16, 64, "K"))),
		fault("receive-window", vm, ofFault(far(fewTCP, 5, 30), atReceiver("receive-window"),
			whole("receive_buffer=", 16, 64, "K"))),
		fault("random-loss", vm, ofFault(far(plainTCP, 2, 10), atEgress("random-loss"),
			fixed("loss=0.5%", "loss=1%", "loss=1.5%", "loss=2%", "loss=3%"))),
		fault("reordering", vm, ofFault(far(fewTCP, 4, 10), atEgress("reordering"),
			whole("reorder=", 15, 40, "%"))),
		fault("small-queue", vm, ofFault(shortQueue, atEgress("small-queue"),
			whole("tiny_queue=", 1, 2, ""))).times(48),
		fault("bufferbloat", both, bufferbloat),
		fault("rule-list", both, ofFault(plainTCP, atRouter("rule-list"), func(d draw, lab string) string {
			if lab == "vm" {
				return "rules=" + d.whole(600, 3000)
			}
			return "rules=" + d.whole(1500, 6000)
		})),
		fault("log-flood", vm, ofFault(plainTCP, atRouter("log-flood"), fixed("log_flood=on"))),
		fault("other-load", vm, ofFault(plainTCP, atRouter("other-load"), whole("cpu_hog=", 2, 5, ""))),
		fault("clock-down", vm, ofFault(plainTCP, func(levels) (string, truth) {
			return "cpu_quota@host", truth{"router", "", "clock-down"}
		}, whole("", 10, 40, "%"))),
		fault("thermal", vm, ofFault(plainTCP, func(levels) (string, truth) {
			return "fault@host", truth{"router", "", "thermal"}
		}, fixed("cpu_tightening=40,20,10", "cpu_tightening=50,25,10", "cpu_tightening=60,30,10"))).times(28),
		fault("fragmentation", both, ofFault(tunnelled, func(levels) (string, truth) {
			return "fault", truth{"", "", "fragmentation"}
		}, fixed("tunnel_mtu=1500", "tunnel_mtu=1480", "tunnel_mtu=1460"))),
		fault("pmtu-black-hole", both, ofFault(plainTCP, atEgress("pmtu-black-hole"),
			whole("pmtu_hole=", 1290, 1420, ""))),
		fault("conntrack-full", vm, ofFault(natFlows, atRouter("conntrack-full"),
			whole("conntrack_max=", 10, 60, ""))),
		fault("backlog-budget", vm, ofFault(steered, atRouter("backlog-budget"),
			fixed("backlog=1", "backlog=2", "backlog=3", "backlog=4"))),
		fault("tunnel-bypassed", both, ofFault(tunnelled, func(levels) (string, truth) {
			return "fault", truth{"", "", "tunnel-bypassed"}
		}, fixed("bypass=on"))),
	}
	all = append(all, naturals()...)
	all = append(all, healthies(), pairs())
	return append(all, disturbed()...)
}

// linkRate is a link that carries less, at the sending end or at the router.
func linkRate(d draw, lab string) (levels, []planted) {
	l, rate := d.tcp(), rates("link_rate=")(d, lab)
	if d.IntN(2) == 0 {
		return l, []planted{{levels{"fault@router." + egress(l): rate},
			truth{"router", egress(l), "link-rate"}}}
	}
	port := map[string]string{"client": "lan", "server": "wan"}[sender(l)]
	return l, []planted{{levels{"fault@" + sender(l) + "." + port: rate},
		truth{sender(l), port, "link-rate"}}}
}

// shaper is the knob of that name, or a bare htb where the kernel lacks what that needs.
func shaper(d draw, lab string) (levels, []planted) {
	l, rate := d.tcp(), rates("")(d, lab)
	t := truth{"router", egress(l), "shaper"}
	if lab == "vm" {
		return l, []planted{{levels{"shape@router." + egress(l): rate}, t}}
	}
	return l, []planted{{levels{"queue@router." + egress(l): "htb rate " + rate}, t}}
}

// bufferbloat is a shaper with a queue of seconds: what limits the rate is the shaper, what is wrong is its
// queue.
func bufferbloat(d draw, _ string) (levels, []planted) {
	l := d.tcp()
	l["streams"] = d.of("2", "4", "8")
	rate := d.rate(8, 40)
	return l, []planted{{levels{"queue@router." + egress(l): "tbf rate " + rate + " burst 32k limit " +
		d.of("1M", "2M", "4M")}, truth{"router", egress(l), "bufferbloat"}}}
}

// shortQueue is a load over a link of a known rate with a round trip, whose queue matters.
func shortQueue(d draw, _ string) levels {
	l := d.few()
	return with(l, "fault@router."+ingress(l), "delay="+d.whole(15, 40)+"ms")
}

// steered is a load whose packets the router hands to its other core, through that core's backlog.
func steered(d draw, _ string) levels { return with(d.plain(), "irq_affinity", "0", "cpus", "1") }

// tunnelled is a load through a tunnel between the ends, over whose path the router's link is as found.
func tunnelled(d draw, _ string) levels { return with(d.plain(), "tunnel", "wireguard-userspace") }

// natFlows are short connections through a router that tracks them.
func natFlows(d draw, lab string) levels {
	return with(flowsLoad(d, lab), "nat", "masquerade", "ip", "4", "direction", "up")
}

// naturals are loads flat out without a fault, where what limits is known from how the lab is made.
func naturals() []part {
	cause := func(class string, t truth, stage []string, load func(draw, string) levels) part {
		return part{class, kindNatural, perClass, stage, func(d draw, lab string) (levels, []planted) {
			return load(d, lab), []planted{{levels{}, t}}
		}}
	}
	return []part{
		cause("shared-cpu", truth{Class: "shared-cpu"}, []string{localForward},
			func(d draw, _ string) levels { return with(d.plain(), "streams", d.of("2", "4", "8")) }),
		cause("tunnel-on-shared-cpu", truth{Class: "vpn-process"}, []string{localForward},
			func(d draw, _ string) levels { return with(d.plain(), "tunnel", "wireguard-userspace") }),
		cause("softirq-all-cores", truth{"router", "", "softirq-all-cores"}, []string{vmForward},
			func(d draw, _ string) levels { return with(d.plain(), "cpu_count", "1") }),
		cause("connection-rate", truth{"router", "", "connection-rate"}, []string{vmForward},
			func(d draw, _ string) levels {
				return levels{"engine": "flows", "streams": d.of("64", "96", "128", "192"),
					"ip": d.of("4", "6"), "direction": d.of("up", "down"), "flow_size": d.whole(200, 2000)}
			}),
		cause("softirq-one-core", truth{"router", "", "softirq-one-core"}, []string{vmForward},
			pinned(plainTCP)),
		cause("vpn-process", truth{"router", "", "vpn-process"}, []string{vmToRouter},
			func(d draw, _ string) levels {
				return with(d.plain(), "tunnel", d.of("wireguard-userspace", "openvpn"))
			}),
		cause("crypto-workers", truth{"router", "", "crypto-workers"}, []string{vmToRouter},
			func(d draw, _ string) levels { return with(d.plain(), "tunnel", "wireguard-kernel") }),
	}
}

// healthies are loads that are paced well below capacity.
func healthies() part {
	return part{"healthy", kindHealthy, 64, []string{localForward, vmForward, localForward, vmToRouter},
		func(d draw, lab string) (levels, []planted) {
			most := 60.
			if lab == "vm" {
				most = 15
			}
			l := levels{"direction": d.of("up", "down", "both"), "ip": d.of("4", "6"),
				"streams": d.of("1", "2", "4", "8")}
			if d.IntN(3) == 0 {
				l["tunnel"] = "wireguard"
			}
			if d.IntN(2) == 0 {
				return with(l, "protocol", "udp", "rate", d.rate(1, most), "packet_size",
					d.of("400", "800", "1200")), nil
			}
			if d.IntN(4) == 0 && l["ip"] == "4" && l["tunnel"] == "" {
				l["nat"] = "masquerade"
			}
			return with(l, "pacing", d.rate(2, most)), nil
		}}
}

// pairs are two faults of which each may still bite beside the other: what a shaper leaves, say, no other
// cause lowers further. Which is the stronger is found by measuring.
func pairs() part {
	return part{"two", kindTwo, 54, []string{vmForward}, func(d draw, lab string) (levels, []planted) {
		l := far(plainTCP, 2, 8)(d, lab)
		port := egress(l)
		limits := []planted{
			{levels{"fault@" + receiver(l): "receive_buffer=" + d.whole(24, 64) + "K"},
				truth{receiver(l), "", "receive-window"}},
			{levels{"fault@router": "rules=" + d.whole(600, 2000)}, truth{"router", "", "rule-list"}},
			{levels{"cpu_quota@host": d.whole(10, 30) + "%"}, truth{"router", "", "clock-down"}},
		}
		others := []planted{
			{levels{"fault@router": "cpu_hog=" + d.whole(2, 4)}, truth{"router", "", "other-load"}},
			{levels{"fault@router." + port: "reorder=" + d.whole(15, 30) + "%"},
				truth{"router", port, "reordering"}},
		}
		return l, []planted{limits[d.IntN(len(limits))], others[d.IntN(len(others))]}
	}}
}
