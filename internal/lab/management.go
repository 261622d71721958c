package lab

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Management returns the device by which a node is reached, or "" if it is unknown or there is none.
func (l *Lab) Management(node string) string { return l.management[node] }

// Contact returns the far end's address if data goes there only because the far end is reached there. It is
// not valid if the address was named, found otherwise, or the only one.
func (l *Lab) Contact() netip.Addr { return l.contact }

// OnManagement returns the device by which a node is reached, if a setting affects it, a device below it, or
// the firewall; else "".
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

	above := func(dev string) bool { return by == dev || strings.HasPrefix(by, dev+".") } // a VLAN on it
	if knob.OfPorts(x.k) && slices.ContainsFunc(devices, above) || x.k.Name() == firewall {
		return by
	}

	return ""
}

// firewall is a knob of the whole node, and therefore of its management device.
const firewall = "firewall"
