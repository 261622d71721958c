package knob

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

// Fault is a fault that can be injected.
type Fault struct {
	Name, Doc string
	levels

	at         faultPlace
	wire       bool                        // whether it counts packets, and therefore requires offload: wire
	parts      func(level State) []setting // settings of other knobs; if nil, there are none
	companions func(p Place, level State) []Companion
}

// levels holds the unit of a fault's levels, and the function that parses a level.
type levels struct {
	Unit  string
	parse func(name, level string) (State, error)
}

// number returns levels that are numbers in the range from least to most.
func number(unit string, least, most int) levels { return levels{unit, numbers(least, most).canonical} }

// faultPlace is a kind of place at which a fault can be injected.
type faultPlace int

const (
	onPort    faultPlace = iota // a port, or each port of a node
	onNode                      // a node
	onAnyNode                   // a node, or the machine that hosts the lab
	onHost                      // the machine that hosts the lab
	atEnds                      // the load generator at one end, or at both
	onPath                      // the tunnel
	onPassing                   // a node that forwards packets
	onFarPort                   // a port that leads to the far side
)

// Where describes the places at which f can be injected.
func (f Fault) Where() string {
	return map[faultPlace]string{onPort: "port; at a node, each of its ports", onNode: "node",
		onAnyNode: "node, or host", onHost: "host", atEnds: "client or server; without a place, both",
		onPath: "without a place", onPassing: "node that forwards",
		onFarPort: "port; at a node, its port towards the far side"}[f.at]
}

// misplaced returns the reason why f cannot be injected at a place, or "" if it can be.
func (f Fault) misplaced(carrier, port bool) string {
	switch {
	case f.at == onHost && !carrier:
		return "it takes the CPU's time of the machine that carries the lab: place it as fault@host"
	case carrier && f.at != onHost && f.at != onAnyNode:
		return "the machine that carries the lab is left alone: place it at a node, as in fault@router"
	case port && (f.at == onNode || f.at == onAnyNode || f.at == onPassing):
		return "it is of a whole node: place it without a port, as in fault@router"
	}
	return ""
}

func faultNames() []string {
	var out []string
	for _, f := range Faults() {
		out = append(out, f.Name)
	}
	return out
}

// Faults returns all faults in the order in which they are injected. This order is also the canonical one.
func Faults() []Fault {
	rate := levels{"bit/s", bounds(parseLimit, spellLimit, func(r uint64) bool { return r > 0 },
		"a rate such as 50M")}
	bytes := levels{"bytes", quantities(qdisc.Bytes, 2048, 1<<30, "a size from 2k to 1024m, such as 16K")}
	percent := levels{"%", quantities(qdisc.PartsPerMillion, 1, 1e6,
		"a percentage above 0 up to 100%, such as 1%")}
	time := levels{"time", quantities(qdisc.Microseconds, 1, 10_000_000,
		"a time from 1us to 10s, such as 20ms")}
	packets := number("packets", 1, math.MaxInt32)
	queueLength := number("packets", 1, 10_000)
	mtu := number("bytes", minMTU, maxMTU)
	on := levels{"on", func(name, level string) (State, error) {
		if level != "on" {
			return "", refuse(name, level, want("on"))
		}
		return "on", nil
	}}
	return []Fault{
		{
			Name:   "link_rate",
			levels: rate,
			at:     onPort,
			parts:  queued("rate"),
			Doc:    "limits the rate at which the port sends; the queue before the limit is short",
		},
		{
			Name:   "loss",
			levels: percent,
			at:     onPort,
			parts:  queued("loss"),
			wire:   true,
			Doc:    "drops this share of the packets that the port sends, at random",
		},
		{
			Name:   "delay",
			levels: time,
			at:     onPort,
			parts:  queued("delay"),
			wire:   true,
			Doc:    "delays the packets that the port sends by this time",
		},
		{
			Name:   "reorder",
			levels: percent,
			at:     onPort,
			parts:  queued("reorder"),
			wire:   true,
			Doc: "lets this share of the packets that the port sends overtake the others, which are " +
				"delayed by the level of delay, or by 5ms without it",
		},
		{
			Name:   "tiny_queue",
			levels: queueLength,
			at:     onPort,
			parts:  queued("limit"),
			wire:   true,
			Doc:    "limits the port's send queue to this number of packets",
		},
		{
			Name:   "policer",
			levels: rate,
			at:     onPort,
			parts:  setsTo("policer"),
			Doc:    "drops packets that arrive at the port above this rate",
		},
		{
			Name:   "irq_pinned",
			levels: number("core", 0, maxCPU),
			at:     onPort,
			parts:  setsTo("irq_affinity"),
			Doc:    "lets this core serve all interrupts of the port",
		},
		{
			Name:   "pmtu_hole",
			levels: mtu,
			at:     onFarPort,
			wire:   true,
			parts: func(level State) []setting {
				return []setting{{Knob: "link_mtu", State: level}, {Knob: "silence", State: "on"}}
			},
			Doc: "sets the port's MTU, and drops the node's ICMP errors, so that senders do not learn of it",
		},
		{
			Name:   "rules",
			levels: number("rules", 1, 20_000),
			at:     onPassing,
			parts:  setsTo("firewall"),
			Doc:    "adds this number of firewall rules, which each forwarded packet is matched against",
		},
		{
			Name:   "log_flood",
			levels: on,
			at:     onPassing,
			parts:  func(State) []setting { return []setting{{Knob: "firewall", State: "0 log"}} },
			Doc:    "logs each forwarded packet to the kernel's log",
		},
		{
			Name:   "conntrack_max",
			levels: number("connections", 1, math.MaxInt32),
			at:     onPassing,
			parts: func(level State) []setting {
				return append(setsTo("conntrack_max")(level), setting{Knob: "firewall", State: "0 stateful"})
			},
			Doc: "adds a stateful firewall that can track at most this number of connections",
		},
		{
			Name:   "backlog",
			levels: packets,
			at:     onNode,
			parts:  ofKernel("net.core.netdev_max_backlog"),
			Doc:    "limits the packets that may wait for a core (netdev_max_backlog)",
		},
		{
			Name:   "budget",
			levels: packets,
			at:     onNode,
			parts:  ofKernel("net.core.netdev_budget"),
			Doc:    "limits the packets that a core takes from devices per polling cycle (netdev_budget)",
		},
		{
			Name:   "cpu_hog",
			levels: number("processes", 1, 64),
			at:     onAnyNode,
			companions: func(_ Place, level State) []Companion {
				n, _ := strconv.Atoi(level)
				return slices.Repeat([]Companion{{Verb: verbHog}}, n)
			},
			Doc: "runs this number of processes, each of which keeps a core busy",
		},
		{
			Name:       "cross_traffic",
			levels:     rate,
			at:         onNode,
			companions: crossTraffic,
			Doc: "sends datagrams at this rate from the node to the other end of the path, without " +
				"congestion control",
		},
		{
			Name:   "cpu_quota",
			levels: levels{"% of a core", percentOfCore},
			at:     onHost,
			parts:  setsTo("cpu_quota"),
			Doc:    "limits each vCPU of the virtual routers to this share of a core",
		},
		{
			Name:   "cpu_tightening",
			levels: levels{"several shares, % of a core", parseTightening},
			at:     onHost,
			parts: func(level State) []setting {
				first, _, _ := strings.Cut(level, ",")
				return []setting{{Knob: "cpu_quota", State: first + "%"}}
			},
			companions: func(p Place, level State) []Companion {
				return []Companion{{Verb: verbTighten, Task: tightening{Lab: p.Lab, Steps: level}}}
			},
			Doc: "as cpu_quota, but once the routers are busy, each of the shares in turn applies for " +
				"two seconds, as a machine slows down while it heats up",
		},
		{
			Name:   "slow_reader",
			levels: rate,
			at:     atEnds,
			Doc:    "limits the rate at which the receiving application reads, all streams together",
		},
		{
			Name:   "slow_writer",
			levels: rate,
			at:     atEnds,
			Doc:    "limits the rate at which the sending application writes, all streams together",
		},
		{
			Name:   "receive_buffer",
			levels: bytes,
			at:     atEnds,
			Doc:    "sets the size of each socket's receive buffer",
		},
		{Name: "send_buffer", levels: bytes, at: atEnds, Doc: "sets the size of each " +
			"socket's send buffer"},
		{
			Name:   "tunnel_mtu",
			levels: mtu,
			at:     onPath,
			Doc:    "sets the tunnel's MTU, even if the link's MTU is too small for it",
		},
		{
			Name:   "tunnel_queue",
			levels: queueLength,
			at:     onPath,
			Doc:    "limits the packets that a userspace tunnel's device holds for its process",
		},
		{
			Name:   "bypass",
			levels: on,
			at:     onPath,
			Doc:    "routes the traffic around the tunnel, which is up but idle",
		},
	}
}

func bounds(parse func(string) (uint64, error), spell func(uint64) State, ok func(uint64) bool,
	wanted string) func(name, level string) (State, error) {
	return spelling[uint64]{
		parse: parse,
		spell: spell,
		bound: func(v uint64) error {
			if !ok(v) {
				return want("%s", wanted)
			}
			return nil
		},
	}.canonical
}

// quantities returns a parser for levels that have the format of a queue parameter.
func quantities(q qdisc.Quantity, least, most uint64, wanted string) func(name, level string) (State,
	error) {
	p := qdisc.Parameter{Quantity: q}
	return bounds(func(text string) (uint64, error) {
		v, err := p.Parse(text)
		if err != nil {
			err = want("%s", wanted)
		}
		return v, err
	}, p.Spell, func(v uint64) bool { return v >= least && v <= most }, wanted)
}

// setsTo returns the parts of a fault that sets a knob to the level of the fault.
func setsTo(knob string) func(State) []setting {
	return func(level State) []setting { return []setting{{Knob: knob, State: level}} }
}

func ofKernel(name string) func(State) []setting {
	return func(level State) []setting {
		return []setting{{Knob: "sysctl:", State: name + "=" + level}}
	}
}

// queued returns the parts of a fault that sets a parameter of a port's queue. faultQueue combines such
// parameters.
func queued(word string) func(State) []setting {
	return func(level State) []setting {
		return []setting{{Knob: "queue", State: word + " " + level}}
	}
}

// These are parameters of faultQueue. A rate-limited link queues as much as it sends in 30 ms, but at least
// 64 KiB, which is one packet of maximum size.
const (
	linkQueue   = 0.030
	minLink     = 64 << 10
	linkBurst   = 32 << 10
	tinyBurst   = "4k"
	overtake    = "5ms"
	fullPacket  = 1514
	roomOfDelay = 10_000
)

// faultQueue converts the parameters set by queued to a queueing discipline: netem if packets are lost or
// delayed, otherwise tbf if the rate is limited, and otherwise pfifo.
func faultQueue(words State) State {
	v := map[string]string{}
	for f := strings.Fields(words); len(f) > 1; f = f[2:] {
		v[f[0]] = f[1]
	}

	if v["reorder"] != "" && v["delay"] == "" {
		v["delay"] = overtake
	}

	switch {
	case v["loss"]+v["delay"] != "":
		if v["limit"] == "" {
			v["limit"] = strconv.Itoa(roomOfDelay)
		}

		text := "netem"
		for _, name := range []string{"limit", "delay", "loss", "reorder", "rate"} {
			if v[name] != "" {
				text += " " + name + " " + v[name]
			}
		}

		return text
	case v["rate"] == "":
		return "pfifo limit " + v["limit"]
	}

	rate, _ := parseLimit(v["rate"])
	// On a fast link, timers fire late. A burst of 0.5 ms compensates for that, and is large enough for a GSO
	// packet.
	burst := qdisc.Parameter{Quantity: qdisc.Bytes}.Spell(qdisc.Bounded(rate/8/2000, linkBurst))
	limit := max(int(float64(rate)/8*linkQueue), minLink)
	if n, err := strconv.Atoi(v["limit"]); err == nil {
		limit = n * fullPacket
		burst = tinyBurst
	}

	return fmt.Sprintf("tbf rate %s burst %s limit %d", v["rate"], burst, limit)
}

func percentOfCore(name, level string) (State, error) {
	q, err := parsePercent(level)
	if err != nil || q == 0 || q > 100*100 {
		return "", refuse(name, level, want("a share of one core from 1%% to 100%%"))
	}
	return spellPercent(q), nil
}

// parseTightening parses percentages such as "40,20,10".
func parseTightening(name, level string) (State, error) {
	var out []string
	for part := range strings.SplitSeq(level, ",") {
		s, err := percentOfCore(name, strings.TrimSpace(part))
		if err != nil {
			return "", refuse(name, level, want("shares of one core from 1%% to 100%%, such as 40,20,10"))
		}

		out = append(out, strings.TrimSuffix(s, "%"))
	}
	return strings.Join(out, ","), nil
}

// faultRefuses returns the reason why the faults of a cell are impossible at their places or with the other
// settings of the cell, or "" if they are possible.
func faultRefuses(s factor.Shape, cell factor.Cell) string {
	used := map[string]string{} // maps knob@place to the place of the fault that sets the knob
	for place, level := range factor.Name("fault").Each(cell) {
		list, err := parseFaults(level)
		if err != nil {
			return ""
		}

		node, _, ported := strings.Cut(place, ".")
		for _, f := range list {
			why := f.refused(s, node, ported, cell)
			if why != "" {
				return "fault " + f.Name + ": " + why
			}
		}

		settings, _ := settingsOf(spellFaults(list))
		for _, one := range settings {
			for name := range cell {
				plain, at := factor.Split(name)
				if plain == one.key() && !apart(place, at) {
					return fmt.Sprintf("a fault at %s sets %s, which the cell does, too", orAll(place), plain)
				}
			}

			for other, by := range used {
				knob, at, _ := strings.Cut(other, "@")
				if knob == one.key() && !apart(place, at) {
					return fmt.Sprintf("faults at %s and at %s both set %s", orAll(by), orAll(place), knob)
				}
			}

			used[one.key()+"@"+place] = place
		}
	}
	return ""
}

// apart reports whether two places have no port in common. An empty node or port stands for all.
func apart(a, b string) bool {
	node, port, _ := strings.Cut(a, ".")
	n, p, _ := strings.Cut(b, ".")
	return node != "" && n != "" && node != n || port != "" && p != "" && port != p
}

func orAll(place string) string {
	if place == "" {
		return "every router"
	}
	return place
}

// refused returns the reason why f cannot be injected at a node of a lab, or "" if it can be.
func (f Fault) refused(s factor.Shape, node string, port bool, cell factor.Cell) string {
	switch {
	case f.at == atEnds && node != "" && (port || !s.Ends(node)):
		return fmt.Sprintf("it is of the load generator: place it at %s or %s, or nowhere", s.Near, s.Far)
	case f.at == atEnds && !(factor.Protocol.Is(cell, "tcp") && factor.Engine.Is(cell, factor.Native)):
		return "only TCP of the engine " + factor.Native + " is held back at an end"
	case f.at == onPath && node != "":
		return "it is of the tunnel, and has no place"
	case f.Name == "tunnel_queue" && !factor.InUserspace(factor.Tunnel.Of(cell)):
		return "only the device of a tunnel in userspace has a queue: tunnel: wireguard-userspace"
	case f.at == atEnds, f.at == onPath:
		return ""
	case f.wire && !factor.Offload.Is(cell, "wire"):
		return "packets that were joined are one to it: it wants offload: wire"
	case f.at == onPassing && !s.Forwards(node):
		return "nothing is forwarded there"
	case node == "" && len(s.Routers) == 0:
		return "topology " + s.Name + " has no router: name its place"
	}
	return f.misplaced(node == factor.Host, port)
}

// silence is a part of the fault pmtu_hole: the node sends no ICMP errors about packets that are too big.
func silence() Knob {
	return ofTable(declared{factor.Declaration{Name: "silence"}}, onOff(), kernel.Silence)
}
