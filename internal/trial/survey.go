package trial

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Survey asks a lab of real machines what must hold before it is measured: of each machine how it is
// reached, with which rights and how well its clock is known; and of the path whether data crosses it,
// through the router, and with which MTU. Nothing is changed.
func Survey(ctx context.Context, l *lab.Lab, engines []traffic.Engine) ([]Capability, error) {
	var out []Capability
	add := func(area, name string, a check.Answer) { out = append(out, Capability{area, name, a}) }
	for _, name := range l.Nodes() {
		n, err := l.Node(ctx, name)
		if err != nil {
			return out, err
		}
		switch {
		case n.HasAgent():
			a, err := ofAgent(ctx, n)
			if err != nil {
				return out, err
			}
			add("machine", name, a)
		case n.HasDriver():
			a := n.Driver.Check(ctx, n.Host)
			if a.State == check.Yes {
				a = check.OKBecause("driven by %s%s", n.Driver.Name(), because(n.Unagented))
			}
			add("machine", name, a)
		default:
			add("machine", name, check.CouldNotTell("%s", n.Facts.Unreachable))
		}
		var ports []string
		for _, port := range l.Ports(name) {
			ports = append(ports, port+" is "+l.Device(name, port))
		}
		if n.HasAgent() || n.HasDriver() {
			add("ports", name, check.OKBecause("%s", strings.Join(ports, ", ")))
		}
	}
	c := &Campaign{Engines: engines, Sink: func(record.Event) {}}
	for _, ip := range []int{4, 6} {
		x, err := c.discover(ctx, l, ip)
		if err != nil {
			return out, err
		}
		name := fmt.Sprintf("IPv%d", ip)
		if why := x.why["udp"]; why != "" {
			add("path", name, check.Not("%s", why))
			continue
		}
		nat := ""
		if x.translates() {
			nat = "NAT, "
		}
		add("path", name, check.OKBecause("%s → %s, MTU %d, %s, %sopened from the %s end", x.ends[0].Addr,
			x.ends[1].Target, x.mtu, routersOf(x), nat, x.opener["udp"]))
		add("path", "through the router over "+name, c.crosses(ctx, l, ip, x))
	}
	return out, nil
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// ofAgent says with which rights an agent works, and how well its clock is known.
func ofAgent(ctx context.Context, n *lab.Node) (check.Answer, error) {
	_, bound, err := n.Agent.Clock(ctx)
	if err != nil {
		return check.Answer{}, err
	}
	e, err := probe.Environment(ctx, n.Agent, n.Name)
	if err != nil {
		return check.Answer{}, err
	}
	a := check.OKBecause("%s %s, clock known within %s", unit.System(e.Facts["os"]), e.Facts["kernel"],
		unit.Nanoseconds(float64(bound)))
	if id := e.Facts["uid"]; id != "" && id != "0" {
		a.Reason += ", not as root: nothing is set there"
	}
	return a, nil
}

func routersOf(x *discoveredPath) string {
	if x.route == nil || !x.route.Reached {
		return "routers not known"
	}
	return unit.Count(len(x.route.Routers), "router")
}

// crosses sends a few packets, and looks whether the router's counters of both sides move.
func (c *Campaign) crosses(ctx context.Context, l *lab.Lab, ip int, x *discoveredPath) check.Answer {
	d := demand{ip: ip, ports: portsOf(l), probeOpener: x.opener["udp"], hears: x.hears}
	d.load.Tag = l.Tag("survey")
	w, err := gather(ctx, l, lab.Path{Resolved: "none"}, d)
	if err != nil {
		return check.CouldNotTell("%v", err)
	}
	if slices.Equal(w.unwatched, l.Topology.Routers) {
		return check.CouldNotTell("nobody reads the router's counters")
	}
	if _, err := w.prove(ctx, x.mtu); err != nil {
		return check.Not("%v", err).Hinted("is there another way between the two, such as a switch? name " +
			"the addresses beyond the router")
	}
	return check.OKBecause("the counters of both of its ports moved")
}
