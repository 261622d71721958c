package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// cipherNode describes a node whose ciphers are measured.
type cipherNode struct {
	node     *lab.Node
	host     host.Host // runs commands on the node
	cpus     int
	watched  string            // node whose telemetry covers the CPUs of this node
	rounds   float64           // cycles per round of the clock probe's loop; 0 means unknown
	versions map[string]string // versions of the libraries that were requested so far
}

// cipherNodeOf returns a node and the properties of its CPUs.
func cipherNodeOf(ctx context.Context, l *lab.Lab, name string) (*cipherNode, error) {
	n := &cipherNode{watched: name, versions: map[string]string{}}
	if err := n.reach(ctx, l, name); err != nil {
		return nil, err
	}

	f := n.node.Facts
	if !f.OwnMachine() && !f.Guest() && slices.Contains(l.Nodes(), lab.HostNode) {
		n.watched = lab.HostNode // the host owns the cores
	}

	var facts map[string]string
	var err error
	if n.node.HasAgent() {
		var e record.Environment
		e, err = probe.Environment(ctx, n.node.Agent, name)
		facts = e.Facts
	} else if by, ok := n.node.Driver.(driver.Describing); ok {
		facts, err = by.Facts(ctx, n.host)
	}

	if err != nil {
		return nil, err
	}

	// A round of the clock probe's loop consists of three shifts and three exclusive ors, each of which
	// depends on the previous operation. Only on x86 is it known that each operation takes one cycle and that
	// two operations are never executed in the same cycle.
	if facts["agent_arch"] == "amd64" && n.node.Facts.CPUs != record.CPUsEmulated {
		n.rounds = 6
	}

	n.cpus = cipher.Threads(facts)
	return n, nil
}

// reach sets the node, and the host that runs commands on the node. The host is the node's agent, which may
// have been replaced since the last call, or the node's shell.
func (n *cipherNode) reach(ctx context.Context, l *lab.Lab, name string) (err error) {
	if n.node, err = l.Node(ctx, name); err != nil {
		return err
	}

	switch {
	case n.node.HasAgent():
		n.host = agent.NewHost(name, n.node.Agent)
	case n.node.HasDriver():
		n.host = n.node.Host
	default:
		return fmt.Errorf("measure the ciphers of node %s: %w: %s", name, host.ErrUnsupported,
			n.node.Describe().Unreachable)
	}
	return nil
}

// version returns the version of a library on the node. The error wraps host.ErrUnsupported if the node
// lacks the library.
func (n *cipherNode) version(ctx context.Context, library string) (string, error) {
	v, known := n.versions[library]
	if known {
		return v, nil
	}

	words := map[string]string{cipher.Go: "of the agent's program",
		cipher.Kernel: "AF_ALG, a system call and a copy for each block"}[library]
	switch {
	case library == cipher.OpenSSL:
		out, err := host.Run(ctx, n.host, host.Command{Path: "openssl", Args: []string{"version"}})
		if code, ok := host.ExitCode(err); ok && code == 127 { // exit code of a shell for a missing command
			err = fmt.Errorf("%w: %w", host.ErrUnsupported, err)
		}

		if err != nil {
			return "", check.WithHint(fmt.Errorf("measure with openssl on %s: %w", n.node.Name, err),
				"install its package (openssl, on OpenWrt openssl-util), or measure with library go")
		}

		first, _, _ := strings.Cut(string(out), "\n")
		first, _, _ = strings.Cut(first, " (Library:") // remove the rest, which repeats the version
		words = check.Plain(strings.TrimSpace(first))
	case !n.node.HasAgent():
		return "", check.WithHint(fmt.Errorf("measure with %s on %s: %w: it needs an agent there", library,
			n.node.Name, host.ErrUnsupported), "install openssl there (on OpenWrt openssl-util)")
	}

	n.versions[library] = words
	return words, nil
}

// once measures a cell for the given duration and returns the rates by operation. The rates include other
// operations that openssl measures with the same command. openssl accepts only whole seconds.
func (n *cipherNode) once(ctx context.Context, c cipher.Cell, long time.Duration) (map[string]float64,
	error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.Parts())*long+lab.UsualSlack)
	defer cancel()
	if c.Library == cipher.OpenSSL {
		out, err := host.Run(ctx, n.host, host.Command{
			Path: "openssl",
			Args: c.Command(int(wholeSeconds(long) / time.Second)),
		})
		if err != nil {
			return nil, err
		}

		s, err := cipher.ParseSpeed(out)
		if err != nil {
			return nil, err
		}

		return s.Of(c)
	}

	verb := map[string]string{cipher.Go: ciphers.VerbGo, cipher.Kernel: ciphers.VerbKernel}[c.Library]
	var d ciphers.Done
	err := n.node.Agent.Invoke(ctx, verb, ciphers.Request{
		Algorithm: c.Algorithm,
		Operation: c.Operation,
		Block:     c.Block,
		Threads:   c.Threads,
		Ns:        int64(long),
	}, &d)
	if err != nil {
		return nil, err
	}

	rate := float64(d.Count) / (float64(d.Ns) / 1e9) * float64(max(1, c.Block))
	if !(rate > 0) {
		return nil, fmt.Errorf("%d operations in %d ns", d.Count, d.Ns)
	}

	return map[string]float64{c.Operation: rate}, nil
}

const (
	longestCipher = time.Minute            // maximum duration of one measurement by an agent
	cipherGlance  = 10 * time.Millisecond  // long enough to find out whether a library supports the algorithm
	refusalTime   = 500 * time.Millisecond // time within which an openssl without the algorithm fails
)

// lacks checks whether the node's library can measure the cell. It answers No only if this is certain.
func (n *cipherNode) lacks(ctx context.Context, c cipher.Cell) check.Answer {
	if c.Library == cipher.OpenSSL && n.node.HasAgent() { // the agent kills the command with the session
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, refusalTime)
		defer cancel()
	}

	_, err := n.once(ctx, c, cipherGlance)
	switch _, exited := host.ExitCode(err); {
	case err == nil || ctx.Err() != nil:
		return check.OK()
	case exited, cannot(err):
		return check.Not("%s", check.Plain(err.Error()))
	}

	return check.CouldNotTell("%v", err)
}

// cannot reports whether err means that a node will never be able to do what was requested.
func cannot(err error) bool {
	return errors.Is(err, host.ErrUnsupported) || errors.Is(err, host.ErrUnknownVerb)
}

// ciphersOf returns the cipherNode for a node. It is determined only once per lab.
func (b *testbed) ciphersOf(ctx context.Context, name string) (*cipherNode, error) {
	if n := b.ciphers[name]; n != nil {
		return n, n.reach(ctx, b.lab, name)
	}

	n, err := cipherNodeOf(ctx, b.lab, name)
	if err != nil {
		return nil, err
	}

	b.ciphers[name] = n
	return n, nil
}

// noCipher returns the reason why a cipher cell cannot be measured.
func (c *Campaign) noCipher(ctx context.Context, b *testbed, cell record.Factors,
	once func(string, func() check.Answer) check.Answer) (can check.Answer, err error) {
	if c.Run.Design.Method.Duration > longestCipher {
		return check.Not("a cipher is measured for %s at most", longestCipher).Hinted(
			"set method.duration: %s", longestCipher), nil
	}

	n, err := b.ciphersOf(ctx, cipher.NodeFactor.Of(cell))
	var of cipher.Cell
	if err == nil {
		of = cipher.CellOf(cell, n.cpus)
		_, err = n.version(ctx, of.Library)
	}

	switch {
	case cannot(err):
		return check.Not("%s", check.Plain(err.Error())).Hinted("%s", check.HintOf(err)), nil
	case err != nil:
		return can, err
	}

	of.Threads = 1 // one thread is enough, because several work if one does
	if of.Block > 0 {
		of.Block = cipher.Small // any block size will do, because the result applies to all of them
	}

	a := once(fmt.Sprint(n.node.Name, of), func() check.Answer {
		return n.lacks(ctx, of)
	})
	if a.State == check.No {
		return check.Not("library %s: %s", of.Library, a.Reason), nil
	}

	return can, nil
}

// cipher measures the cell's cipher during the window.
func (a *attempt) cipher(ctx context.Context) error {
	f := a.t.Row.Factors
	n, err := a.ciphersOf(ctx, cipher.NodeFactor.Of(f))
	if err != nil {
		return err
	}

	c := cipher.CellOf(f, n.cpus)
	version, err := n.version(ctx, c.Library)
	if err != nil {
		return err
	}

	a.t.Resolved = map[string]string{string(cipher.LibraryFactor): version}
	long := a.m.Duration
	if c.Library == cipher.OpenSSL {
		long = wholeSeconds(long)
	}

	w := traffic.NewWindow(host.Monotonic()+int64(lead), 0, time.Duration(c.Parts())*long, drain)
	if err := a.watch.schedule(w); err != nil {
		return err
	}

	a.t.Window = w
	if err := host.Pause(ctx, time.Duration(w.Begin-host.Monotonic())); err != nil {
		return err
	}

	rates, err := n.once(ctx, c, long)
	a.t.Window.Stop = min(w.Stop, max(w.End, host.Monotonic()))
	if err != nil {
		return fmt.Errorf("measure %s %s on %s: %w", c.Algorithm, c.Operation, n.node.Name, err)
	}

	a.t.Cipher = &record.Cipher{
		Node:       n.node.Name,
		Watched:    n.watched,
		Library:    c.Library,
		Version:    version,
		Algorithm:  c.Algorithm,
		Operation:  c.Operation,
		Mode:       c.Mode,
		Block:      c.Block,
		Threads:    c.Threads,
		CPUs:       n.cpus,
		Rate:       rates[c.Operation],
		LoopCycles: n.rounds,
	}
	return nil
}
