package registry

import (
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// Entry is one thing that the registry lists.
type Entry struct {
	Family string // topology, tunnel, knob, engine, prober, probe
	Name   string
}

// Entries lists everything that the registry has, in the order shown.
func Entries() []Entry {
	var out []Entry
	add := func(family, name string) {
		out = append(out, Entry{family, name})
	}
	for _, t := range lab.Topologies() {
		add("topology", t.Name)
	}
	for _, t := range node.Tunnels() {
		add("tunnel", t.Name())
	}
	for _, k := range node.Knobs() {
		add("knob", k.Name())
	}
	for _, e := range node.Engines() {
		add("engine", e.Name())
	}
	for _, l := range node.Probers() {
		add("prober", l.Name())
	}
	for _, p := range node.Probes() {
		add("probe", p.Name())
	}
	return out
}
