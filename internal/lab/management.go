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

// Contact returns the far end's address if data goes there only because ssh reaches the far end there.
// Otherwise it returns the zero Addr: the address was given, discovered in another way, or is the only one.
func (l *Lab) Contact() netip.Addr { return l.contact }

// OnManagement returns the device by which a node is reached if a setting affects that device, one below it,
// or the firewall, and "" otherwise.
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

	above := func(dev string) bool { return by == dev || strings.HasPrefix(by, dev+".") } // a VLAN on dev
	if knob.OfPorts(x.k) && slices.ContainsFunc(devices, above) || x.k.Name() == firewall {
		return by
	}

	return ""
}

// firewall is the name of a knob that affects a whole node, and thus its management device.
const firewall = "firewall"
