package labtest

import (
	"cmp"
	"context"
	"strings"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// memory implements a knob that stores its state in a map on the node. It parses states as the real knob
// does.
type memory struct {
	knob.Knob
	start   knob.State
	changed func(p knob.Place, s knob.State)
	stuck   bool
	node    *nodeState
}

// nodeState holds the settings that differ from the initial ones. All agents of a fake node share it.
type nodeState struct {
	mu       sync.Mutex
	settings map[string]knob.State
}

// starts lists the initial states of a fake node's settings, by knob.
var starts = map[string]knob.State{"link_mtu": "1500", "queue": "noqueue", "txqueuelen": "1000",
	"offload": "super", "nat": "off", "vlan": "off", "wan": "static", "firewall": "off", "ip_forward": "on",
	"cpus": "off", "flowtable": "off", "conntrack_max": "65536", "shape": "over noqueue", "policer": "off",
	"napi_threaded": "off", "gro_flush_timeout": "off", "idle_policies": "0", "idle_tunnels": "0",
	"flow_export": "off", "cpu_count": "2", "cpu_quota": "off", "irq_affinity": "0-1", "fault": "none",
	"mss_clamp": "off", "governor": "schedutil"}

// knobs returns the node side of all knobs of a node.
func (f *Lab) knobs(node string) []knob.Knob {
	var out []knob.Knob
	for _, k := range knob.All() {
		m := memory{Knob: k, start: starts[k.Name()], node: f.states[node], stuck: f.Stuck == k.Name()}
		if k.Name() == "link_mtu" {
			m.changed = func(p knob.Place, s knob.State) { f.Wire.SetMTU(node, p.Port, string(s)) }
		}

		out = append(out, m)
	}
	return out
}

// key returns the map key of a setting, which includes the port and the member of a family.
func (m memory) key(p knob.Place, s knob.State) string {
	member, _, _ := strings.Cut(string(s), "=")
	if !strings.HasSuffix(m.Name(), ":") {
		member = ""
	}
	return m.Name() + member + "@" + p.Port
}

func (m memory) Read(_ context.Context, p knob.Place, want knob.State) (knob.State, error) {
	m.node.mu.Lock()
	defer m.node.mu.Unlock()
	return cmp.Or(m.node.settings[m.key(p, want)], m.found(want)), nil
}

// found returns the initial state of a setting.
func (m memory) found(like knob.State) knob.State {
	if member, _, ok := strings.Cut(string(like), "="); ok && strings.HasSuffix(m.Name(), ":") {
		return knob.State(member + "=0")
	}
	return m.start
}

func (m memory) Apply(_ context.Context, p knob.Place, s knob.State) error {
	m.node.mu.Lock()
	defer m.node.mu.Unlock()
	if m.stuck && s == m.found(s) {
		return nil
	}

	if m.node.settings[m.key(p, s)] = s; s == m.found(s) {
		delete(m.node.settings, m.key(p, s))
	}

	if m.changed != nil {
		m.changed(p, s)
	}

	return nil
}

func (memory) Check(context.Context, knob.Place, knob.State) check.Answer { return check.OK() }
