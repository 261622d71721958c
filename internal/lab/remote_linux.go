package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/ssh"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Remote describes a lab of real machines, which are reached over ssh or are this machine itself. It consists
// of a client, a server, and a router or an unknown path between them. Agents are installed on the machines
// and removed without leaving files behind.
type Remote struct {
	ID       string
	Machines record.Machines
	Dir      string           // runtime directory that contains all labs
	Journal  *journal.Journal // if nil, changes are not journalled
	Parts    Parts
	Program  Program
}

// remotePort is the default value of the first of three data ports.
const remotePort = 20100

const remoteNote = "real machines, reached over ssh; what is set on them is put back"

// remote is the state of a Remote that is up.
type remote struct {
	Remote
	regularly func(func(context.Context) error)
	held      *os.File
	config    string                   // path of the copy of the ssh configuration
	sysctls   knob.Permission          // kernel settings that may be changed, on all machines
	tag       func(name string) string // see tagger
	conns     map[string]io.Closer
	stop      func() // stops the functions that are called regularly
	keepers   sync.WaitGroup
	provided  *provided // if nil, the server is not the provider of the router
}

// machine returns the machine of a node.
func (o *Remote) machine(node string) record.Machine {
	return map[string]record.Machine{"client": o.Machines.Client, "router": o.Machines.Router,
		"server": o.Machines.Server}[node]
}

func (o *Remote) firstPort() int { return cmp.Or(o.Machines.Port, remotePort) }

func (o *Remote) dir() string { return filepath.Join(o.Dir, o.ID) }

// Up connects to the machines and discovers the path between them. If only a router is given, Up discovers
// the ports of the router. After an error, no agent or file remains.
func (o Remote) Up(ctx context.Context) (_ *Lab, err error) {
	l, r, err := o.begin()
	if err != nil {
		return nil, err
	}

	seq := 0
	l.down = func(ctx context.Context) error {
		err := r.down(ctx)
		// If something remains to be undone, keep the entry, because restore needs the locations of the
		// machines.
		if seq > 0 && len(l.settings) == 0 && err == nil {
			err = o.Journal.Done(seq)
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close(context.WithoutCancel(ctx)))
		}
	}()
	// Write the journal entry before changing anything on the machines.
	seq, err = o.Journal.Add(journal.Entry{Kind: journal.KindMachines, Lab: o.ID, Machines: &o.Machines})
	if err != nil {
		return nil, err
	}

	for _, n := range l.Topology.Nodes {
		if _, err := l.Node(ctx, n.Name); err != nil {
			return nil, err
		}
	}

	l.again = func(ctx context.Context) error {
		if err := r.awaitRouter(ctx, l); err != nil {
			return err
		}
		return r.survey(ctx, l)
	}
	if err := l.each(ctx, func(n *Node) error { return n.free(ctx) }); err != nil {
		return nil, err
	}

	if err := l.again(ctx); err != nil {
		return nil, err
	}

	return l, nil
}

// free returns an error if another controller has changed settings on the node. own lists the names of our
// guards.
func (n *Node) free(ctx context.Context, own ...string) error {
	by, ok := n.Driver.(driver.Guarded)
	switch {
	case n.HasAgent():
		return n.Agent.Invoke(ctx, agent.VerbFree, struct{}{}, nil)
	case n.HasDriver() && ok:
		return by.Free(ctx, n.Host, own...)
	}
	return nil
}

// Reach connects only to the router, in order to examine it. After an error, no agent or file remains.
func (o Remote) Reach(ctx context.Context) (*Lab, error) {
	l, _, err := o.begin()
	if err != nil {
		return nil, err
	}

	if _, err := l.Node(ctx, l.Topology.Routers[0]); err != nil {
		return nil, errors.Join(err, l.Close(context.WithoutCancel(ctx)))
	}

	l.Note = "a machine that ssh reaches, as it is"
	if o.Machines.Router.At == record.LocalMachine {
		l.Note = "this machine, as it is"
	}

	return l, nil
}

// begin returns a lab that is not connected to any machine yet.
func (o Remote) begin() (*Lab, *remote, error) {
	t, err := TopologyNamed("forward")
	if err != nil {
		return nil, nil, err
	}

	r := &remote{Remote: o, conns: map[string]io.Closer{}, tag: tagger(host.NewSecret(32))}
	if o.Machines.AllowSysctl != nil {
		if r.sysctls, err = knob.Permit(*o.Machines.AllowSysctl); err != nil {
			return nil, nil, fmt.Errorf("allow_sysctl: %w", err)
		}
	}

	if r.held, err = makeDir(o.Dir, o.dir()); err != nil {
		return nil, nil, fmt.Errorf("create lab directory: %w", err)
	}

	if r.config, err = ssh.CopyConfig(o.Machines.SSHConfig, o.dir()); err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(o.dir()), r.held.Close())
	}

	alive, stop := context.WithCancel(context.Background())
	r.stop = stop
	l := newLab(o.ID, record.LabSSH, t, o.Parts, o.Journal)
	l.Note, l.dir, l.dial, l.down, l.leave = remoteNote, o.dir(), r.dial, r.down, r.endProviding
	l.regularly = func(do func(context.Context) error) {
		r.keepers.Go(func() {
			for host.Pause(alive, agent.Silence/4) == nil && do(alive) == nil {
			}
		})
	}
	r.regularly = l.regularly
	return l, r, nil
}

// dial connects to the machine of a node (see meet). On the server, it also starts the service that makes the
// server the provider of the router, if requested.
func (r *remote) dial(ctx context.Context, node string) (n *Node, err error) {
	if n, err = r.meet(ctx, node); err == nil && node == "server" && r.Machines.Server.ISP != "" {
		if err = r.provide(ctx, n); err != nil {
			n.close()
		}
	}
	return n, err
}

func (r *remote) meet(ctx context.Context, node string) (n *Node, err error) {
	n = untouched(node, record.ClockRelated)
	n.Facts.Fixed = ""
	n.Sysctls = r.sysctls
	m := r.machine(node)
	switch m.At {
	case "":
		n.Facts.Unreachable = pairBetween
		n.Facts.Fixed = "nothing reaches it: name it with --" + node
		n.Facts.Clock = ""
		return n, nil
	case record.LocalMachine:
		n.Facts.Clock, n.Rights = record.ClockSame, rightsOf(os.Geteuid() == 0, false)
		n.Agent, err = ownAgent(r.sysctls)
		return n, err
	}

	old := r.conns[node]
	if old != nil { // the connection or the agent was lost
		old.Close()
		delete(r.conns, node)
	}

	d, err := ssh.Parse(m.At)
	if err != nil {
		return nil, err
	}

	c, err := ssh.Dial(ctx, d, ssh.Options{
		Dir:       r.dir(),
		Name:      node,
		Config:    r.Machines.SSHConfig,
		Copy:      r.config,
		Identity:  m.Identity,
		Jump:      m.Jump,
		AcceptNew: r.Machines.AcceptNew,
	})
	if err != nil {
		return nil, err
	}

	if c.System != ssh.RouterOS {
		n.Rights = rightsOf(c.Root, c.Sudo)
	}

	by, agentless := driver.Named(m.Driver)
	if !agentless {
		n.Agent, err = r.agent(ctx, node, c)
		// Use a driver if the machine is a router on which an agent cannot run.
		if agentless = node == "router" && errors.Is(err, host.ErrUnsupported); agentless {
			n.Unagented = err.Error()
			err = nil
		}
	}

	if agentless {
		n.Host = c.Shell()
		n.Facts.Clock = ""
		if c.System == ssh.RouterOS {
			n.Host = c.Commands()
		}

		n.Driver, err = suited(ctx, n.Host, by)
		n.Driver = driver.Permit(n.Driver, r.sysctls)
	}

	if err != nil {
		return nil, errors.Join(err, c.Close())
	}

	r.conns[node] = c
	if n.HasAgent() {
		r.regularly(func(ctx context.Context) error { return host.Answers(ctx, n.Agent) })
	}

	return n, nil
}

// suited returns the driver that the lab file names. If it names none, suited returns the first driver that
// supports the machine.
func suited(ctx context.Context, h host.Host, named driver.Driver) (driver.Driver, error) {
	candidates := driver.All()
	if named != nil {
		candidates = []driver.Driver{named}
	}

	var why error
	for _, by := range candidates {
		a := by.Check(ctx, h)
		if a.State == check.Yes {
			return by, nil
		}

		why = errors.Join(why, check.WithHint(fmt.Errorf("drive it by driver %s: %s", by.Name(), a.Reason),
			a.Hint))
	}

	return nil, why
}

func (r *remote) agent(ctx context.Context, node string, c *ssh.Connection) (host.Agent, error) {
	if node == "router" && c.System != ssh.Linux {
		return nil, fmt.Errorf("%w: the agent of a machine with %s can be an end of the path, but no router",
			host.ErrUnsupported, c.System)
	}

	arch, err := c.AgentArch(ctx)
	if err != nil {
		return nil, err
	}

	if !slices.Contains(vm.AgentArches(), arch) {
		return nil, fmt.Errorf("%w: no agent is made for %s", host.ErrUnsupported, arch)
	}

	program, err := r.Program(ctx, arch)
	if err != nil {
		return nil, err
	}

	return c.StartAgent(ctx, program, agent.Arguments(agent.MachineRole, r.sysctls)...)
}

// down closes all connections. This makes the agents exit.
func (r *remote) down(context.Context) error {
	r.stop()
	r.keepers.Wait()
	var err error
	for _, c := range r.conns {
		err = errors.Join(err, c.Close())
	}

	return errors.Join(err, os.RemoveAll(r.dir()), r.held.Close())
}

// survey discovers the ends of the path and the devices on the path.
func (r *remote) survey(ctx context.Context, l *Lab) error {
	first := r.firstPort()
	x := &surveyed{
		r:         r,
		l:         l,
		own:       map[string]agent.Faced{},
		devices:   map[string]map[string]string{},
		crossings: map[int]crossing{},
	}
	management := map[string]string{}
	for _, node := range []string{l.Topology.Near, l.Topology.Far, l.Topology.Routers[0]} {
		n, err := l.Node(ctx, node)
		if err != nil {
			return err
		}

		if !n.HasAgent() && !n.HasDriver() {
			continue
		}

		var to []netip.Addr
		c, _ := r.conns[node].(*ssh.Connection)
		if c != nil && c.Remote.IsValid() && !c.Remote.IsLoopback() {
			to = append(to, c.Remote)
		}

		own, err := x.ask(ctx, node, to...)
		if err != nil {
			return err
		}

		x.own[node], management[node] = own, r.machine(node).Management
		if len(to) > 0 {
			management[node] = cmp.Or(management[node], own.Ways[0].Device)
		}
	}

	l.management = management
	if err := x.distinct(); err != nil {
		return err
	}

	l.network = newNetwork(DataPorts{first, first + 1, first + 2}, r.tag,
		func(ip int) ([2]Meeting, error) { return x.ends(ctx, ip) })
	l.network.mutual = true
	x.faces(l.Topology.Far, "wan", r.Machines.Server.ISPPort)
	l.devices = x.devices
	l.Note = remoteNote
	if l.contact = x.contact; l.contact.IsValid() {
		l.Note += fmt.Sprintf("; the data goes to %s, where ssh reaches the server", l.contact)
	}

	if n := l.nodes[l.Topology.Routers[0]]; n.Driver != nil {
		l.Note += "; " + agentlessNote("the router is", n.Driver.Name())
		if n.Unagented != "" {
			l.Note += " (no agent runs there: " + n.Unagented + ")"
		}
	}

	for ip, c := range x.crossings {
		l.network.outer[ip] = [2]netip.Addr{c.near.Source, c.toNear.Source}
	}

	l.lead = x.lead
	if r.Machines.Client.At+r.Machines.Server.At == "" {
		return x.alone(ctx, l.Topology.Routers[0])
	}

	if len(l.network.ends) == 0 {
		return check.WithHint(fmt.Errorf("find the path from %s to %s: over IPv4: %s; over IPv6: %s",
			r.Machines.Client.At, r.Machines.Server.At, l.network.why[4], l.network.why[6]),
			"name where the data goes: --server-address ADDRESS, or address: in the lab file")
	}

	return nil
}

// surveyed collects what has been discovered about a path.
type surveyed struct {
	r       *remote
	l       *Lab
	own     map[string]agent.Faced // replies of nodes, which contain their own addresses
	devices map[string]map[string]string
	// crossings describes how data crosses the router. The key is the IP version.
	crossings map[int]crossing
	contact   netip.Addr // value for supply.contact
}

// ask returns the routes of a node to the given addresses.
func (x *surveyed) ask(ctx context.Context, node string, to ...netip.Addr) (f agent.Faced, err error) {
	n, err := x.l.Node(ctx, node)
	if err != nil {
		return f, err
	}

	if by, ok := n.Driver.(driver.Routing); ok && n.HasDriver() {
		f.Ways, f.Own, err = by.Ways(ctx, n.Host, to)
	} else if !n.HasAgent() {
		_, err = n.AgentFor("tell its ways")
	} else {
		err = n.Agent.Invoke(ctx, agent.VerbFacing, agent.Facing{To: to}, &f)
	}

	if err != nil {
		return f, fmt.Errorf("ask %s for its ways: %w", node, err)
	}

	if len(f.Ways) != len(to) {
		return f, fmt.Errorf("ask %s for its ways: %d answers to %d questions", node, len(f.Ways), len(to))
	}

	return f, nil
}

// ends chooses the addresses for data with an IP version. The target is the given address of the server, if
// any. Otherwise, it is an address that the client reaches through the router or, if there is none, the
// address that ssh uses.
func (x *surveyed) ends(ctx context.Context, ip int) (ends [2]Meeting, err error) {
	t := x.l.Topology
	near := t.Near
	far := t.Far
	router := t.Routers[0]
	candidates, err := x.targets(ip)
	if err != nil {
		return ends, err
	}

	ways, err := x.ask(ctx, near, candidates...)
	if err != nil {
		return ends, err
	}

	chosen := slices.IndexFunc(ways.Ways, func(w kernel.Way) bool {
		return w.Device != "" && slices.Contains(x.own[router].Own, w.Via)
	})
	if chosen < 0 { // the router is unknown, or the path bypasses it; a later check detects that
		chosen = slices.IndexFunc(ways.Ways, func(w kernel.Way) bool { return w.Device != "" })
	}

	if chosen < 0 {
		return ends, fmt.Errorf("the client has no route to %s", listed(candidates))
	}

	target := candidates[chosen]
	way := ways.Ways[chosen]
	c, _ := x.r.conns[far].(*ssh.Connection)
	if c != nil && c.Local == target && len(candidates) > 1 &&
		x.r.Machines.Router.At == "" {
		x.contact = target
	}

	source := way.Source
	named := x.r.Machines.Client.Address
	if named != "" {
		if source, err = netip.ParseAddr(named); err != nil || versionOf(source) != ip {
			return ends, fmt.Errorf("the client's address %s is none of IPv%d", named, ip)
		}
	}

	x.faces(near, "lan", way.Device)
	back, err := x.ask(ctx, far, source)
	if err != nil {
		return ends, err
	}

	x.faces(far, "wan", back.Ways[0].Device)
	way.Source = source
	if err := x.across(ctx, router, crossing{near: way, far: back.Ways[0], target: target}); err != nil {
		return ends, err
	}

	return [2]Meeting{{source, source}, {target, target}}, nil
}

// targets returns the addresses of the server that may be used for data, the likeliest first.
func (x *surveyed) targets(ip int) (out []netip.Addr, err error) {
	m := x.r.Machines.Server
	if m.Address != "" {
		a, err := netip.ParseAddr(m.Address)
		if err != nil || versionOf(a) != ip {
			return nil, fmt.Errorf("the server's address %s is none of IPv%d", check.Plain(m.Address), ip)
		}
		return []netip.Addr{a}, nil
	}

	if m.ISP != "" {
		for _, a := range knob.Provider(m.ISP, m.ISPPort).Own() {
			if versionOf(a) == ip {
				return []netip.Addr{a}, nil
			}
		}
		return nil, fmt.Errorf("as the router's provider by %s the server has no address of IPv%d", m.ISP, ip)
	}

	all := x.own[x.l.Topology.Far].Own
	c, _ := x.r.conns[x.l.Topology.Far].(*ssh.Connection)
	if c != nil && c.Local.IsValid() {
		all = append([]netip.Addr{c.Local}, all...)
	}

	for _, a := range all {
		if versionOf(a) == ip && usable(a) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}

	if len(out) == 0 {
		return nil, fmt.Errorf("the server has no address of IPv%d", ip)
	}

	return out, nil
}
