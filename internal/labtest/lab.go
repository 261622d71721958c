package labtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Lab is a lab of fakes in one process. It has agents, which are connected by pipes, and routers without an
// agent. Set the exported fields before Up.
type Lab struct {
	Topology  record.Topology
	Agentless []string // nodes without an agent
	Engine    Engine
	Journal   *journal.Journal
	Changed   func(router, setting, value string) // called on changes of agentless routers; may be nil

	Probes []probe.Probe // probes of every node; if nil, Probes() is used
	Stuck  string        // injected fault: name of a knob that nodes do not restore
	// Fragments lists the share of reassembly memory in use that the router reports, one value per query.
	// Later queries report 0.
	Fragments []float64

	Wire    *Wire            // set by Up
	Routers map[string]*Host // agentless nodes, set by Up

	states map[string]*nodeState // states of the nodes with an agent
}

// Up builds the lab.
func (f *Lab) Up() (*lab.Lab, error) {
	f.Wire = NewWire(f.Topology)
	f.Routers = map[string]*Host{}
	f.states = map[string]*nodeState{}
	var nodes []*lab.Node
	for _, n := range append(slices.Clone(f.Topology.Nodes), record.TopoNode{Name: lab.HostNode}) {
		if slices.Contains(f.Agentless, n.Name) {
			var ports []string
			for _, p := range f.Topology.Ports(n.Name) {
				ports = append(ports, p.Port)
			}

			f.Routers[n.Name] = NewRouter(n.Name, ports, f.changed(n.Name))
			nodes = append(nodes, &lab.Node{Name: n.Name, Host: f.Routers[n.Name], Driver: RouterDriver{}})
			continue
		}

		f.states[n.Name] = &nodeState{settings: map[string]knob.State{}}
		nodes = append(nodes, &lab.Node{Name: n.Name, Agent: Serve(f.handlers(n.Name))})
	}

	return f.assemble(nodes, f.Journal)
}

// Attach connects another controller to a lab built by Up, with separate agents on the same nodes.
func (f *Lab) Attach() (*lab.Lab, error) {
	var nodes []*lab.Node
	for name := range f.states {
		nodes = append(nodes, &lab.Node{Name: name, Agent: Serve(f.handlers(name))})
	}

	for name, h := range f.Routers {
		nodes = append(nodes, &lab.Node{Name: name, Host: h, Driver: RouterDriver{}})
	}

	return f.assemble(nodes, nil)
}

func (f *Lab) assemble(nodes []*lab.Node, j *journal.Journal) (*lab.Lab, error) {
	parts := lab.Parts{Knobs: knob.All(), Tunnels: []tunnel.Tunnel{Tunnel{f.Wire}}}
	return lab.Assemble("fake-"+f.Topology.Name, f.Topology, nodes, parts, j)
}

// changed returns a callback that applies the settings of an agentless router to the wire.
func (f *Lab) changed(node string) func(setting, value string) {
	return func(setting, value string) {
		if port, name, ok := strings.Cut(setting, "."); ok && name == "link_mtu" {
			f.Wire.SetMTU(node, port, value)
		}

		if f.Changed != nil {
			f.Changed(node, setting, value)
		}
	}
}

// State lists the settings that differ from their initial state. The list is empty if all settings were
// restored. State may be called after the lab is closed.
func (f *Lab) State() []string {
	var out []string
	for _, node := range slices.Sorted(maps.Keys(f.states)) {
		n := f.states[node]
		n.mu.Lock()
		for _, key := range slices.Sorted(maps.Keys(n.settings)) {
			out = append(out, fmt.Sprintf("%s %s=%s", node, key, n.settings[key]))
		}

		n.mu.Unlock()
	}

	for _, name := range slices.Sorted(maps.Keys(f.Routers)) {
		config, err := show(context.Background(), f.Routers[name])
		if err != nil {
			return append(out, err.Error())
		}

		for _, line := range slices.Sorted(maps.Keys(config)) {
			_, setting, ofPort := strings.Cut(line, ".")
			if !ofPort {
				setting = line
			}

			if config[line] != nodeSettings[setting]+portSettings[setting] {
				out = append(out, fmt.Sprintf("%s %s=%s", name, line, config[line]))
			}
		}
	}

	return out
}
