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
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/ceiling"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/frames"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/responsiveness"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/shortflow"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
)

// peerSessions is the maximum number of concurrent sessions of a peer's controller.
const peerSessions = 16

// Peer lets this machine be the far node of another user's lab. It sends and receives traffic, echoes
// packets, and reports its clock, environment and load. It runs no commands, writes no files, changes no
// settings and creates no tunnels.
type Peer struct {
	Ports     [2]int // first and last data port
	Version   string // version of this program
	KernelLog bool   // reports may include lines of the kernel log
	// Bind lists the local addresses for data sockets. If Bind is empty, all addresses are used.
	Bind []netip.Addr
}

// Serve serves one controller until it disconnects.
func (p Peer) Serve(ctx context.Context, v *pair.Visit) error {
	own, err := lab.OwnAddresses()
	if err != nil {
		v.Close()
		return err
	}

	local := v.Local.Addr()
	remote := v.Remote.Addr()
	own = slices.DeleteFunc(own, func(a netip.Addr) bool {
		return len(p.Bind) > 0 && !slices.Contains(p.Bind, a)
	})
	g := guard{ports: p.Ports, bind: p.Bind, remote: remote, log: p.KernelLog}
	all := agent.Handlers(agent.Role, node.Parts())
	about := lab.About{
		Local:     local,
		Remote:    remote,
		Addresses: own,
		Ports:     p.Ports,
		Version:   p.Version,
		Boot:      host.BootID(),
	}
	served := map[string]host.Handler{
		agent.VerbEcho:               host.Vetted(all[agent.VerbEcho], checked(g.echo)),
		agent.VerbReach:              host.Vetted(all[agent.VerbReach], checked(g.reach)),
		watch.Verb:                   host.Vetted(all[watch.Verb], checked(g.watch)),
		probe.VerbEnvironment:        all[probe.VerbEnvironment],
		lab.VerbAbout:                func(_ context.Context, s host.Session) error { return s.Send(about) },
		lab.VerbCeilings:             host.Answering(ceilings),
		trafficVerb(iperf3.Engine{}): refused("starts no other program"),
		trafficVerb(frames.XDP{}):    refused("puts no program into its kernel"),
	}
	for _, e := range []interface{ Name() string }{stream.Native{}, responsiveness.Engine{},
		shortflow.Flows{}, shortflow.Requests{}, latency.Echo{}, latency.ICMP{}} {
		served[trafficVerb(e)] = host.Vetted(all[trafficVerb(e)], checked(g.traffic))
	}

	return host.Serve(ctx, v, host.AtOnce(peerSessions, served))
}

func trafficVerb(e interface{ Name() string }) string { return host.Verb(host.FamilyTraffic, e.Name()) }

// refused returns a handler that rejects requests for an engine and gives why as the reason.
func refused(why string) host.Handler {
	return func(context.Context, host.Session) error {
		return fmt.Errorf("%w: a peer %s", host.ErrUnsupported, why)
	}
}

// guard checks requests to a peer. A permitted request opens data ports only to holders of the run's key, and
// sends packets only to the controller's address.
type guard struct {
	ports  [2]int
	bind   []netip.Addr // local addresses to listen on; empty means all
	remote netip.Addr
	log    bool // the kernel log may be read
}

var errBeyond = errors.New("not what a peer does")

// listen checks the address and port on which a program will listen. It replaces an unspecified address
// with the bound address.
func (g guard) listen(at *netip.Addr, port int) error {
	for _, b := range g.bind {
		if at.IsUnspecified() && at.Is4() == b.Is4() {
			*at = b
		}
	}

	switch {
	case port < g.ports[0] || port > g.ports[1]:
		return fmt.Errorf("%w: port %d is not one of its data ports", errBeyond, port)
	case len(g.bind) > 0 && !slices.Contains(g.bind, *at):
		return fmt.Errorf("%w: it is bound to %s, not to %s", errBeyond, strings.Trim(fmt.Sprint(g.bind),
			"[]"), *at)
	}
	return nil
}

// keySize is the minimum length of the tag in a request. Only holders of the run's key can compute a tag.
const keySize = 64

// traffic checks a request for traffic. A listener accepts datagrams only from the controller's address. For
// the other IP version, this address is unknown, so the listener then accepts datagrams from any address that
// returns its cookie.
func (g guard) traffic(q *traffic.Request) error {
	if err := congestion(q.Load.Congestion); err != nil {
		return err
	}

	switch {
	case q.Check:
		return nil
	case len(q.CPUs) > 0 || len(q.Beside) > 0 || q.Survey || q.Neighbor != "":
		return fmt.Errorf("%w: chosen cores, several ways, or frames of its own", errBeyond)
	case len(q.Load.Tag) < keySize:
		return fmt.Errorf("%w: traffic without the run's key", errBeyond)
	case q.Listen:
		q.From = g.source(q.Addr)
		return g.listen(&q.Addr, q.Port)
	case q.Peer != g.remote:
		return fmt.Errorf("%w: opening connections to others than its controller", errBeyond)
	}
	return nil
}

// source returns the only address from which the peer accepts datagrams at its address at. The result is
// invalid if the controller uses the other IP version.
func (g guard) source(at netip.Addr) netip.Addr {
	if at.Unmap().Is4() != g.remote.Unmap().Is4() {
		return netip.Addr{}
	}
	return g.remote
}

// congestion rejects congestion control algorithms for which the kernel would have to load a module.
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

// checked returns a function that parses a request and calls check, which may modify the request.
func checked[T any](check func(*T) error) func(first json.RawMessage) (any, error) {
	return func(first json.RawMessage) (any, error) {
		var asked T
		if err := json.Unmarshal(first, &asked); err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}

		err := check(&asked)
		return asked, err
	}
}

func (g guard) echo(at *agent.EchoAt) error {
	if len(at.Tag) < keySize {
		return fmt.Errorf("%w: an echo without the run's key", errBeyond)
	}

	at.From = g.source(at.Addr)
	return g.listen(&at.Addr, at.Port)
}

func (g guard) reach(r *agent.Reach) error {
	if r.To != g.remote {
		return fmt.Errorf("%w: sending to others than its controller", errBeyond)
	}
	return nil
}

// watch restricts a request for telemetry. Tracepoints are disabled, and the kernel log may be read only if
// the peer permits this. The peer's own process is the only one that counts as part of the lab.
func (g guard) watch(r *watch.Request) error {
	r.Own = []int{os.Getpid()}
	r.Trace = false
	r.NoLog = !g.log
	return nil
}

// ceilings measures the maximum rates of this machine alone.
func ceilings(ctx context.Context, kinds []ceiling.Kind) ([]record.Ceiling, error) {
	a := host.Inside(ctx, agent.Handlers(agent.Role, node.Parts()))
	found, err := ceiling.Loopback(ctx, a, kinds)
	return found, errors.Join(err, a.Close())
}
