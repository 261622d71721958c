// Package registry is the one explicit list of everything that plans, labs and reports can speak of: one
// line per addition. It decides nothing.
package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/overhead"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/shortflow"
)

// Congestions are the TCP congestion controls a plan may name, the default first. Whether a kernel has one
// is found out when the plan meets a lab.
var congestions = [...]string{"cubic", "reno", "bbr"}

// LabParts are the controller halves that a lab is made with.
func LabParts() lab.Parts { return lab.Parts{Knobs: node.Knobs(), Tunnels: node.Tunnels()} }

// vocabulary is what plans may speak of.
type vocabulary struct{ plan.List }

// MetricNames are what a threshold may speak of.
func (vocabulary) MetricNames() []string {
	var names []string
	for _, m := range metrics.Metrics() {
		names = append(names, m.Name)
	}
	return names
}

// Vocabulary is what plans may speak of: the base factors, and every knob.
func Vocabulary() plan.Vocabulary { return vocabularyOf(node.Engines()) }

// StrangerVocabulary is the same for a run against somebody else's iperf3 server: iperf3 is the engine
// where a plan names none.
func StrangerVocabulary() plan.Vocabulary {
	engines := node.Engines()
	i := slices.IndexFunc(engines,
		func(e traffic.Engine) bool { return e.Name() == (iperf3.Engine{}).Name() })
	engines[0], engines[i] = engines[i], engines[0]
	return vocabularyOf(engines)
}

func vocabularyOf(engines []traffic.Engine) plan.Vocabulary {
	options := plan.BaseOptions{Topologies: lab.Topologies(), Tunnels: []string{"none"},
		Congestions: congestions[:], TunnelMTU: tunnelMTU,
		MaxTunnels: lab.Slots - 1, FlowSize: shortflow.FlowSizeLevel}
	for _, t := range node.Tunnels() {
		options.Tunnels = append(options.Tunnels, t.Name())
	}
	for _, e := range engines {
		options.Engines = append(options.Engines, e.Name())
	}
	list := plan.List{Factors: plan.BaseFactors(options), Places: topologiesWith}
	for _, k := range node.Knobs() {
		if k.Name() != "nat" && k.Name() != "offload" { // base factors already
			list = list.Merge(factorOf(k))
		}
	}
	return vocabulary{list}
}

// ofTheHost are the knobs that may stand at the machine that carries the lab: they say what its virtual
// machines are given.
func ofTheHost(knob string) bool { return knob == "cpu_quota" || knob == "cpu_count" }

// Factor keeps the knobs of the machine that carries the lab apart from those of its nodes. The base factor
// offload is of all nodes and has two levels; at a place it is the knob itself, and comes after.
func (v vocabulary) Factor(name string) (plan.Factor, bool) {
	plain, place, placed := strings.Cut(name, "@")
	if placed && place == lab.HostNode && !ofTheHost(plain) || placed && place != lab.HostNode &&
		plain == "cpu_quota" {
		return plan.Factor{}, false
	}
	if placed && plain == "offload" { // of one node, beside what all have
		return plan.List{Factors: []plan.Factor{factorOf(knob.Offload())}, Places: v.Places}.Factor(name)
	}
	return v.List.Factor(name)
}

// tunnelMTU is what fits over the version of IP outside, but for WireGuard: wg-quick(8) leaves room for
// IPv6 in any case.
func tunnelMTU(kind string, outerIP, linkMTU int) int {
	t, ok := overhead.Named(kind)
	if !ok || t.Kind == overhead.WireGuard {
		return linkMTU - 80
	}
	t.OuterIP = overhead.IP(outerIP)
	return t.FitMTU(linkMTU)
}

// topologiesWith names the topologies that have a node, or a node's port.
func topologiesWith(place string) []string {
	n, port, hasPort := strings.Cut(place, ".")
	var out []string
	for _, t := range lab.Topologies() {
		has := place == lab.HostNode || !hasPort && slices.ContainsFunc(t.Nodes,
			func(x record.TopoNode) bool { return x.Name == n })
		for _, l := range t.Links {
			for _, e := range l.Ends {
				has = has || e.Node == n && e.Port == port
			}
		}
		if has {
			out = append(out, t.Name)
		}
	}
	return out
}

// factorOf makes a knob a factor. A family such as "sysctl:" takes the rest of the name as the parameter,
// and its knob's text is "name=value".
func factorOf(k knob.Knob) plan.Factor {
	f := plan.Factor{Name: k.Name(), Doc: knobDoc(k.Name()), Unit: knobUnit(k.Name()), Placed: true,
		AppliesAt: meaningOf(k.Name())}
	if k.Name() == "shape" {
		f.Conflict = shapeConflict
	}
	family, isFamily := strings.CutSuffix(k.Name(), ":")
	if !isFamily {
		f.Parse = func(text string) (string, error) {
			s, err := k.Parse(text)
			return string(s), err
		}
		return f
	}
	f.Param = func(param string) (plan.Factor, bool) {
		p := plan.Factor{Name: family + ":" + param, Doc: f.Doc, Unit: f.Unit, Placed: true}
		p.Parse = func(text string) (string, error) {
			s, err := k.Parse(param + "=" + text)
			_, value, _ := strings.Cut(string(s), "=")
			return value, err
		}
		return p, true
	}
	return f
}

// meaningOf says where a knob's factor means something; nil: everywhere. Where the plan names no place, a
// setting of the device under test needs one. The firewall's rules and the flow table see only what a
// router forwards.
func meaningOf(name string) func(place string, cell record.Factors) (bool, string) {
	switch name {
	case "link_mtu", "vlan", "sysctl:":
		return nil
	}
	return func(place string, cell record.Factors) (bool, string) {
		t, err := lab.TopologyNamed(cell["topology"])
		if err != nil {
			return false, err.Error()
		}
		if (place == "" || place == lab.HostNode) && len(t.Routers) == 0 {
			return false, fmt.Sprintf("topology %s has no router", t.Name)
		}
		switch {
		case name == "firewall", name == "flowtable":
		case place == "" && (name == "shape" || name == "policer"):
			// which port is theirs follows from the way
		default:
			return true, ""
		}
		node, _, _ := strings.Cut(place, ".")
		forwards := func(r string) bool { return (place == "" || r == node) && r != t.Near && r != t.Far }
		if slices.ContainsFunc(t.Routers, forwards) {
			return true, ""
		}
		if place == "" {
			return false, fmt.Sprintf("topology %s forwards nothing", t.Name)
		}
		return false, fmt.Sprintf("%s forwards nothing in topology %s", node, t.Name)
	}
}
