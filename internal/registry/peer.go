package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/pair"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/ceiling"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/frames"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/responsiveness"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/shortflow"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
)

// peerSessions is how many things a peer does for its controller at once.
const peerSessions = 16

// Peer is this machine as the far node of somebody else's lab: it sends and receives traffic, echoes, tells
// its clock, and shows what it is and how busy. It runs no command, writes no file, changes no setting and
// lays no tunnel.
type Peer struct {
	Ports   [2]int // first and last data port
	Version string // which program this is
}

// Serve serves one controller until it leaves.
func (p Peer) Serve(ctx context.Context, v *pair.Visit) error {
	own, err := lab.OwnAddresses(ctx)
	if err != nil {
		v.Close()
		return err
	}
	local, remote := v.Local.Addr(), v.Remote.Addr()
	g := guard{ports: p.Ports, remote: remote}
	all := agent.Handlers(agent.Role, node.Parts())
	about := lab.About{Local: local, Remote: remote, Addresses: own, Ports: p.Ports, Version: p.Version}
	served := map[string]host.Handler{
		agent.VerbEcho:               host.Vetted(all[agent.VerbEcho], judged(g.echo)),
		agent.VerbReach:              host.Vetted(all[agent.VerbReach], judged(g.reach)),
		watch.Verb:                   host.Vetted(all[watch.Verb], judged(ownWatch)),
		probe.VerbEnvironment:        all[probe.VerbEnvironment],
		lab.VerbAbout:                func(_ context.Context, s host.Session) error { return s.Send(about) },
		lab.VerbCeilings:             ceilings,
		trafficVerb(iperf3.Engine{}): refused("starts no other program"),
		trafficVerb(frames.XDP{}):    refused("puts no program into its kernel"),
	}
	for _, e := range []interface{ Name() string }{stream.Native{}, responsiveness.Engine{},
		shortflow.Flows{}, shortflow.Requests{}, latency.Echo{}, latency.ICMP{}} {
		served[trafficVerb(e)] = host.Vetted(all[trafficVerb(e)], g.traffic)
	}
	return host.Serve(ctx, v, host.AtOnce(peerSessions, served))
}

func trafficVerb(e interface{ Name() string }) string { return host.Verb(host.FamilyTraffic, e.Name()) }

// refused is the answer of an engine that a peer does without.
func refused(why string) host.Handler {
	return func(context.Context, host.Session) error {
		return fmt.Errorf("%w: a peer %s", host.ErrUnsupported, why)
	}
}

// guard judges what a peer is asked for. What it lets pass opens the peer's data ports to those who have
// the run's key, or sends to where the controller came from.
type guard struct {
	ports  [2]int
	remote netip.Addr
}

var errBeyond = errors.New("not what a peer does")

func (g guard) within(port int) error {
	if port < g.ports[0] || port > g.ports[1] {
		return fmt.Errorf("%w: port %d is not one of its data ports", errBeyond, port)
	}
	return nil
}

// wish is what is judged of a request for traffic.
type wish struct {
	Check  bool              `json:"check"`
	Listen bool              `json:"listen"`
	Peer   netip.Addr        `json:"peer"`
	Beside []json.RawMessage `json:"beside"`
	Port   int               `json:"port"`
	CPUs   []int             `json:"cpus"`
	Load   struct {
		Congestion string `json:"congestion"`
		Tag        string `json:"tag"`
	} `json:"load"`
}

// keySize is the length of a tag that only holders of the run's key can make.
const keySize = 64

func (g guard) traffic(first json.RawMessage) (any, error) {
	var w wish
	if err := json.Unmarshal(first, &w); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	if err := congestion(w.Load.Congestion); err != nil {
		return nil, err
	}
	switch {
	case w.Check:
		return first, nil
	case len(w.CPUs) > 0 || len(w.Beside) > 0:
		return nil, fmt.Errorf("%w: chosen cores, or several ways", errBeyond)
	case len(w.Load.Tag) < keySize:
		return nil, fmt.Errorf("%w: traffic without the run's key", errBeyond)
	case w.Listen:
		return first, g.within(w.Port)
	case w.Peer != g.remote:
		return nil, fmt.Errorf("%w: opening connections to others than its controller", errBeyond)
	}
	return first, nil
}

// congestion refuses controls, of which there may be several, that the kernel would load a module for.
func congestion(name string) error {
	if name == "" {
		return nil
	}
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		return fmt.Errorf("congestion control %s: %w: %w", name, host.ErrUnsupported, err)
	}
	ready := strings.Fields(string(b))
	between := func(r rune) bool { return strings.ContainsRune("+, ", r) }
	for _, one := range strings.FieldsFunc(name, between) {
		if !slices.Contains(ready, one) {
			return fmt.Errorf("congestion control %s: %w: the kernel has not got it ready", one,
				host.ErrUnsupported)
		}
	}
	return nil
}

// judged vets a request by what it asks for, which judge may change.
func judged[T any](judge func(*T) error) func(first json.RawMessage) (any, error) {
	return func(first json.RawMessage) (any, error) {
		var asked T
		if err := json.Unmarshal(first, &asked); err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
		err := judge(&asked)
		return asked, err
	}
}

func (g guard) echo(at *agent.EchoAt) error {
	if len(at.Tag) < keySize {
		return fmt.Errorf("%w: an echo without the run's key", errBeyond)
	}
	return g.within(at.Port)
}

func (g guard) reach(r *agent.Reach) error {
	if r.To != g.remote {
		return fmt.Errorf("%w: sending to others than its controller", errBeyond)
	}
	return nil
}

// ownWatch lets the peer's own processes be the lab's, and no tracepoint be switched.
func ownWatch(r *watch.Request) error {
	r.Own, r.Trace = []int{os.Getpid()}, false
	return nil
}

// ceilings measures what this machine can do alone.
func ceilings(ctx context.Context, s host.Session) error {
	var kinds []ceiling.Kind
	if err := s.Recv(&kinds); err != nil {
		return err
	}
	a := host.Inside(ctx, agent.Handlers(agent.Role, node.Parts()))
	found, err := ceiling.Loopback(ctx, a, kinds)
	if err = errors.Join(err, a.Close()); err != nil {
		return err
	}
	return s.Send(found)
}
