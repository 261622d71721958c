package lab

import (
	"context"
	"errors"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestManagement: a setting of the device by which a node is reached is told of, and one of the firewall
// whatever that device is.
func TestManagement(t *testing.T) {
	for _, x := range []struct {
		setting record.Setting
		reached string // device
		at      string // the device by which the node is reached, "" if the setting leaves it alone
	}{
		{record.Setting{Knob: "queue", Value: "pfifo", Port: "wan"}, "eth0", "eth0"},
		{record.Setting{Knob: "queue", Value: "pfifo", Port: "lan"}, "eth0", ""},
		{record.Setting{Knob: "link_mtu", Value: "1400"}, "eth0", "eth0"},
		{record.Setting{Knob: "vlan", Value: "7", Port: "wan"}, "eth0.10", "eth0.10"},
		{record.Setting{Knob: "link_mtu", Value: "1400"}, "eth2", ""},
		{record.Setting{Knob: "firewall", Value: "100"}, "eth2", "eth2"},
		{record.Setting{Knob: "firewall", Value: "100"}, "", ""},
		{record.Setting{Knob: "ip_forward", Value: "on"}, "eth0", ""},
		{record.Setting{Knob: "queue", Value: "pfifo", Port: "wan"}, "", ""},
	} {
		x.setting.Node = "router"
		l := newForward(t, record.LabSSH, Parts{Knobs: knob.All()})
		l.management = map[string]string{"router": x.reached}
		l.network = newNetwork(DataPorts{}, nil,
			func(int) ([2]Meeting, error) { return [2]Meeting{}, errors.New("none") })
		l.devices = map[string]map[string]string{"router": {"lan": "eth1", "wan": "eth0"}}
		l.nodes["router"] = &Node{Name: "router", Driver: driver.Linux{}, Host: host.Local()}
		got := l.OnManagement(context.Background(), x.setting)
		if got != x.at {
			t.Errorf("%v, reached by %q: of %q, want %q", x.setting, x.reached, got, x.at)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newForward is a lab of topology forward, none of whose nodes is reached yet.
func newForward(t *testing.T, kind string, parts Parts) *Lab {
	t.Helper()
	topology, err := TopologyNamed("forward")
	must(t, err)
	return newLab("a", kind, topology, parts, nil)
}
