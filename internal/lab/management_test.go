package lab

import (
	"context"
	"errors"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// unguarded is a driver whose settings nobody undoes when the contact is lost.
type unguarded struct{ driver.Driver }

// TestManagement: a setting of the device by which a node is reached is refused where nothing there undoes
// it, and is told of elsewhere.
func TestManagement(t *testing.T) {
	topology, err := TopologyNamed("forward")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		setting record.Setting
		reached string // device
		at      string // the device by which the node is reached, "" if the setting leaves it alone
		refused bool
	}{
		{record.Setting{Knob: "queue", Value: "pfifo", Port: "wan"}, "eth0", "eth0", true},
		{record.Setting{Knob: "queue", Value: "pfifo", Port: "lan"}, "eth0", "", false},
		{record.Setting{Knob: "link_mtu", Value: "1400"}, "eth0", "eth0", true},
		{record.Setting{Knob: "vlan", Value: "7", Port: "wan"}, "eth0.10", "eth0.10", true},
		{record.Setting{Knob: "link_mtu", Value: "1400"}, "eth2", "", false},
		{record.Setting{Knob: "firewall", Value: "100"}, "eth2", "", true},
		{record.Setting{Knob: "ip_forward", Value: "on"}, "eth0", "", false},
		{record.Setting{Knob: "queue", Value: "pfifo", Port: "wan"}, "", "", false},
	} {
		x.setting.Node = "router"
		l := newLab("x", record.LabSSH, topology, Parts{Knobs: knob.All()}, nil)
		l.management = map[string]string{"router": x.reached}
		l.network = newNetwork(DataPorts{}, nil,
			func(int) ([2]Meeting, error) { return [2]Meeting{}, errors.New("none") })
		l.devices = map[string]map[string]string{"router": {"lan": "eth1", "wan": "eth0"}}
		for name, by := range map[string]driver.Driver{"guarded": driver.Linux{}, "unguarded": unguarded{}} {
			n := &Node{Name: "router", Driver: by, Host: host.Local()}
			l.nodes["router"] = n
			if got := l.OnManagement(context.Background(), x.setting); name == "guarded" && got != x.at {
				t.Errorf("%v, reached by %q: of %q, want %q", x.setting, x.reached, got, x.at)
			}
			_, _, _, err := l.resolve(x.setting, n)
			refused := name == "unguarded" && x.refused
			if errors.Is(err, host.ErrUnsupported) != refused || (check.HintOf(err) != "") != refused {
				t.Errorf("%v, %s, reached by %q: %v", x.setting, name, x.reached, err)
			}
		}
	}
}
