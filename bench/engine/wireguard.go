package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Ways between the two ends.
const (
	plainWay = iota
	ourTunnel
	peerTunnel // of the program wireguard-go
)

const tunnelMTU = 1420

// layTunnels makes both tunnels from client to server; both have an address of their own at either end.
func (b *stand) layTunnels(ctx context.Context) error {
	path, err := b.lab.Path(ctx, lab.TunnelSpec{Kind: "wireguard-userspace", MTU: tunnelMTU})
	if err != nil {
		return err
	}
	for i, end := range []*traffic.End{&b.near, &b.far} {
		a := b.lab.Address(path.Slot, i, 4)
		ours, theirs := *end, *end
		ours.Addr, ours.Target = a, a
		theirs.Addr = netip.AddrFrom4([4]byte{198, 19, 250, byte(1 + i)})
		theirs.Target = theirs.Addr
		b.tunnels[ourTunnel][i], b.tunnels[peerTunnel][i] = ours, theirs
	}
	return b.startPeer(ctx)
}

// startPeer starts wireguard-go at both ends and introduces them. The keys are this lab's alone and go
// through standard input.
func (b *stand) startPeer(ctx context.Context) error {
	var private, public [2]string
	nodes := [2]string{b.lab.Topology.Near, b.lab.Topology.Far}
	for i, node := range nodes {
		dev := fmt.Sprintf("peer%d", i)
		s, err := b.open(ctx, node, "wireguard-go", "-f", dev)
		if err != nil {
			return err
		}
		b.running = append(b.running, s)
		if private[i], err = b.exec(ctx, node, "", "wg", "genkey"); err == nil {
			public[i], err = b.exec(ctx, node, private[i], "wg", "pubkey")
		}
		if err != nil {
			return err
		}
	}
	for i, node := range nodes {
		dev, other := fmt.Sprintf("peer%d", i), 1-i
		var err error
		for range 50 { // until the device is there
			if _, err = b.exec(ctx, node, private[i], "wg", "set", dev, "listen-port", "51900", "private-key",
				"/dev/stdin",
				"peer", strings.TrimSpace(public[other]), "allowed-ips",
				b.tunnels[peerTunnel][other].Addr.String()+"/32",
				"endpoint", b.lab.Address(0, other, 4).String()+":51900"); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil {
			return err
		}
		for _, args := range [][]string{
			{"ip", "address", "add", b.tunnels[peerTunnel][i].Addr.String() + "/24", "dev", dev},
			{"ip", "link", "set", dev, "mtu", fmt.Sprint(tunnelMTU), "up"},
		} {
			if _, err := b.exec(ctx, node, "", args...); err != nil {
				return err
			}
		}
	}
	return nil
}

// open starts a command on a node; it ends with the session.
func (b *stand) open(ctx context.Context, node string, args ...string) (host.Session, error) {
	n, err := b.lab.Node(ctx, node)
	if err != nil {
		return nil, err
	}
	return n.Agent.Open(ctx, agent.VerbExec, agent.Exec{Args: args})
}

// exec runs a command on a node to its end and returns what it printed.
func (b *stand) exec(ctx context.Context, node, input string, args ...string) (string, error) {
	s, err := b.open(ctx, node, args...)
	if err != nil {
		return "", err
	}
	defer s.Close()
	if input != "" {
		err = s.Send([]byte(input))
	}
	if err := errors.Join(err, s.Finish()); err != nil {
		return "", err
	}
	var out, talk strings.Builder
	for {
		var o agent.ExecOutput
		if err := s.Recv(&o); err != nil {
			return "", fmt.Errorf("execute %s on %s: %w", args[0], node, err)
		}
		out.Write(o.Out)
		talk.Write(o.Err)
		switch {
		case o.Exit == nil:
		case *o.Exit != 0:
			return "", fmt.Errorf("execute %s on %s: exit status %d: %s", strings.Join(args[:2], " "), node,
				*o.Exit, talk.String())
		default:
			return out.String(), nil
		}
	}
}
