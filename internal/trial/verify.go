package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// way holds the endpoints of a trial's path, and the addresses of the endpoints.
type way struct {
	lab       *lab.Lab
	path      lab.Path
	near, far traffic.End
	opener    string // the end that opens the path check: "near" or "far"
	ports     lab.DataPorts
	tag       string   // tag in the packets of the path check; "" in our own network
	unwatched []string // routers whose counters cannot be read
	agentless []string // routers whose counters a driver reads
	// thirdParty is set if the far endpoint runs a third party's program, which answers only its own
	// protocol.
	thirdParty bool
	bypass     bool // the traffic bypasses the tunnel, as the plan requires
}

// gather resolves the endpoints of a row's path.
func gather(ctx context.Context, l *lab.Lab, p lab.Path, d demand) (way, error) {
	w := way{lab: l, path: p, opener: d.probeOpener, ports: d.ports, bypass: d.bypass}
	if !l.OwnNetwork() {
		w.tag = d.load.Tag
	}

	for i, end := range []*traffic.End{&w.near, &w.far} {
		name := [2]string{l.Topology.Near, l.Topology.Far}[i]
		n, err := l.Node(ctx, name)
		if err != nil {
			return way{}, err
		}

		var offset int64
		switch {
		case n.HasAgent():
			if offset, _, err = n.Agent.Clock(ctx); err != nil {
				return way{}, fmt.Errorf("relate the clock of %s: %w", name, err)
			}
		case n.Serves == "":
			_, err := n.AgentFor("end traffic")
			return way{}, err
		}

		w.thirdParty = n.Serves != ""
		slot := p.Slot
		if d.bypass {
			slot = 0 // slot of the path without the tunnel
		}

		at, err := l.End(slot, i, d.ip)
		if err != nil {
			return way{}, err
		}

		*end = traffic.End{
			Node:       name,
			Agent:      n.Agent,
			Addr:       at.Addr,
			Target:     at.Target,
			Offset:     offset,
			CPUs:       d.cpus[name],
			ThirdParty: n.Serves,
		}
		if end.Next, err = Neighbor(ctx, l, name); err != nil {
			return way{}, err
		}

		for _, sub := range p.Beside {
			end.Beside = append(end.Beside, l.Address(sub.Slot, i, d.ip))
		}
	}

	w.near.Hears = d.hears
	if d.nat == "forward" {
		a, err := l.ForwardAddress(d.ip)
		if err != nil {
			return way{}, err
		}

		w.near.Target = a
	}

	for _, r := range l.Topology.Routers {
		n, err := l.Node(ctx, r)
		if err != nil {
			return way{}, err
		}

		switch {
		case !n.Counts():
			w.unwatched = append(w.unwatched, r)
		case !n.HasAgent():
			w.agentless = append(w.agentless, r)
		}
	}

	return w, nil
}

// Neighbor returns the device at the other end of a node's link, or nil if that device is not under our
// control.
func Neighbor(ctx context.Context, l *lab.Lab, name string) (*traffic.Neighbor, error) {
	port, ok := l.Neighbor(name)
	if !ok {
		return nil, nil
	}

	n, err := l.Node(ctx, port.Node)
	if err != nil || !n.HasAgent() {
		return nil, err
	}

	return &traffic.Neighbor{Node: port.Node, Agent: n.Agent, Device: l.Device(port.Node, port.Port)}, nil
}

// counters reads all counters that increase when traffic takes the path: the counters of tunnels and of
// the routers' ports. If underLoad is set, it reads only counters of nodes with an agent, because a driver
// would start programs on a busy router.
func (w way) counters(ctx context.Context, underLoad bool) ([]record.CounterDelta, error) {
	var out []record.CounterDelta
	for _, sub := range w.path.Subpaths() {
		if sub.Tunnel == nil {
			continue
		}

		c, err := sub.Tunnel.Counters(ctx, underLoad)
		if err != nil {
			return nil, err
		}

		near := w.lab.Topology.Tunnel[0]
		device := cmp.Or(c.Counted, sub.Tunnel.Devices()[0])
		out = append(out, move(near, device, record.TunnelSent, c.Sent),
			move(near, device, record.TunnelReceived, c.Received))
	}

	for _, r := range w.lab.Topology.Routers {
		if slices.Contains(w.unwatched, r) || underLoad && slices.Contains(w.agentless, r) {
			continue
		}

		ports := w.lab.Ports(r)
		all, err := w.lab.Counters(ctx, r, ports...)
		if err != nil {
			return nil, err
		}

		for _, port := range ports {
			c := all[port]
			out = append(out, move(r, port, "rx_packets", c.RxPackets), move(r, port, "tx_packets",
				c.TxPackets), move(r, port, "rx_bytes", c.RxBytes), move(r, port, "tx_bytes", c.TxBytes))
		}
	}

	return out, nil
}

func move(node, device, counter string, v uint64) record.CounterDelta {
	return record.CounterDelta{Node: node, Device: device, Counter: counter, Before: v}
}

// moved reads the counters again and returns the differences from the values in before.
func (w way) moved(ctx context.Context, before []record.CounterDelta, when string) ([]record.CounterDelta,
	error) {
	after, err := w.counters(ctx, false)
	if err != nil {
		return nil, err
	}

	out := slices.Clone(before)
	for i := range out {
		out[i].After = after[i].Before
		out[i].When = when
	}

	return out, nil
}

// edgeLead is the time before the start of a window at which the window's first counters are requested, so
// that they have been read when the window begins.
const edgeLead = 50 * time.Millisecond

// edge holds the counters at the start of a window.
type edge struct {
	counters []record.CounterDelta
	at       int64 // time when all counters had been read
	err      error
}

// startEdge reads the counters just before a window begins, unless ctx is cancelled. It always sends
// exactly one edge to the channel.
func (w way) startEdge(ctx context.Context, win record.Window) <-chan edge {
	out := make(chan edge, 1)
	go func() {
		if err := host.Pause(ctx, time.Duration(win.Start-int64(edgeLead)-host.Monotonic())); err != nil {
			out <- edge{err: err}
			return
		}

		counters, err := w.counters(ctx, true)
		out <- edge{counters, host.Monotonic(), err}
	}()
	return out
}

// ofWindow returns the counter deltas from the start of the window, for the counters in e. It returns none if
// the counters were read too late. Without a warm-up, any delay is too late. The caller then uses the deltas
// of the whole load.
func (e edge) ofWindow(moves []record.CounterDelta, win record.Window) (out []record.CounterDelta) {
	late := e.at - win.Start
	if e.err != nil || late > (win.End-win.Start)/edgeLate || late > 0 && win.Begin == win.Start {
		return nil
	}

	for _, m := range moves {
		for _, c := range e.counters {
			if c.Node == m.Node && c.Device == m.Device && c.Counter == m.Counter {
				m.Before = c.Before
				m.When = "window"
				out = append(out, m)
			}
		}
	}

	return out
}

// edgeLate determines the maximum delay in reading the first counters of a window: the length of the
// window divided by edgeLate.
const edgeLate = 5

// settled reads counters after a load until the last packets have been counted, up to countTime. Before
// that, the counters of different nodes do not agree. On a slow router, counting may take long.
func settled(ctx context.Context, look func() ([]record.CounterDelta, error)) ([]record.CounterDelta, error) {
	deadline := time.Now().Add(countTime)
	for was, err := look(); ; time.Sleep(countTime / 50) {
		if err != nil || ctx.Err() != nil || time.Now().After(deadline) {
			return was, err
		}

		now, err := look()
		if err != nil || still(was, now) {
			return now, err
		}

		was = now
	}
}

// still reports whether only a few packets passed between two readings. A few packets are tolerated,
// because the readings themselves may use the same path.
func still(was, now []record.CounterDelta) bool {
	for i := range now {
		if strings.HasSuffix(now[i].Counter, "_packets") && now[i].After-was[i].After > fewPackets {
			return false
		}
	}
	return true
}

const fewPackets = 4

// prove sends a few datagrams on each subpath and checks that the datagrams cross that subpath: the largest
// packet that the MTU permits is echoed, a packet with one more byte is not, and the counters of tunnels and
// routers increase by at least the number sent.
func (w way) prove(ctx context.Context, wantMTU int) (*record.PathEvidence, error) {
	e := &record.PathEvidence{Tunnel: w.path.Resolved, WantMTU: wantMTU}
	before, err := w.counters(ctx, false)
	if err != nil {
		return e, err
	}

	var back []agent.Reached
	for i := range w.path.Subpaths() {
		got, err := w.exchange(ctx, i, agent.Reach{Sizes: []int{100, wantMTU}, Beyond: wantMTU + 1})
		if err != nil {
			return e, err
		}

		back = append(back, got)
	}

	e.BytesOffered = back[0].Bytes // the same number was sent on each further subpath
	if e.Counters, err = w.moved(ctx, before, "check"); err != nil {
		return e, err
	}

	for _, got := range back {
		if e.PathMTU, err = foundMTU(got, wantMTU); err != nil {
			return e, err
		}
	}

	// Wait, because a driver may count a packet only after the card has reported it as sent.
	for deadline := time.Now().Add(countTime); ; time.Sleep(countTime / 50) {
		err := w.check(e)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return e, err
		}

		if e.Counters, err = w.moved(ctx, before, "check"); err != nil {
			return e, err
		}
	}
}

// foundMTU returns the size of the largest packet that was echoed.
func foundMTU(got agent.Reached, want int) (int, error) {
	switch {
	case slices.Contains(got.Back, want+1):
		return want + 1, fmt.Errorf("the path carries packets of %d bytes, but its MTU should be %d",
			want+1, want)
	case slices.Contains(got.Back, want):
		return want, nil
	case len(got.Back) == 0:
		return 0, fmt.Errorf("%w: %s", errDead, got.Note)
	}
	return 0, fmt.Errorf("packets of %d bytes, %w: %s", want, errTooLarge, got.Note)
}

var (
	errDead     = errors.New("no packet came back on the path")
	errTooLarge = errors.New("the path's MTU, do not come back")
)

// blameMTU looks for a device on the path that had a smaller MTU than wanted when the run began. It adds the
// device's name to an error about the path's MTU, and returns the device's MTU, or 0 if there is no such
// device. It ignores ports whose MTU the cell sets.
func blameMTU(err error, found []record.Environment, t record.Topology, cell record.Factors, want int) (int,
	error) {
	sets := func(place string) bool { _, ok := factor.LinkMTU.At(cell, place); return ok }
	nodes := append([]string{t.Near, t.Far}, t.Routers...)
	for _, e := range found {
		if e.Inventory == nil || !slices.Contains(nodes, e.Node) || sets("") || sets(e.Node) {
			continue
		}

		for _, d := range e.Inventory.Devices {
			if d.MTU > 0 && d.MTU < want && d.Port != "" && !sets(e.Node+"."+d.Port) {
				err = fmt.Errorf("%w; %s of %s has an MTU of %d", err, d.Name, e.Node, d.MTU)
				return d.MTU, check.WithHint(err,
					fmt.Sprintf("give %s an MTU of %d, or put its own into the plan: link_mtu@%s.%s "+
						"(1280 or more)", d.Name, want, e.Node, d.Port))
			}
		}
	}
	return 0, err
}

// countTime is the maximum time until the counters of a path have counted a packet.
const countTime = 500 * time.Millisecond

// exchange sends datagrams on a subpath and returns which of them were echoed.
func (w way) exchange(ctx context.Context, sub int, r agent.Reach) (agent.Reached, error) {
	opener := w.near
	answerer := w.far
	if w.opener == "far" {
		opener = w.far
		answerer = w.near
	}

	at := answerer.Addr
	r.From = opener.Addr
	r.To = answerer.Target
	r.Port = w.ports.Check
	r.Tag = w.tag
	if sub > 0 {
		r.From = opener.Beside[sub-1]
		at = answerer.Beside[sub-1]
		r.To = at
	}

	session, err := w.echoAt(ctx, answerer, at)
	if err != nil {
		return agent.Reached{}, err
	}
	defer endEcho(session)
	defer context.AfterFunc(ctx, func() { session.Close() })()
	var back agent.Reached
	err = opener.Agent.Invoke(ctx, agent.VerbReach, r, &back)
	return back, err
}

// echoAt makes an endpoint echo datagrams until the session ends.
func (w way) echoAt(ctx context.Context, e traffic.End, at netip.Addr) (host.Session, error) {
	session, err := e.Agent.Open(ctx, agent.VerbEcho, agent.EchoAt{
		Addr: at,
		Port: w.ports.Check,
		Tag:  w.tag,
		From: e.Hears,
	})
	if err != nil {
		return nil, err
	}

	if err := host.Await(ctx, session, nil); err != nil {
		endEcho(session)
		return nil, err
	}

	return session, nil
}

// echoEnd limits the time that a node may take to close the echo's port.
const echoEnd = 2 * time.Second

// endEcho ends the echo and waits until the node has closed the port, because the next check uses it
// again.
func endEcho(s host.Session) { traffic.LetGo(s, echoEnd) }

// check compares the counters with the number of packets sent.
func (w way) check(e *record.PathEvidence) error {
	for _, c := range e.Counters {
		grown := int64(c.After - c.Before)
		switch {
		case (c.Counter == record.TunnelSent || c.Counter == record.TunnelReceived) && !w.bypass &&
			grown < e.BytesOffered:
			return fmt.Errorf("traffic did not take the tunnel: %s of %s on %s grew by %d bytes for %d sent",
				c.Counter, c.Device, c.Node, grown, e.BytesOffered)
		case (c.Counter == "rx_packets" || c.Counter == "tx_packets") && grown < 2:
			return fmt.Errorf("traffic did not pass the router: %s of %s on %s grew by %d packets for 2 "+
				"sent each way", c.Counter, c.Device, c.Node, grown)
		}
	}
	return nil
}
