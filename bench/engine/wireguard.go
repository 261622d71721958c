package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Paths between the two ends.
const (
	plainPath = iota
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
		s, err := rig.Start(ctx, b.lab, node, "wireguard-go", "-f", dev)
		if err != nil {
			return err
		}
		b.running = append(b.running, s)
		if private[i], err = rig.Exec(ctx, b.lab, node, "", "wg", "genkey"); err == nil {
			public[i], err = rig.Exec(ctx, b.lab, node, private[i], "wg", "pubkey")
		}
		if err != nil {
			return err
		}
	}
	for i, node := range nodes {
		dev, other := fmt.Sprintf("peer%d", i), 1-i
		var err error
		for range 50 { // until the device is there
			if _, err = rig.Exec(ctx, b.lab, node, private[i], "wg", "set", dev, "listen-port", "51900",
				"private-key",
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
			if _, err := rig.Exec(ctx, b.lab, node, "", args...); err != nil {
				return err
			}
		}
	}
	return nil
}
