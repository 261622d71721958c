package lab

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Management is the device by which a node is reached, "" where that is not known, or none is.
func (l *Lab) Management(node string) string { return l.management[node] }

// Contact is the far end's address that the data goes to only because it is reached there itself; not valid
// where that was named, or found otherwise, or is the only one.
func (l *Lab) Contact() netip.Addr { return l.contact }

// OnManagement is the device by which a node is reached, if a setting of devices changes it; else "".
func (l *Lab) OnManagement(ctx context.Context, s record.Setting) string {
	n, err := l.Node(ctx, s.Node)
	if err != nil || n.given(s) {
		return ""
	}
	k, _, p, err := l.resolve(s, n)
	if err != nil || !knob.OfPorts(k) {
		return ""
	}
	return l.reachedBy(k, p)
}

// reachedBy is the device by which a place's node is reached, if a knob of devices, or the firewall, is about
// it or about what is below it; else "".
func (l *Lab) reachedBy(k knob.Knob, p knob.Place) string {
	by, devices := l.management[p.Node], p.Ports
	if p.Port != "" {
		devices = []string{p.Port}
	}
	above := func(dev string) bool { return by == dev || strings.HasPrefix(by, dev+".") } // a VLAN of it
	if knob.OfPorts(k) && slices.ContainsFunc(devices, above) || k.Name() == firewall {
		return by
	}
	return ""
}

// firewall is the knob that is of the whole node, and so of what it is reached by.
const firewall = "firewall"

// keepReach refuses a setting of the device by which a node is reached, unless it is undone there by itself
// when the contact is lost.
func (l *Lab) keepReach(n *Node, k knob.Knob, p knob.Place) error {
	by := l.reachedBy(k, p)
	if _, guarded := n.Driver.(driver.Guarded); by == "" || n.HasAgent() || guarded {
		return nil
	}
	return check.WithHint(fmt.Errorf("%w: %s is reached by %s, and nothing there undoes a setting of it "+
		"when the contact is lost", host.ErrUnsupported, n.Name, by), "reach it by a port that is not "+
		"measured, or name the one that it is reached by as management: in the lab file")
}
