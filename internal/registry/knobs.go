package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// shapeConflict: a shaper takes the place of its port's queue.
func shapeConflict(cell record.Factors) string {
	t, err := lab.TopologyNamed(cell["topology"])
	if err != nil {
		return ""
	}
	var shaped, queued []record.TopoPort
	for name, level := range cell {
		knob, place, _ := strings.Cut(name, "@")
		switch {
		case knob == "shape" && level != "off":
			shaped = append(shaped, portsAt(t, place, farPorts)...)
		case knob == "queue":
			queued = append(queued, portsAt(t, place, allPorts)...)
		}
	}
	for _, p := range shaped {
		if slices.Contains(queued, p) {
			return fmt.Sprintf("a shaper has a queue of its own in the place of that of %s.%s", p.Node,
				p.Port)
		}
	}
	return ""
}

// portsAt are the ports that a factor at a place is set on: that port, those of that node, or those of each
// router. of are a node's, where the place names none.
func portsAt(t record.Topology, place string, of func(t record.Topology,
	node string) []record.TopoPort) []record.TopoPort {
	node, port, placed := strings.Cut(place, ".")
	if placed {
		return []record.TopoPort{{Node: node, Port: port}}
	}
	if node != "" {
		return of(t, node)
	}
	var out []record.TopoPort
	for _, r := range t.Routers {
		out = append(out, of(t, r)...)
	}
	return out
}

func allPorts(t record.Topology, node string) []record.TopoPort {
	var out []record.TopoPort
	for _, l := range t.Links {
		for _, e := range l.Ends {
			if e.Node == node {
				out = append(out, e)
			}
		}
	}
	return out
}

// farPorts is the node's port that faces the far side: the near end of a link is its first.
func farPorts(t record.Topology, node string) []record.TopoPort {
	var out []record.TopoPort
	for _, l := range t.Links {
		if l.Ends[0].Node == node {
			out = append(out, l.Ends[0])
		}
	}
	return out
}

// knobUnit says what a level is a number of, or which words it may be.
func knobUnit(name string) string {
	return map[string]string{
		"link_mtu":   "bytes, 1280 to 65535",
		"queue":      "KIND and its parameters as in tc(8), such as tbf rate 50M limit 256k",
		"offload":    "wire, super, or features such as gro=on udp-gro=on",
		"txqueuelen": "packets",
		"vlan":       "off, or a tag from 1 to 4094",
		"firewall":   "off, or rules, 0 to 20000, and words",
		"flowtable":  "on, off",

		"conntrack_max": "connections",
		"shape":         "off, or bit/s",
		"policer":       "off, or bit/s",
		"napi_threaded": "on, off",
		"idle_policies": "policies, 0 to 10000",
		"idle_tunnels":  "tunnels, 0 to 64",
		"ip_forward":    "on, off, ipv4, ipv6",
		"sysctl:":       "as sysctl(8) has it",
		"cpus":          "off, or cores such as 0-1,3",
		"cpu_count":     "processors",
		"irq_affinity":  "processors such as 0-1",
		"flow_export":   "off, softflowd",
		"cpu_quota":     "off, or % of a core, 1% to 100%",
	}[name]
}

// knobDoc is what a level of the factor means, in one sentence.
func knobDoc(name string) string {
	return map[string]string{
		"link_mtu":   "MTU of the underlay's links, in bytes",
		"queue":      "queueing discipline of the router's ports, with its parameters",
		"offload":    "what a node does to many packets at once, in the words of ethtool(8)",
		"txqueuelen": "length of the devices' transmit queue, in packets",
		"vlan":       "802.1Q tag on the links, or off",
		"firewall": "rules that each forwarded packet is compared with: in a list, set or map, stateful, " +
			"logging",
		"flowtable": "whether known connections skip the router's forwarding path (nftables' flow " +
			"table, in " +
			"software)",

		"conntrack_max": "connections that the router tracks at most",
		"shape":         "rate of the router's shaper towards the far side: htb with fq_codel; or off",
		"policer":       "rate above which the router drops what comes from the near side; or off",
		"napi_threaded": "whether the router receives in kernel threads instead of softirqs, from " +
			"its ports " +
			"and its tunnel",
		"idle_policies": "IPsec policies per direction that the traffic does not match",
		"idle_tunnels":  "WireGuard tunnels of the router, up, that the traffic does not match",
		"ip_forward":    "whether the router forwards at all",
		"sysctl:":       "a kernel setting, by its name",
		"cpu_count":     "processors that the virtual router works with, of those that its lab gave it",
		"irq_affinity":  "processors that serve the interrupts of the virtual router's ports",
		"flow_export": "what accounts for the traffic of the router's port towards the far side and " +
			"exports it (NetFlow 9); or off",
		"cpu_quota": "share of one core of this machine that each processor of the virtual routers may " +
			"use; or off",
		"cpus": "cores: of the router's receive work, or of an endpoint's engine",
	}[name]
}
