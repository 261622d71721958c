package lab

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/pair"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Pair describes a lab of two machines. This machine is the near node, and the machine that runs "chokepoint
// peer" is the far node. The router in the topology stands for the unknown path between them. Nothing is
// changed on either machine.
type Pair struct {
	ID      string
	Address string // "host:port" of the peer
	Code    host.Secret
	Parts   Parts
}

// ThirdParty describes a lab that consists of this machine and a machine that runs "iperf3 -s" but no program
// of ours.
type ThirdParty struct {
	ID      string
	Address string // "host:port" of the server
	Parts   Parts
}

// VerbAbout asks a peer for an About.
const VerbAbout = "pair/about"

// VerbCeilings asks a peer for the highest rates that the peer reaches over its loopback device, for given
// kinds of traffic. The answer is a []record.Ceiling.
const VerbCeilings = "pair/ceilings"

// About describes a peer and its view of the connection.
type About struct {
	Local     netip.Addr   `json:"local"`  // the peer's address on its end of the connection
	Remote    netip.Addr   `json:"remote"` // the controller's address as seen by the peer
	Addresses []netip.Addr `json:"addresses"`
	Ports     [2]int       `json:"ports"` // first and last data port
	Version   string       `json:"version"`
	Boot      string       `json:"boot,omitempty"` // boot ID of the peer's kernel
}

// MinDataPorts is the minimum number of data ports of a peer.
const MinDataPorts = 3

const (
	pairFixed   = "nothing is changed on the two machines or between them: set it there, and compare two runs"
	pairBetween = "nothing of chokepoint runs on it; what chokepoint-agent probe sees there, chokepoint " +
		"import adds"
)

// untouched returns a node for a real machine that is not changed. Its offload setting is "wire", because
// packets on a cable are not merged.
func untouched(name, clock string) *Node {
	return &Node{
		Name:  name,
		Given: []record.Setting{{Knob: "offload", Value: "wire"}},
		Facts: record.NodeFacts{Fixed: pairFixed, OwnKernel: true, CPUs: record.CPUsOwn, Clock: clock},
	}
}

// newPair returns the lab of a Pair or ThirdParty. far connects to the far node.
func newPair(id string, parts Parts, note string, far func(context.Context, *Lab, *Node) error) (*Lab,
	error) {
	t, err := TopologyNamed("forward")
	if err != nil {
		return nil, err
	}

	l := newLab(id, record.LabPair, t, parts, nil)
	l.Note = note
	l.dial = func(ctx context.Context, name string) (*Node, error) {
		switch name {
		case t.Near:
			n := untouched(name, record.ClockSame)
			n.Agent, err = ownAgent("")
			return n, err
		case t.Far:
			n := untouched(name, record.ClockRelated)
			return n, far(ctx, l, n)
		}

		n := untouched(name, "")
		n.Facts.Unreachable = pairBetween
		return n, nil
	}
	return l, nil
}

// Up connects to the peer. After an error, no connection remains.
func (o Pair) Up(ctx context.Context) (*Lab, error) {
	stop := func() {}
	l, err := newPair(o.ID, o.Parts, "two machines and what lies between them, which is not changed; "+
		"packets are those of the machines' own network cards",
		func(ctx context.Context, l *Lab, far *Node) (err error) {
			stop()
			n, leave, err := o.meet(ctx, far)
			if stop = leave; err == nil { // otherwise, the previous network stays in use
				l.network = n
			}

			return err
		})
	if err != nil {
		return nil, err
	}

	l.down = func(context.Context) error { stop(); return nil }
	_, err = l.Node(ctx, l.Topology.Far)
	return l, err
}

// meet connects to the peer, both initially and after the connection was lost. stop ends the keepalive.
func (o Pair) meet(ctx context.Context, far *Node) (_ *network, stop func(), err error) {
	stop = func() {}
	v, err := pair.Dial(ctx, o.Address, o.Code)
	if err != nil {
		return nil, stop, err
	}

	p := &peering{visit: v}
	far.Agent = host.Connect(v)
	if err := far.Agent.Invoke(ctx, VerbAbout, struct{}{}, &p.about); err != nil {
		far.Agent.Close()
		return nil, stop, fmt.Errorf("ask the peer at %s about itself: %w", o.Address, err)
	}

	far.Version = p.about.Version
	far.boot = p.about.Boot
	first := p.about.Ports[0]
	n := newNetwork(DataPorts{first, first + 1, first + 2}, tagger(v.Data),
		func(ip int) ([2]Meeting, error) { return p.endsOf(ctx, o.Address, ip) })
	n.farOpens = versionOf(v.Remote.Addr()) // the peer connects to the controller's source address
	alive, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var exchange sync.WaitGroup
	exchange.Go(func() { host.KeepAlive(alive, far.Agent, pair.Silence/4) })
	return n, func() { cancel(); exchange.Wait() }, nil
}

// Up looks up the addresses of the server, but does not connect to it yet.
func (o ThirdParty) Up(ctx context.Context) (*Lab, error) {
	name, text, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, err
	}

	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("port of %s: %w", o.Address, err)
	}

	n := newNetwork(DataPorts{Load: port}, func(name string) string { return name },
		func(ip int) ([2]Meeting, error) { return endsTowards(ctx, name, ip) })
	if len(n.ends) == 0 {
		return nil, fmt.Errorf("find %s: %s", name, n.why[4])
	}

	n.reachable = func(ctx context.Context) error {
		c, err := (&net.Dialer{Timeout: answerTime}).DialContext(ctx, "tcp", o.Address)
		if err != nil {
			return fmt.Errorf("reach the iperf3 server: %w", err)
		}
		return c.Close()
	}
	l, err := newPair(o.ID, o.Parts, "this machine, a third-party iperf3 server, and what lies between "+
		"them: latency, the path's MTU and routers, exact counts of packets, and all that the far machine "+
		"could report are missing; chokepoint peer there has them",
		func(_ context.Context, _ *Lab, far *Node) error {
			far.Serves = "iperf3"
			far.Facts.Unreachable, far.Facts.Clock = "it is a third-party iperf3 server", ""
			return nil
		})
	if err == nil {
		l.network = n
	}

	return l, err
}

// ownAgent starts an agent on this machine. sysctls are the kernel settings that the agent may change.
func ownAgent(sysctls knob.Permission) (host.Agent, error) {
	child, err := host.Spawn{Args: agent.Arguments(agent.Role, sysctls)}.Start()
	if err != nil {
		return nil, err
	}
	return host.Connect(child), nil
}

// peering is a connection to a peer.
type peering struct {
	visit *pair.Visit
	about About
}

// tagger returns a function that computes strings with the key of a run, so that others cannot guess them.
func tagger(key host.Secret) func(name string) string {
	return func(name string) (text string) {
		_ = key.Use(func(b []byte) error { // error ignored: the function never fails
			m := hmac.New(sha256.New, b)
			m.Write([]byte(name))
			text = hex.EncodeToString(m.Sum(nil))
			return nil
		})
		return text
	}
}

// Peers provides the lab that Up creates, which consists of two machines.
type Peers struct {
	Up func(ctx context.Context) (*Lab, error)

	lab *Lab
}

// For returns the lab. It connects to the peer on first use.
func (o *Peers) For(ctx context.Context, topology string, size record.GuestSize) (_ *Lab, err error) {
	if size != (record.GuestSize{}) {
		return nil, noGuests(topology)
	}

	if topology != "forward" {
		return nil, &NoTopology{topology, "two machines with what lies between them are topology forward"}
	}

	if o.lab == nil {
		o.lab, err = o.Up(ctx)
	}

	return o.lab, err
}

// Close closes the lab.
func (o *Peers) Close(ctx context.Context) error {
	if o.lab == nil {
		return nil
	}

	err := o.lab.Close(ctx)
	o.lab = nil
	return err
}

func versionOf(a netip.Addr) int {
	if a.Unmap().Is4() {
		return 4
	}
	return 6
}

// usable reports whether data can be sent to an address. It excludes link-local addresses, because they
// require a zone.
func usable(a netip.Addr) bool {
	return a.IsValid() && !a.IsLinkLocalUnicast() && !a.IsMulticast() && !a.IsUnspecified()
}

// endsOf returns the addresses of both machines for an IP version. For the IP version of the control
// connection, the addresses are known. For the other version, endsOf resolves the name of the peer or tries
// addresses that the peer reports.
func (p *peering) endsOf(ctx context.Context, address string, ip int) (ends [2]Meeting, err error) {
	at := p.visit.Remote.Addr()
	if versionOf(at) == ip {
		if !usable(at) {
			return ends, fmt.Errorf("%s is an address of one link only", at)
		}
		return [2]Meeting{{Addr: p.visit.Local.Addr(), Target: p.about.Remote},
			{Addr: p.about.Local, Target: at}}, nil
	}

	candidates, err := p.candidates(ctx, address, ip)
	if err != nil {
		return ends, err
	}

	var target, near netip.Addr
	for _, target = range candidates {
		if near, err = sourceTo(target); err == nil {
			break
		}
	}

	if err != nil {
		return ends, err
	}

	far := Meeting{Addr: target, Target: target}
	// target is translated, so the peer's own address is unknown.
	if !slices.Contains(p.about.Addresses, target) {
		far.Addr = netip.IPv4Unspecified()
		if ip == 6 {
			far.Addr = netip.IPv6Unspecified()
		}
	}

	return [2]Meeting{{Addr: near, Target: near}, far}, nil
}

// sourceTo returns the source address that this machine uses for packets to target.
func sourceTo(target netip.Addr) (netip.Addr, error) {
	w, err := kernel.WayTo(target)
	if err != nil || !w.Source.IsValid() {
		return netip.Addr{}, fmt.Errorf("no route to %s", target)
	}
	return w.Source, nil
}

// endsTowards returns the ends of the path to the machine with the given name or address.
func endsTowards(ctx context.Context, name string, ip int) (ends [2]Meeting, err error) {
	found := addressesOf(ctx, name, ip)
	if len(found) == 0 {
		return ends, fmt.Errorf("%s has no address of IPv%d that data can be sent to", name, ip)
	}

	near, err := sourceTo(found[0])
	return [2]Meeting{{Addr: near, Target: near}, {Addr: found[0], Target: found[0]}}, err
}

// addressesOf returns the usable addresses of a name for an IP version. If name is an address, the result is
// that address.
func addressesOf(ctx context.Context, name string, ip int) (out []netip.Addr) {
	// An error means that there are no addresses.
	found, _ := net.DefaultResolver.LookupNetIP(ctx, fmt.Sprintf("ip%d", ip), name)
	for _, a := range found {
		if usable(a) {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// candidates returns the possible addresses of the peer for an IP version, the likeliest first.
func (p *peering) candidates(ctx context.Context, address string, ip int) (out []netip.Addr, err error) {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}

	out = addressesOf(ctx, name, ip)
	for _, a := range p.about.Addresses {
		if versionOf(a) == ip && usable(a) && a.IsLoopback() == p.visit.Remote.Addr().IsLoopback() {
			out = append(out, a)
		}
	}

	if len(out) == 0 {
		return nil, errors.New("the peer has no address for it")
	}

	return out, nil
}

// elsewhere contains addresses that are reserved for documentation (RFC 5737, RFC 3849). The route to them is
// the default route.
var elsewhere = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// OwnAddresses returns the addresses of this machine. The source addresses for packets to the Internet come
// first, and the addresses of the loopback device come last.
func OwnAddresses() ([]netip.Addr, error) {
	all, err := kernel.OwnAddresses()
	var out, loop []netip.Addr
	for _, far := range elsewhere {
		if a, err := sourceTo(far); err == nil && usable(a) {
			out = append(out, a)
		}
	}

	for _, a := range all {
		switch {
		case !usable(a) || slices.Contains(out, a):
		case a.IsLoopback():
			loop = append(loop, a)
		default:
			out = append(out, a)
		}
	}

	return append(out, loop...), err
}
