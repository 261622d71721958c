package lab

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/pair"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// KindPair is the lab of two machines with whatever lies between them. The topology's router stands for
// that: nobody reaches or drives it.
const KindPair = "pair"

// Pair describes such a lab: this machine is the near node, the one on which chokepoint peer waits the far
// one. Nothing is changed on either.
type Pair struct {
	ID      string
	Address string // "host:port" of the peer
	Code    host.Secret
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

// DataPorts are the ports of the listening ends, at either machine.
type DataPorts struct{ Load, Echo, Check int }

// LeastDataPorts is how many a peer must have.
const LeastDataPorts = 3

// pairing is what a lab of two machines knows of their meeting.
type pairing struct {
	visit *pair.Visit
	about About
	ends  map[int][2]Meeting // by version of IP, near and far; where there is a way at all
	why   map[int]string     // why there is none
	stop  func()             // ends the talk that keeps the connection alive
	port  int                // of a stranger's server, whose machine has nothing of ours; else 0
}

// Meeting is where one end of a path is.
type Meeting struct {
	Addr   netip.Addr // its own
	Target netip.Addr // where the other end finds it
}

// Up meets the peer. On error nothing is left.
func (o Pair) Up(ctx context.Context) (*Lab, error) {
	t, err := TopologyNamed("forward")
	if err != nil {
		return nil, err
	}
	l := &Lab{ID: o.ID, Kind: KindPair, Topology: t, parts: o.Parts, plan: addressPlan{t},
		nodes: map[string]*Node{}, tunnels: map[string]*laid{}, pair: &pairing{stop: func() {}}}
	l.Note = "two machines and what lies between them, which is not changed; packets are those of the " +
		"machines' " +
		"own network cards"
	l.dial = func(ctx context.Context, name string) (*Node, error) {
		switch name {
		case t.Near:
			return ownNode(name)
		case t.Far:
			return l.meet(ctx, o)
		}
		return &Node{Name: name}, nil
	}
	l.down = func(context.Context) error { l.pair.stop(); return nil }
	if _, err := l.Node(ctx, t.Far); err != nil {
		return nil, err
	}
	return l, nil
}

// meet connects to the peer, also again after the connection was lost.
func (l *Lab) meet(ctx context.Context, o Pair) (*Node, error) {
	l.pair.stop()
	v, err := pair.Dial(ctx, o.Address, o.Code)
	if err != nil {
		return nil, err
	}
	a := host.Connect(v)
	var about About
	if err := a.Invoke(ctx, VerbAbout, struct{}{}, &about); err != nil {
		a.Close()
		return nil, fmt.Errorf("ask the peer at %s about itself: %w", o.Address, err)
	}
	p := &pairing{visit: v, about: about, ends: map[int][2]Meeting{}, why: map[int]string{}}
	for _, ip := range []int{4, 6} {
		ends, err := p.endsOf(ctx, o.Address, ip)
		if err != nil {
			p.why[ip] = err.Error()
			continue
		}
		p.ends[ip] = ends
	}
	alive, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var talk sync.WaitGroup
	talk.Go(func() { pair.Alive(alive, a) })
	p.stop = func() { cancel(); talk.Wait() }
	l.pair = p
	return &Node{Name: l.Topology.Far, Agent: a}, nil
}

// Stranger is the lab of this machine and somebody else's, on which iperf3 -s waits and nothing of ours
// runs.
type Stranger struct {
	ID      string
	Address string // "host:port" of the server
	Parts   Parts
}

// Up finds the stranger's addresses. Nobody is asked yet.
func (o Stranger) Up(ctx context.Context) (*Lab, error) {
	t, err := TopologyNamed("forward")
	if err != nil {
		return nil, err
	}
	p := &pairing{ends: map[int][2]Meeting{}, why: map[int]string{}, stop: func() {}}
	name, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, err
	}
	if p.port, err = strconv.Atoi(port); err != nil {
		return nil, fmt.Errorf("port of %s: %w", o.Address, err)
	}
	for _, ip := range []int{4, 6} {
		if p.ends[ip], err = strangerAt(ctx, name, ip); err != nil {
			delete(p.ends, ip)
			p.why[ip] = err.Error()
		}
	}
	if len(p.ends) == 0 {
		return nil, fmt.Errorf("find %s: %s", name, p.why[4])
	}
	l := &Lab{ID: o.ID, Kind: KindPair, Topology: t, parts: o.Parts, plan: addressPlan{t},
		nodes: map[string]*Node{}, tunnels: map[string]*laid{}, pair: p}
	l.Note = "this machine, somebody else's iperf3 server, and what lies between them: latency, the path's " +
		"MTU and routers, " +
		"exact counts of packets, and all that the far machine could tell are missing; chokepoint peer " +
		"there has them"
	l.dial = func(_ context.Context, name string) (*Node, error) {
		if name != t.Near {
			return &Node{Name: name}, nil
		}
		return ownNode(name)
	}
	return l, nil
}

// Stranger reports whether nothing of ours runs at the far end.
func (l *Lab) Stranger() bool { return l.pair != nil && l.pair.port > 0 }

func ownNode(name string) (*Node, error) {
	child, err := host.Spawn{Args: []string{agent.Role}}.Start()
	if err != nil {
		return nil, err
	}
	return &Node{Name: name, Agent: host.Connect(child)}, nil
}

// TwoMachines reports whether the ends are machines of their own, with something between that nobody knows.
func (l *Lab) TwoMachines() bool { return l.pair != nil }

// WholeMachine reports whether a node is a machine of its own on which other things may run too.
func (l *Lab) WholeMachine(node string) bool {
	return l.pair != nil && (node == l.Topology.Near || node == l.Topology.Far && !l.Stranger())
}

// End is where the near (0) or far (1) node is on the path of a slot.
func (l *Lab) End(slot, end, ip int) (Meeting, error) {
	if l.pair == nil {
		a := l.Address(slot, end, ip)
		return Meeting{a, a}, nil
	}
	ends, ok := l.pair.ends[ip]
	if !ok {
		return Meeting{}, fmt.Errorf("no way over IPv%d: %s", ip, l.pair.why[ip])
	}
	return ends[end], nil
}

// FarMayOpen reports whether the far node may open connections to the near one: a peer does so only to
// where its controller came from.
func (l *Lab) FarMayOpen(ip int) bool {
	return l.pair == nil || !l.Stranger() && versionOf(l.pair.visit.Remote.Addr()) == ip
}

// PeerVersion is which chokepoint the peer is; ok is false for a lab without one.
func (l *Lab) PeerVersion() (version string, ok bool) {
	if l.pair == nil || l.Stranger() {
		return "", false
	}
	return l.pair.about.Version, true
}

// DataPorts are those that the peer has; ok is false for a lab whose network is nobody else's.
func (l *Lab) DataPorts() (p DataPorts, ok bool) {
	switch {
	case l.pair == nil:
		return DataPorts{}, false
	case l.Stranger():
		return DataPorts{Load: l.pair.port}, true
	}
	first := l.pair.about.Ports[0]
	return DataPorts{first, first + 1, first + 2}, true
}

// Tag is what tells the packets of a trial from others. Where others may send packets too it can be told
// only by those who have the run's key, and must not be shown.
func (l *Lab) Tag(name string) string {
	if l.pair == nil || l.Stranger() {
		return name
	}
	var sum []byte
	_ = l.pair.visit.Data.Use(func(key []byte) error { // has no error of its own
		m := hmac.New(sha256.New, key)
		m.Write([]byte(name))
		sum = m.Sum(nil)
		return nil
	})
	return hex.EncodeToString(sum)
}

const notDriven = "in lab pair nothing is changed on the two machines or between them: set it there, and " +
	"compare two runs"

// given reports whether a setting holds in a lab of two machines as it is: what crosses a real wire are
// real packets.
func (l *Lab) given(s record.Setting) bool {
	return l.pair != nil && s.Knob == "offload" && s.Value == "wire"
}

// settable leaves out the settings that hold anyway.
func (l *Lab) settable(want []record.Setting) []record.Setting {
	return slices.DeleteFunc(slices.Clone(want), l.given)
}

func (l *Lab) checkGiven(s record.Setting) check.Answer {
	if l.given(s) {
		return check.OK()
	}
	return check.Not(notDriven)
}

// Peers lends the one lab of two machines that Up makes.
type Peers struct {
	Up func(ctx context.Context) (*Lab, error)

	lab *Lab
}

// For returns the lab, meeting the peer at first use.
func (o *Peers) For(ctx context.Context, topology string) (*Lab, error) {
	if topology != "forward" {
		return nil, &NoTopology{topology,
			"lab pair has two machines with a router between them, which is topology forward"}
	}
	if o.lab == nil {
		l, err := o.Up(ctx)
		if err != nil {
			return nil, err
		}
		o.lab = l
	}
	return o.lab, nil
}

// Close takes leave of the peer.
func (o *Peers) Close(ctx context.Context) error {
	if o.lab == nil {
		return nil
	}
	err := o.lab.Close(ctx)
	o.lab = nil
	return err
}
