package lab

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/pair"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Pair describes a lab of two machines with whatever lies between them: this one is the near node, the one
// on which chokepoint peer waits the far one. The topology's router stands for what lies between, which
// nobody reaches. Nothing is changed on any.
type Pair struct {
	ID      string
	Address string // "host:port" of the peer
	Code    host.Secret
	Parts   Parts
}

// ThirdParty describes the lab of this machine and somebody else's, on which iperf3 -s waits and nothing of
// ours runs.
type ThirdParty struct {
	ID      string
	Address string // "host:port" of the server
	Parts   Parts
}

// VerbAbout is answered by a peer, with About.
const VerbAbout = "pair/about"

// VerbCeilings is answered by a peer with what it can do alone of the kinds of traffic that it is given, as
// a list of record.Ceiling.
const VerbCeilings = "pair/ceilings"

// About is what a peer says about itself and the connection.
type About struct {
	Local     netip.Addr   `json:"local"`  // where it was reached
	Remote    netip.Addr   `json:"remote"` // from where
	Addresses []netip.Addr `json:"addresses"`
	Ports     [2]int       `json:"ports"` // first and last of its data ports
	Version   string       `json:"version"`
}

// LeastDataPorts is how many a peer must have.
const LeastDataPorts = 3

const (
	pairFixed = "in lab pair nothing is changed on the two machines or between them: set it there, and " +
		"compare two runs"
	pairBetween = "nothing of chokepoint runs on it; what chokepoint-agent probe sees there, chokepoint " +
		"import adds"
)

// untouched is a node of such a lab: a machine of its own, left as it is. What crosses a real wire are real
// packets.
func untouched(name, clock string) *Node {
	return &Node{Name: name, Given: []record.Setting{{Knob: "offload", Value: "wire"}},
		Facts: record.NodeFacts{Fixed: pairFixed, OwnKernel: true, CPUs: record.CPUsOwn, Clock: clock}}
}

// newPair returns such a lab, whose far node is met by far.
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
			n.Agent, err = ownAgent()
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

// Up meets the peer. On error nothing is left.
func (o Pair) Up(ctx context.Context) (*Lab, error) {
	stop := func() {}
	l, err := newPair(o.ID, o.Parts,
		"two machines and what lies between them, which is not changed; packets "+
			"are those of the machines' own network cards",
		func(ctx context.Context, l *Lab, far *Node) (err error) {
			stop()
			l.network, stop, err = o.meet(ctx, far)
			return err
		})
	if err != nil {
		return nil, err
	}
	l.down = func(context.Context) error { stop(); return nil }
	_, err = l.Node(ctx, l.Topology.Far)
	return l, err
}

// meet connects to the peer, also again after the connection was lost. stop ends the exchange that keeps
// the connection alive.
func (o Pair) meet(ctx context.Context, far *Node) (_ Network, stop func(), err error) {
	stop = func() {}
	v, err := pair.Dial(ctx, o.Address, o.Code)
	if err != nil {
		return nil, stop, err
	}
	p := &peering{meetings: newMeetings(), visit: v}
	far.Agent = host.Connect(v)
	if err := far.Agent.Invoke(ctx, VerbAbout, struct{}{}, &p.about); err != nil {
		far.Agent.Close()
		return nil, stop, fmt.Errorf("ask the peer at %s about itself: %w", o.Address, err)
	}
	far.Version = p.about.Version
	for _, ip := range []int{4, 6} {
		ends, err := p.endsOf(ctx, o.Address, ip)
		p.add(ip, ends, err)
	}
	alive, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var exchange sync.WaitGroup
	exchange.Go(func() { pair.Alive(alive, far.Agent) })
	return p, func() { cancel(); exchange.Wait() }, nil
}

// Up finds the third party's addresses. Nobody is asked yet.
func (o ThirdParty) Up(ctx context.Context) (*Lab, error) {
	p := &iperf3Server{meetings: newMeetings()}
	name, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, err
	}
	if p.port, err = strconv.Atoi(port); err != nil {
		return nil, fmt.Errorf("port of %s: %w", o.Address, err)
	}
	for _, ip := range []int{4, 6} {
		ends, err := endsTowards(ctx, name, ip)
		p.add(ip, ends, err)
	}
	if len(p.ends) == 0 {
		return nil, fmt.Errorf("find %s: %s", name, p.why[4])
	}
	l, err := newPair(o.ID, o.Parts,
		"this machine, somebody else's iperf3 server, and what lies between them: "+
			"latency, the path's MTU and routers, exact counts of packets, and all that the far machine "+
			"could tell "+
			"are missing; chokepoint peer there has them",
		func(_ context.Context, _ *Lab, far *Node) error {
			far.Serves = "iperf3"
			far.Facts.Unreachable, far.Facts.Clock = "it is somebody else's iperf3 server", ""
			return nil
		})
	if err == nil {
		l.network = p
	}
	return l, err
}

func ownAgent() (host.Agent, error) {
	child, err := host.Spawn{Args: []string{agent.Role}}.Start()
	if err != nil {
		return nil, err
	}
	return host.Connect(child), nil
}

// meetings are where both ends are, by version of IP, and why there is no path where there is none.
type meetings struct {
	ends map[int][2]Meeting
	why  map[int]string
}

func newMeetings() meetings { return meetings{map[int][2]Meeting{}, map[int]string{}} }

func (m meetings) add(ip int, ends [2]Meeting, err error) {
	if err != nil {
		m.why[ip] = err.Error()
		return
	}
	m.ends[ip] = ends
}

func (m meetings) End(end, ip int) (Meeting, error) {
	ends, ok := m.ends[ip]
	if !ok {
		return Meeting{}, fmt.Errorf("no path over IPv%d: %s", ip, m.why[ip])
	}
	return ends[end], nil
}

// peering is the network towards a peer.
type peering struct {
	meetings
	visit *pair.Visit
	about About
}

// FarMayOpen: a peer opens connections only to where its controller came from.
func (p *peering) FarMayOpen(ip int) bool { return versionOf(p.visit.Remote.Addr()) == ip }

func (p *peering) DataPorts() DataPorts {
	first := p.about.Ports[0]
	return DataPorts{first, first + 1, first + 2}
}

// Tag can be told only by those who have the run's key.
func (p *peering) Tag(name string) string {
	var sum []byte
	_ = p.visit.Data.Use(func(key []byte) error { // has no error of its own
		m := hmac.New(sha256.New, key)
		m.Write([]byte(name))
		sum = m.Sum(nil)
		return nil
	})
	return hex.EncodeToString(sum)
}

// iperf3Server is the network towards a third party's.
type iperf3Server struct {
	meetings
	port int
}

func (*iperf3Server) FarMayOpen(int) bool    { return false }
func (s *iperf3Server) DataPorts() DataPorts { return DataPorts{Load: s.port} }
func (*iperf3Server) Tag(name string) string { return name }

// Peers lends the one lab of two machines that Up makes.
type Peers struct {
	Up func(ctx context.Context) (*Lab, error)

	lab *Lab
}

// For returns the lab, meeting the peer at first use.
func (o *Peers) For(ctx context.Context, topology string) (_ *Lab, err error) {
	if topology != "forward" {
		return nil, &NoTopology{topology,
			"lab pair has two machines with a router between them, which is topology forward"}
	}
	if o.lab == nil {
		o.lab, err = o.Up(ctx)
	}
	return o.lab, err
}

// Close ends the connection to the peer.
func (o *Peers) Close(ctx context.Context) error {
	if o.lab == nil {
		return nil
	}
	err := o.lab.Close(ctx)
	o.lab = nil
	return err
}
