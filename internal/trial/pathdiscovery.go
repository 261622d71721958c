package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// discoveredPath describes the path between two machines for one IP version, as far as it could be
// explored.
type discoveredPath struct {
	opener map[string]string // the end that can open connections, by protocol: "near" or "far"
	why    map[string]string // reason why neither end can open connections, by protocol
	mtu    int               // 0 means unknown
	route  *agent.FoundRoute // nil if the route could not be explored
	// hears is the source address of the far end's datagrams. It is set only if the far end opens the path
	// and no NAT hides the address.
	hears  netip.Addr
	ends   [2]lab.Meeting
	device [2]string // network device through which each end reaches the other; "" means unknown
	nat    string    // see lab.Lab.Translated
	// unasked is set if the path was not explored, because the far end runs a third party's program.
	unasked bool
}

// translates reports whether the addresses of an end are known to be translated.
func (x *discoveredPath) translates() bool { return x.nat != "" && x.nat != "none" }

// portsOf returns the ports on which the lab's endpoints listen.
func portsOf(l *lab.Lab) lab.DataPorts {
	if p, ok := l.DataPorts(); ok {
		return p
	}
	return lab.DataPorts{Load: loadPort, Echo: echoPort, Check: checkPort}
}

// fit completes a demand with data that depends on the lab. Between two machines, these are the end that
// opens the connections, the ports, and the path's MTU. If the demand cannot be met, fit returns the
// reason.
func (c *Campaign) fit(ctx context.Context, l *lab.Lab, d *demand) (reason string, err error) {
	d.ports, d.probeOpener = portsOf(l), d.load.Opener
	d.load.Port = d.ports.Load
	if l.OwnNetwork() {
		return "", nil
	}

	far, err := l.Node(ctx, l.Topology.Far)
	if err != nil {
		return "", err
	}

	if far.Serves != "" { // the path to a third party's server cannot be explored
		d.wantMTU = 0
		if _, err := l.End(0, 0, d.ip); err != nil {
			return err.Error(), nil
		}

		c.found(l, d.ip, &discoveredPath{unasked: true})
		return "", nil
	}

	if len(d.cpus[l.Topology.Far]) > 0 {
		return "the peer's processes run where its kernel puts them", nil
	}

	x, err := c.discover(ctx, l, d.ip)
	if err != nil {
		return "", err
	}

	why := x.why[d.load.Protocol]
	if why != "" {
		return why, nil
	}

	d.load.Opener = x.opener[d.load.Protocol]
	d.probeOpener = x.opener["udp"]
	if d.wantMTU >= ethernetMTU { // no factor of the cell reduces the MTU
		d.wantMTU = x.mtu
	}

	d.wantMTU = min(d.wantMTU, x.mtu)
	if d.tunnel.Kind == "" || d.tunnel.Kind == "none" { // inside a tunnel, addresses are not translated
		d.hears = x.hears
	}

	largest := slices.Max(d.load.PacketSizes())
	if d.load.Protocol == "udp" && largest > x.mtu {
		return fmt.Sprintf("packets of %d bytes do not fit the path's MTU of %d", largest, x.mtu), nil
	}

	return "", nil
}

// discover explores the path for an IP version. It does so only once per run.
func (c *Campaign) discover(ctx context.Context, l *lab.Lab, ip int) (*discoveredPath, error) {
	if x := c.discovered[ip]; x != nil {
		return x, nil
	}

	c.tell(record.Event{
		Event: "phase",
		Phase: fmt.Sprintf("path over IPv%d", ip),
		Text:  fmt.Sprintf("finding the path over IPv%d", ip),
	})
	x := &discoveredPath{opener: map[string]string{}, why: map[string]string{}}
	if _, err := l.End(0, 0, ip); err != nil {
		x.why["udp"], x.why["tcp"] = err.Error(), err.Error()
	} else if err := c.explore(ctx, l, ip, x); err != nil {
		return nil, err
	}

	c.found(l, ip, x)
	return x, nil
}

// found stores the result of exploring a path.
func (c *Campaign) found(l *lab.Lab, ip int, x *discoveredPath) {
	for i := range x.ends {
		x.ends[i], _ = l.End(0, i, ip) // invalid if the end does not exist
	}

	x.nat = cmp.Or(x.nat, l.Translated(ip))
	put(&c.discovered, ip, x)
}

func (c *Campaign) explore(ctx context.Context, l *lab.Lab, ip int, x *discoveredPath) error {
	d := demand{ip: ip, ports: portsOf(l)}
	d.load.Tag = l.Tag(c.Run.ID + " path")
	w, err := gather(ctx, l, lab.Path{Resolved: "none"}, d)
	if err != nil {
		return err
	}

	x.attempt(ctx, l, ip, "udp", func(opener string) error {
		return w.open(ctx, opener, x)
	})
	// The route is explored only from the near end. From the far end, the routers would be in reverse order,
	// and NAT would hide them.
	if x.opener["udp"] == "near" {
		x.route, _ = w.findRoute(ctx) // nil if exploring fails
		if l.Mutual() {
			x.nat = w.translates(ctx)
		}
	}

	x.attempt(ctx, l, ip, "tcp", func(opener string) error { return c.connect(ctx, w, d, opener) })
	x.device = [2]string{w.deviceTo(ctx, w.near, w.far), w.deviceTo(ctx, w.far, w.near)}
	return context.Cause(ctx)
}

// open checks whether an end can open the path for datagrams, and measures the MTU. The near end first
// accepts only datagrams from the far end's known address. If none arrive, it accepts them from any
// address, because NAT may change the address.
func (w *way) open(ctx context.Context, opener string, x *discoveredPath) (err error) {
	w.opener = opener
	if opener == "far" {
		w.near.Hears = w.far.Target
		if x.mtu, err = w.discoverMTU(ctx); err == nil {
			x.hears = w.near.Hears
			return nil
		}

		w.near.Hears = netip.Addr{}
	}

	x.mtu, err = w.discoverMTU(ctx)
	return err
}

// translates returns "near" if the near end's address is translated, "none" if it is not, and "" if this
// is unknown.
func (w way) translates(ctx context.Context) string {
	w.far.Hears = w.near.Addr // the far end answers only this address
	got, err := w.exchange(ctx, 0, agent.Reach{Sizes: []int{minTagged}, Tries: discoverTries})
	switch {
	case err != nil:
		return ""
	case len(got.Back) == 0:
		return "near"
	}

	return "none"
}

// minTagged is the IP length in bytes of the smallest datagram that has room for a tag.
const minTagged = 100

// deviceTo returns the name of the device through which one end reaches the other, or "" if it is unknown.
func (w way) deviceTo(ctx context.Context, from, to traffic.End) string {
	var got agent.Reached
	if from.Agent.Invoke(ctx, agent.VerbReach, agent.Reach{
		From: from.Addr,
		To:   to.Target,
		Port: w.ports.Check,
		Tag:  w.tag,
	}, &got) != nil {
		return ""
	}
	return got.Device
}

// attempt checks whether the near end can open connections of a protocol and, if it cannot, whether the far
// end can.
func (x *discoveredPath) attempt(ctx context.Context, l *lab.Lab, ip int, protocol string,
	try func(opener string) error) {
	var why []string
	for _, opener := range []string{"near", "far"} { // the usual opener first
		if opener == "far" && !l.FarMayOpen(ip) {
			continue
		}

		err := try(opener)
		if err == nil {
			x.opener[protocol] = opener
			return
		}

		if ctx.Err() != nil {
			return
		}

		why = append(why, "opened from the "+opener+" end: "+err.Error())
	}

	p := portsOf(l)
	x.why[protocol] = fmt.Sprintf("%s over IPv%d does not get through; a firewall must let ports %d to %d "+
		"in at one of the machines (%s)", strings.ToUpper(protocol), ip, p.Load, p.Check,
		strings.Join(why, "; "))
}

// silent reports whether no datagrams pass between two machines over the row's IP version, so that latency
// cannot be measured.
func (c *Campaign) silent(row record.Row) bool {
	x := c.discovered[cmp.Or(factor.IP.Number(row.Factors), 4)]
	return x != nil && !x.unasked && x.opener["udp"] == ""
}

// tryLength is the duration of a load that tests whether a connection is possible.
const tryLength = 20 * time.Millisecond

// connect checks whether an end can open TCP connections, as a load would.
func (c *Campaign) connect(ctx context.Context, w way, d demand, opener string) error {
	engine := c.engine("native")
	if engine == nil {
		return errors.New("no engine to try it with")
	}

	_, err := engine.Offer(ctx, w.near, w.far, record.Load{
		Protocol:  "tcp",
		Direction: record.Up,
		Streams:   1,
		IP:        d.ip,
		Opener:    opener,
		Port:      d.ports.Load,
		Duration:  tryLength,
		Interval:  tryLength,
		Tag:       d.load.Tag,
	}, newConductor(1, 0, tryLength))
	return err
}

// Well-known packet sizes in bytes: the Ethernet MTU, the minimum MTUs of IPv4 and IPv6, and the largest
// packets.
const (
	ethernetMTU = 1500
	minMTU4     = 576
	minMTU6     = 1280
	largest4    = 65535      // RFC 791, including the header
	largest6    = 65535 + 40 // RFC 8200, including the header
)

// discoverTries is the number of attempts for each packet size, because a packet may be lost.
const discoverTries = 3

// discoverMTU returns the size in bytes of the largest packet that is echoed.
func (w way) discoverMTU(ctx context.Context) (int, error) {
	low := minMTU4
	high := largest4 + 1 // packets of size low pass; packets of size high do not
	if w.far.Target.Is6() {
		low = minMTU6
		high = largest6 + 1
	}

	passes := func(sizes ...int) (agent.Reached, error) {
		return w.exchange(ctx, 0, agent.Reach{Sizes: sizes, Tries: discoverTries})
	}
	got, err := passes(low)
	if err != nil {
		return 0, err
	}

	if len(got.Back) == 0 {
		return 0, errors.New(got.Note)
	}

	// Try the MTU of Ethernet first, because it is the MTU of most paths.
	if got, err = passes(ethernetMTU, ethernetMTU+1); err != nil {
		return 0, err
	}

	low = slices.Max(append(got.Back, low))
	if low <= ethernetMTU {
		high = ethernetMTU + 1
	}

	if low < ethernetMTU {
		high = ethernetMTU
	}

	for low+1 < high {
		middle := low + (high-low)/2
		if got, err = passes(middle); err != nil {
			return 0, err
		}

		if len(got.Back) > 0 {
			low = middle
		} else {
			high = middle
		}
	}

	return low, nil
}

// findRoute returns the routers on the path as seen from the near end.
func (w way) findRoute(ctx context.Context) (*agent.FoundRoute, error) {
	session, err := w.echoAt(ctx, w.far, w.far.Addr)
	if err != nil {
		return nil, err
	}
	defer endEcho(session)
	var found agent.FoundRoute
	err = w.near.Agent.Invoke(ctx, agent.VerbRoute, agent.FindRoute{
		From: w.near.Addr,
		To:   w.far.Target,
		Port: w.ports.Check,
		Tag:  w.tag,
	}, &found)
	if err != nil {
		return nil, err
	}

	return &found, nil
}

// between describes what lies between two machines, as far as it is visible.
func (c *Campaign) between(name string) record.Environment {
	e := record.Environment{
		Node:  name,
		Facts: map[string]string{},
		Missing: map[string]string{
			"all else": "nothing of chokepoint runs there; chokepoint-agent environment tells it, and " +
				"chokepoint import adds that"},
	}
	for _, ip := range []int{4, 6} {
		x := c.discovered[ip]
		if x == nil {
			continue
		}

		prefix := fmt.Sprintf("path_ipv%d:", ip)
		if len(x.opener) > 0 || x.unasked {
			for name, fact := range map[string]string{"near": x.ends[0].Addr.String(),
				"far": x.ends[1].Target.String(), "nat": x.nat} {
				if fact != "" {
					e.Facts[prefix+name] = fact
				}
			}
		}

		for protocol, opener := range x.opener {
			e.Facts[prefix+protocol+"_opened_by"] = opener
		}

		why := x.why["udp"]
		if why != "" || x.unasked {
			e.Missing[prefix+"mtu"] = cmp.Or(why, "only chokepoint peer at its far end could answer")
			continue
		}

		e.Facts[prefix+"mtu"] = strconv.Itoa(x.mtu)
		c.describeRoute(&e, prefix, x.route)
	}
	return e
}

func (c *Campaign) describeRoute(e *record.Environment, prefix string, r *agent.FoundRoute) {
	switch {
	case r == nil:
		e.Missing[prefix+"routers"] = "the path was not explored from this end"
		return
	case !r.Reached:
		e.Missing[prefix+"routers"] = fmt.Sprintf("no datagram with a short time to live arrived; %d "+
			"routers named themselves", len(r.Routers))
		return
	}

	e.Facts[prefix+"routers"] = strconv.Itoa(len(r.Routers))
	var names []string
	for _, a := range r.Routers {
		name := "?"
		if a.IsValid() {
			name = a.String()
		}

		names = append(names, name)
	}

	if len(names) > 0 {
		e.Facts[prefix+"route"] = strings.Join(names, " ")
	}
}

// ofMachine adds to e the facts that follow from the role of the machine in the lab.
func (c *Campaign) ofMachine(ctx context.Context, l *lab.Lab, n *lab.Node, e *record.Environment) error {
	if slices.Contains(l.Topology.Routers, n.Name) {
		maps.Copy(e.Facts, c.between(n.Name).Facts)
	} else if virtual(e.Facts) {
		c.noCards(n.Name)
	}

	for end, name := range []string{l.Topology.Near, l.Topology.Far} {
		for ip, x := range c.discovered {
			if name == n.Name && x.device[end] != "" {
				e.Facts[fmt.Sprintf("path_ipv%d:device", ip)] = x.device[end]
			}
		}
	}

	for _, port := range l.Ports(n.Name) {
		dev := l.Device(n.Name, port)
		if dev != port {
			e.Facts["port:"+port] = dev
		}
	}

	if n.Facts.Clock != record.ClockRelated {
		return nil
	}

	_, bound, err := n.Agent.Clock(ctx)
	if err != nil {
		return err
	}

	e.Facts["clock_related_within_ns"] = strconv.FormatInt(bound, 10)
	return nil
}

// noCards adds a caveat that lists the ends without a hardware network card, and the consequences.
func (c *Campaign) noCards(name string) {
	const kind, means = "virtual-cards", " no network card of hardware: packets of up to 64 KiB may cross " +
		"between, and then offload=wire does not hold"
	for i, other := range c.Run.Caveats {
		if first, ok := strings.CutSuffix(other.Text, " has"+means); ok && other.Kind == kind {
			if first != "the "+name {
				c.Run.Caveats[i].Text = first + " and the " + name + " have" + means
			}
			return
		}
	}

	c.Run.Caveats = append(c.Run.Caveats, record.Caveat{Kind: kind, Text: "the " + name + " has" + means})
}

// virtual reports whether a machine has no physical network card. It returns false for systems other than
// Linux, because they report no devices.
func virtual(facts map[string]string) bool {
	os := facts["os"]
	if os != "" && os != "linux" {
		return false
	}

	for name, value := range facts {
		if strings.HasPrefix(name, "device:") && strings.HasSuffix(name, ":driver") &&
			!record.VirtualDriver(value) {
			return false
		}
	}

	return true
}
