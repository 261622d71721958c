package trial

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
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
		if by := l.Management(name); by != "" {
			ports = append(ports, "reached by "+by)
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
			add(areaPath, name, check.Not("%s", why))
			continue
		}
		add(areaPath, name, check.OKBecause("%s → %s, MTU %d, %s, opened from the %s end", x.ends[0].Addr,
			x.ends[1].Target, x.mtu, routersOf(x), x.opener["udp"]))
		add(areaPath, overRouter+name, c.crosses(ctx, l, ip, x))
	}
	return out, nil
}

// Measurable says of what Survey tells whether the lab can be measured: each machine is as it must be, and
// over one version of IP at least data crosses the path, and not past the router.
func Measurable(all []Capability) bool {
	no, open := map[string]bool{}, false
	for _, c := range all {
		no[c.Area+" "+c.Name] = c.Answer.State == check.No
		if c.Area != areaPath && c.Answer.State == check.No {
			return false
		}
	}
	for _, name := range []string{"IPv4", "IPv6"} {
		blocked, told := no[areaPath+" "+name]
		open = open || told && !blocked && !no[areaPath+" "+overRouter+name]
	}
	return open
}

const (
	areaPath   = "path"
	overRouter = "through the router over "
)

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

// surveyPackets are sent each way to see whether they cross the router: many more than a session of ours has
// meanwhile.
const surveyPackets = 64

// crosses sends packets, and looks whether the router's counters of both sides grow by as many.
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
	before, err := w.counters(ctx, false)
	var got agent.Reached
	if err == nil {
		got, err = w.exchange(ctx, 0, agent.Reach{Sizes: slices.Repeat([]int{x.mtu}, surveyPackets)})
	}
	if err == nil && len(got.Back) == 0 {
		err = fmt.Errorf("%w: %s", errDead, got.Note)
	}
	for deadline := time.Now().Add(countTime); err == nil; {
		var moved []record.CounterMove
		if moved, err = w.moved(ctx, before, "check"); err != nil {
			break
		}
		missing := uncounted(moved, got)
		if missing == nil {
			return check.OKBecause("the counters of both of its ports moved by what was sent")
		}
		if time.Now().After(deadline) || host.Pause(ctx, countTime/50) != nil {
			err = missing
		}
	}
	return check.Not("%v", err).Hinted("is there another way between the two, such as a switch? name the " +
		"addresses beyond the router, and its devices: --server-address, --router-lan, --router-wan")
}

// uncounted says which counter of a router's ports did not grow by what went each way.
func uncounted(moved []record.CounterMove, got agent.Reached) error {
	for _, m := range moved {
		sent := got.Bytes
		if strings.HasSuffix(m.Counter, "_packets") {
			sent = int64(len(got.Back))
		}
		if grown := int64(m.After - m.Before); grown < sent {
			return fmt.Errorf("traffic did not pass the router: %s of %s on %s grew by %d for %d sent each way",
				m.Counter, m.Device, m.Node, grown, sent)
		}
	}
	return nil
}

// mindManagement says, of each device once, that a setting changes what its node is reached by.
func (c *Campaign) mindManagement(ctx context.Context, l *lab.Lab, s record.Setting) {
	dev := l.OnManagement(ctx, s)
	if dev == "" {
		return
	}
	caveat := record.Caveat{Kind: "management-interface", Text: fmt.Sprintf("settings change %s of the %s, by "+
		"which it is reached itself: what they slow down or cut off are our commands too; it undoes them by "+
		"itself once it hears nothing for %s", dev, s.Node, unit.Seconds(agent.Silence))}
	if !slices.Contains(c.Run.Caveats, caveat) {
		c.Run.Caveats = append(c.Run.Caveats, caveat)
		c.tell(record.Event{Event: "warning", Text: caveat.Text})
	}
}
