package lab

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Management returns the device through which a node is reached. It returns "" if the device is unknown or
// there is none.
func (l *Lab) Management(node string) string { return l.management[node] }

// Contact returns the address of the far end to which data is sent, if this address was chosen only because
// ssh reaches the far end there. It returns the zero Addr if the address was given, was discovered in another
// way, or is the only address.
func (l *Lab) Contact() netip.Addr { return l.contact }

// OnManagement returns the device through which the node of a setting is reached, provided that the setting
// affects that device, a device below it, or the firewall. Otherwise, it returns "".
func (l *Lab) OnManagement(ctx context.Context, s record.Setting) string {
	n, err := l.Node(ctx, s.Node)
	if err != nil || n.given(s) {
		return ""
	}

	x, err := l.resolve(s, n)
	if err != nil {
		return ""
	}

	by := l.management[x.p.Node]
	devices := x.p.Ports
	if x.p.Port != "" {
		devices = []string{x.p.Port}
	}

	// A device such as dev.10 is a VLAN on dev.
	above := func(dev string) bool { return by == dev || strings.HasPrefix(by, dev+".") }
	if knob.OfPorts(x.k) && slices.ContainsFunc(devices, above) || x.k.Name() == firewall {
		return by
	}

	return ""
}

// firewall is the name of a knob that affects a whole node, and therefore its management device.
const firewall = "firewall"
