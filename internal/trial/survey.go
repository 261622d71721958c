package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/ceiling"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Survey checks a lab of real machines before it is used. For each machine, it reports whether it can be
// reached, the user's rights, and the accuracy of the clock offset. For the path, it reports whether data
// crosses it through the router, and the MTU. It changes no settings. At the end, it loads the loopback
// devices of both endpoints for some seconds; see headroom.
func Survey(ctx context.Context, l *lab.Lab, engines []traffic.Engine) ([]Capability, error) {
	var out []Capability
	add := func(area, name string, a check.Answer) { out = append(out, Capability{area, name, a}) }
	for _, name := range l.Nodes() {
		n, err := l.Node(ctx, name)
		if err != nil {
			return out, err
		}

		var facts map[string]string
		a := check.CouldNotTell("%s", n.Facts.Unreachable)
		switch {
		case n.HasAgent():
			if a, facts, err = ofAgent(ctx, n); err != nil {
				return out, err
			}
		case n.HasDriver():
			if a = n.Driver.Check(ctx, n.Host); a.State == check.Yes {
				a, facts = ofDriver(ctx, n)
			}
		}

		add("machine", name, a)
		var ports []string
		for _, port := range l.Ports(name) {
			dev := l.Device(name, port)
			told := card(facts, dev)
			if n.HasDriver() {
				told = readCard(ctx, n, dev, told)
			}

			ports = append(ports, port+" is "+dev+told)
		}

		by := l.Management(name)
		if by != "" {
			ports = append(ports, "reached by "+by)
		}

		if n.HasAgent() || n.HasDriver() {
			add("ports", name, check.OKBecause("%s", strings.Join(ports, ", ")))
			a, known := toolsOf(ctx, n, !slices.Contains(l.Topology.Routers, name))
			if known {
				add("tools", name, a)
			}
		}
	}

	c := &Campaign{Engines: engines, Sink: func(record.Event) {}}
	for _, ip := range []int{4, 6} {
		x, err := c.discover(ctx, l, ip)
		if err != nil {
			return out, err
		}

		name := fmt.Sprintf("IPv%d", ip)
		why := x.why["udp"]
		if why != "" {
			add(areaPath, name, check.Not("%s", why))
			continue
		}

		nat := ""
		if x.translates() {
			nat = "NAT, "
		}

		add(areaPath, name, check.OKBecause("%s → %s, MTU %d, %s, %sopened from the %s end", x.ends[0].Addr,
			x.ends[1].Target, x.mtu, routersOf(x), nat, x.opener["udp"]))
		a, err := c.crosses(ctx, l, ip, x)
		if err != nil {
			return out, err
		}

		add(areaPath, overRouter+name, a)
	}

	if a := l.Contact(); a.IsValid() {
		add(areaPath, "under test", check.CouldNotTell("the data goes to %s, where ssh reaches the server, "+
			"which has other addresses", a).Hinted("if it is to go elsewhere name that: --server-address"))
	}

	if Measurable(out) {
		add("tester", "headroom", headroom(Ceilings(ctx, l, lab.Local{}, []ceiling.Kind{
			ceiling.KindOf("native", record.Load{Protocol: "tcp"}, record.Link{})})))
	}

	return out, context.Cause(ctx)
}

// card describes a device by its MTU, its speed, and its enabled offloads that produce packets too large
// for a wire.
func card(facts map[string]string, dev string) string {
	mtu := facts["device:"+dev+":mtu"]
	if mtu == "" {
		return ""
	}

	text := " (MTU " + mtu
	if mbps, err := strconv.ParseFloat(facts["device:"+dev+":speed_mbps"], 64); err == nil {
		text += ", " + unit.Bitrate(mbps*1e6).String()
	}

	on := strings.Fields(facts["device:"+dev+":offloads"])
	var merging []string
	for _, o := range [][2]string{{"tx-tcp-segmentation", "TSO"}, {"tx-generic-segmentation", "GSO"},
		{"rx-gro", "GRO"}, {"rx-lro", "LRO"}} {
		if slices.Contains(on, o[0]) {
			merging = append(merging, o[1])
		}
	}

	if facts["device:"+dev+":type"] == "wg" { // RouterOS's name for WireGuard
		text += ", WireGuard"
	}

	if len(merging) > 0 {
		text += ", " + strings.Join(merging, " ")
	}

	return text + ")"
}

// readCard describes a device of an agentless router by its enabled offloads and, if not yet known, its
// MTU. If the driver cannot read them, readCard returns the reason.
func readCard(ctx context.Context, n *lab.Node, dev, told string) string {
	told, known := strings.CutSuffix(told, ")")
	reads := [][2]string{{"MTU", "link_mtu"}, {"offloads", "offload"}}
	if !known {
		told = " ("
	} else {
		reads = reads[1:]
		told += ", "
	}

	var all []string
	for _, r := range reads {
		text, err := n.Driver.Read(ctx, n.Host, record.Setting{Knob: r[1], Node: n.Name, Port: dev})
		off := func(feature string) bool { return strings.HasSuffix(feature, "=off") }
		on := strings.Join(slices.DeleteFunc(strings.Fields(text), off), " ")
		text = cmp.Or(strings.ReplaceAll(on, "=on", ""), "none")
		if err != nil {
			_, why, _ := strings.Cut(err.Error(), host.ErrUnsupported.Error()+": ")
			text = "not told: " + cmp.Or(why, err.Error())
		}

		all = append(all, r[0]+" "+check.Plain(text))
	}

	return told + strings.Join(all, ", ") + ")"
}

// toolsOf reports which of the programs needed by some cells are missing on a node. known is false if the
// node has no POSIX shell.
func toolsOf(ctx context.Context, n *lab.Node, end bool) (a check.Answer, known bool) {
	needs := [][2]string{{"openvpn", "the tunnel openvpn"}}
	if end {
		needs = append(needs, [2]string{"iperf3", "the engine iperf3"})
	}

	by := n.Host
	switch {
	case n.HasAgent():
		by = agent.NewHost(n.Name, n.Agent)
	case slices.Contains([]string{"linux", "openwrt"}, n.Driver.Name()):
		needs = [][2]string{{"tc", "queues and shapers"}, {"nft", "firewall, NAT and flowtable"},
			{"ethtool", "offloads"}}
	default:
		return a, false
	}

	script := ""
	for _, tool := range needs {
		script += "command -v " + tool[0] + " >/dev/null || echo " + tool[0] + "\n"
	}

	out, err := host.Run(ctx, by, host.Command{Path: "sh", Args: []string{"-c", script}})
	if err != nil {
		return check.CouldNotTell("%v", err), true
	}

	var lacks []string
	for _, tool := range needs {
		if slices.Contains(strings.Fields(string(out)), tool[0]) {
			lacks = append(lacks, "no "+tool[0]+", which "+tool[1]+" needs")
		}
	}

	if len(lacks) > 0 {
		return check.OKBecause("%s", strings.Join(lacks, "; ")), true
	}

	return check.OKBecause("nothing is missing that some cells need"), true
}

// headroom reports the rate that the slower endpoint reaches on its loopback device. Results of a run
// should be far below this rate.
func headroom(found []record.Ceiling, err error) check.Answer {
	switch {
	case err != nil:
		return check.CouldNotTell("measure what the ends can send alone: %v", err)
	case len(found) == 0:
		return check.CouldNotTell("no end reported what it can send alone")
	}
	return check.OKBecause("the slower end sends itself %s over TCP; a result near this rate is limited by "+
		"the tester", unit.Bitrate(found[0].Value))
}

// Measurable reports whether the lab can be used according to the result of Survey: each machine must meet
// the requirements, and data must cross the path through the router over at least one IP version.
func Measurable(all []Capability) bool {
	no := map[string]bool{}
	open := false
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

// optional inserts text into format, or returns "" if text is empty.
func optional(format, text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf(format, text)
}

// ofAgent reports the rights of an agent and the accuracy of its clock offset. It also returns the facts
// about the machine.
func ofAgent(ctx context.Context, n *lab.Node) (a check.Answer, facts map[string]string, err error) {
	_, bound, err := n.Agent.Clock(ctx)
	if err != nil {
		return a, nil, err
	}

	e, err := probe.Environment(ctx, n.Agent, n.Name)
	if err != nil {
		return a, nil, err
	}

	return check.OKBecause("%s %s%s, clock offset known within %s", unit.System(e.Facts["os"]),
		e.Facts["kernel"], optional(", %s", n.Rights), unit.Nanoseconds(float64(bound))), e.Facts, nil
}

// ofDriver reports the driver of a node, and the restrictions of the node. It also returns the facts about
// the machine.
func ofDriver(ctx context.Context, n *lab.Node) (a check.Answer, facts map[string]string) {
	a = check.OKBecause("driven by %s%s%s", n.Driver.Name(), optional(", %s", n.Rights),
		optional(" (%s)", n.Unagented))
	if by, ok := n.Driver.(driver.Describing); ok {
		var err error
		if facts, err = by.Facts(ctx, n.Host); err != nil {
			a = check.CouldNotTell("%v", err)
		}
	}

	if by, ok := n.Driver.(driver.Restricted); ok {
		a.Reason += "; " + by.Restrictions(facts)
	}

	return a, facts
}

func routersOf(x *discoveredPath) string {
	if x.route == nil || !x.route.Reached {
		return "routers not known"
	}
	return unit.Count(len(x.route.Routers), "router")
}

// surveyPackets is the number of packets sent in each direction to check whether they cross the router. It
// is far larger than the number of packets that our own sessions send meanwhile.
const surveyPackets = 64

// crosses sends packets, and checks whether the router's counters on both sides increase accordingly. It
// returns an error only if ctx was cancelled.
func (c *Campaign) crosses(ctx context.Context, l *lab.Lab, ip int, x *discoveredPath) (check.Answer, error) {
	d := demand{ip: ip, ports: portsOf(l), probeOpener: x.opener["udp"], hears: x.hears}
	d.load.Tag = l.Tag("survey")
	w, err := gather(ctx, l, lab.Path{Resolved: "none"}, d)
	if err != nil {
		return failedCheck(ctx, err)
	}

	if slices.Equal(w.unwatched, l.Topology.Routers) {
		return check.CouldNotTell("nobody reads the router's counters"), nil
	}

	before, err := w.counters(ctx, false)
	if err != nil {
		return uncountable(ctx, err)
	}

	got, err := w.exchange(ctx, 0, agent.Reach{Sizes: slices.Repeat([]int{x.mtu}, surveyPackets)})
	if err != nil {
		return failedCheck(ctx, err)
	}

	return crossed(ctx, got, func() ([]record.CounterDelta, error) { return w.moved(ctx, before, "check") })
}

// failedCheck returns the answer for a check that could not be completed.
func failedCheck(ctx context.Context, err error) (check.Answer, error) {
	return check.CouldNotTell("%v", err), context.Cause(ctx)
}

// uncountable returns the answer for routers whose counters cannot be read. If the router itself reports
// the error, a device named in the lab does not exist.
func uncountable(ctx context.Context, err error) (check.Answer, error) {
	if ctx.Err() != nil || errors.Is(err, host.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) {
		return failedCheck(ctx, err)
	}
	return passedBy(err), nil
}

func passedBy(err error) check.Answer {
	return check.Not("%v", err).Hinted("is there another way between the two, such as a switch? name the " +
		"addresses beyond the router, and its devices: --server-address, --router-lan, --router-wan")
}

// crossed reads the router's counters until they have counted the packets exchanged, or until countTime has
// passed.
func crossed(ctx context.Context, got agent.Reached,
	look func() ([]record.CounterDelta, error)) (check.Answer, error) {
	if len(got.Back) == 0 {
		return passedBy(fmt.Errorf("%w: %s", errDead, got.Note)), nil
	}

	for deadline := time.Now().Add(countTime); ; {
		moved, err := look()
		if err != nil {
			return failedCheck(ctx, err)
		}

		missing := uncounted(moved, got)
		switch {
		case missing == nil:
			return check.OKBecause("the counters of both of its ports moved by what was sent"), nil
		case time.Now().After(deadline):
			return passedBy(missing), nil
		}

		if err := host.Pause(ctx, countTime/50); err != nil {
			return failedCheck(ctx, err)
		}
	}
}

// uncounted returns an error that names the first port counter that did not increase by the amount of data
// sent in its direction.
func uncounted(moved []record.CounterDelta, got agent.Reached) error {
	for _, m := range moved {
		sent := got.Bytes
		if strings.HasSuffix(m.Counter, "_packets") {
			sent = int64(len(got.Back))
		}

		grown := int64(m.After - m.Before)
		if grown < sent {
			return fmt.Errorf("traffic did not pass the router: %s of %s on %s grew by %d for %d sent each "+
				"way", m.Counter, m.Device, m.Node, grown, sent)
		}
	}
	return nil
}

// warnManagement warns that a setting affects the device that carries the node's control connection. It
// warns once per device.
func (c *Campaign) warnManagement(ctx context.Context, l *lab.Lab, s record.Setting) {
	dev := l.OnManagement(ctx, s)
	if dev == "" {
		return
	}

	caveat := record.Caveat{
		Kind: "management-interface",
		Text: fmt.Sprintf("settings change %s of the %s, by which it is reached itself: what they slow down "+
			"or cut off are our commands too; it undoes them by itself once it hears nothing for "+
			"%s", dev, s.Node, unit.Seconds(agent.Silence)),
	}
	if !slices.Contains(c.Run.Caveats, caveat) {
		c.Run.Caveats = append(c.Run.Caveats, caveat)
		c.tell(record.Event{Event: "warning", Text: caveat.Text})
	}
}
