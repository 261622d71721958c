package lab

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Management is the device by which a node is reached, "" where that is not known, or none is.
func (l *Lab) Management(node string) string { return l.management[node] }

// Contact is the far end's address that the data goes to only because it is reached there itself; not valid
// where that was named, or found otherwise, or is the only one.
func (l *Lab) Contact() netip.Addr { return l.contact }

// OnManagement is the device by which a node is reached, if a setting is about it, about what is below it, or
// of the firewall; else "".
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

	above := func(dev string) bool { return by == dev || strings.HasPrefix(by, dev+".") } // a VLAN of it
	if knob.OfPorts(x.k) && slices.ContainsFunc(devices, above) || x.k.Name() == firewall {
		return by
	}

	return ""
}

// firewall is the knob that is of the whole node, and so of what it is reached by.
const firewall = "firewall"
