package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// wireguardQueue is a tunnel's device that drops packets because its own queue is full.
func wireguardQueue() Rule {
	return Rule{Class: WireguardQueue, Label: "the tunnel's own queue overflows",
		Means: "the tunnel's device dropped two packets in a hundred or more before it sent them; of a " +
			"tunnel whose process has no CPU time left, that is a symptom",
		Judge: func(o *Observation) Judgement {
			tunnel := o.tunnel()
			if tunnel == "" {
				return Judgement{Score: absent}
			}
			best, behind := missing("no device of the tunnel is counted"), 0.0
			if s, why := o.systemOf(); why == "" && inUserspace(tunnel) {
				behind = ramp(s.Full.Busy, .7, .93, 0, -3)
			}
			for _, node := range o.nodes() {
				for _, device := range o.tunnelDevices(node) {
					only := func(label string) bool { return label == device }
					drops, ok := o.Sum(node, "netdev", "tx_dropped", only)
					sent, ok2 := o.Sum(node, "netdev", "tx_packets", only)
					if !ok || !ok2 {
						continue
					}
					queue, _ := o.Sum(node, "qdisc", "drops", only)
					drops += queue
					share := ratio(drops, sent+drops)
					j := Judgement{Score: ramp(share, .0005, .02, -4.5, 3.5) + o.wants() + behind, Node: node,
						Element: device, Text: fmt.Sprintf("the queue of the tunnel's device %s on %s "+
							"overflows: %s of its packets were dropped", device, node, unit.Percent(share)),
						Facts: []evidence.Evidence{against(fact("tx_dropped", node, device, drops,
							fmt.Sprintf("%s dropped %.0f packets before sending, %.0f were sent", device,
								drops, sent)),
							sent)}}
					if best.NotExamined != "" || j.Score > best.Score {
						best = j
					}
				}
			}
			return best
		},
		Experiments: func(_ *Observation, j Judgement) []Experiment {
			return []Experiment{{Class: j.Class, Factor: "pacing", Doses: []string{"50M", "100M", "200M"},
				From: "tester", Why: "below the rate that the tunnel's workers hold, paced senders fill " +
					"no queue"},
				{Class: j.Class, Factor: "streams", Doses: []string{"1", "4", "16"}, From: "tester",
					Why: "more senders fill the queue sooner"}}
		},
		Remedies: []Remedy{{System: "linux", Do: "give the tunnel's device a longer queue",
			Commands: []string{"ip link set wg0 txqueuelen 1000"}, Risk: "latency rises",
			Factor: "txqueuelen", Level: "1000"},
			{System: "linux", Do: "shape below what the tunnel's workers hold",
				Risk: "a few percent of the rate are lost"}}}
}

// nodes are those that were watched, by name.
func (o *Observation) nodes() []string {
	var out []string
	for node := range o.Trial.Nodes {
		out = append(out, node)
	}
	slices.Sort(out)
	return out
}

// tunnelDevices are a node's devices that are neither ports nor loopback: those of tunnels.
func (o *Observation) tunnelDevices(node string) []string {
	columns, _ := o.Columns(node, "netdev", "tx_packets")
	var out []string
	for _, c := range columns {
		grown, _ := c.Grew()
		if c.Label != "lo" && c.Label != "" && grown > 0 && node != record.HostNode && !o.isPort(node,
			c.Label) &&
			!strings.HasPrefix(c.Label, "ifb") {
			out = append(out, c.Label)
		}
	}
	return out
}

// backlogBudget is packet work that the kernel cuts off by a limit while the CPU has time.
func backlogBudget() Rule {
	return Rule{Class: BacklogBudget, Label: "the kernel's backlog or budget of packets is too small",
		Means: "a core's backlog dropped three packets in a thousand or more (netdev_max_backlog); or a " +
			"core left work behind once for 30 packets or fewer (netdev_budget), where 300 are usual",
		Judge: func(o *Observation) Judgement {
			s, why := o.systemOf()
			if why != "" {
				return missing(why)
			}
			sum := func(stem string) (float64, bool) {
				return o.Sum(s.Node, "softnet", stem, func(label string) bool { return len(label) > 3 })
			}
			processed, ok := sum("processed")
			if !ok {
				_, why := o.Columns(s.Node, "softnet", "processed")
				return missing(cmp.Or(why, "the samples of probe softnet do not cover the window"))
			}
			dropped, _ := sum("dropped")
			squeezed, _ := sum("time_squeeze")
			lost, cut := ratio(dropped, processed+dropped), ratio(squeezed, processed)
			drops := ramp(lost, .0005, .003, -5, 4)
			budget := ramp(cut, 1./120, 1./30, -5, 4)
			facts := []evidence.Evidence{fact("dropped", s.Node, "backlog", dropped,
				fmt.Sprintf("the backlogs dropped %.0f of %.0f packets", dropped, processed+dropped)),
				fact("time_squeeze", s.Node, "budget", squeezed, fmt.Sprintf("%.0f times work was left "+
					"behind because its budget was spent", squeezed))}
			j := Judgement{Score: drops, Node: s.Node, Element: "backlog", Facts: facts,
				Text: fmt.Sprintf("%s backlog is too short: %s of the packets were dropped there", s.of(),
					unit.Percent(lost))}
			if budget > drops {
				slices.Reverse(facts)
				j.Score, j.Element = budget, "budget"
				j.Text = fmt.Sprintf("%s packet work is cut off by its budget once in %.0f packets", s.of(),
					1/cut)
			}
			j.Score += o.wants()
			return j
		},
		Experiments: func(_ *Observation, j Judgement) []Experiment {
			name := "sysctl:net.core.netdev_max_backlog"
			if j.Element == "budget" {
				name = "sysctl:net.core.netdev_budget"
			}
			return []Experiment{{Class: j.Class, Factor: "streams", Doses: []string{"1", "2", "4"},
				From: "tester",
				Why:  "fewer flows send fewer packets at once, and fill a backlog less"},
				{Class: j.Class, Factor: name, Doses: []string{"300", "1000", "4000"}, From: "router",
					Why: "with a larger one, drops and squeezes end"}}
		},
		Remedies: []Remedy{
			{System: "linux", Do: "a longer backlog",
				Commands: []string{"sysctl -w net.core.netdev_max_backlog=4000"},
				Risk:     "latency where a core is full for long",
				Factor:   "sysctl:net.core.netdev_max_backlog", Level: "4000"},
			{System: "linux", Do: "a larger budget",
				Commands: []string{"sysctl -w net.core.netdev_budget=600"},
				Risk:     "other work of the core waits longer", Factor: "sysctl:net.core.netdev_budget",
				Level: "600"},
			{System: "freebsd", Do: "a longer queue of netisr", Commands: []string{
				"echo net.isr.defaultqlimit=2048 >> /boot/loader.conf"}, Risk: "latency"},
		}}
}
