package main

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Paths between the two ends.
const (
	plainPath = iota
	ourTunnel
	peerTunnel // by the program wireguard-go
)

const tunnelMTU = 1420

// layTunnels makes both tunnels from client to server; each has its own address at either end. The keys of
// wireguard-go are only for this lab and are passed through standard input.
func (b *stand) layTunnels(ctx context.Context) error {
	path, err := b.lab.Path(ctx, lab.TunnelSpec{Kind: "wireguard-userspace", MTU: tunnelMTU})
	if err != nil {
		return err
	}

	var keys [2]*ecdh.PrivateKey
	for i, end := range b.paths[plainPath] {
		end.Addr = b.lab.Address(path.Slot, i, 4)
		end.Target = end.Addr
		b.paths[ourTunnel][i] = end
		end.Addr = netip.AddrFrom4([4]byte{198, 19, 250, byte(1 + i)})
		end.Target = end.Addr
		b.paths[peerTunnel][i] = end
		if keys[i], err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
			return err
		}

		if _, err = rig.Start(ctx, b.lab, end.Node, "wireguard-go", "-f", fmt.Sprint("peer", i)); err != nil {
			return err
		}
	}

	for i, end := range b.paths[peerTunnel] {
		other := 1 - i
		// Their devices differ in name because both nodes see the same directory of control sockets.
		script := fmt.Sprintf("wg set peer%[1]d listen-port 51900 private-key /dev/stdin peer %[2]s "+
			"allowed-ips %[3]s/32 endpoint %[4]s:51900 && ip address add %[5]s/24 dev peer%[1]d && "+
			"ip link set peer%[1]d mtu %[6]d up", i,
			base64.StdEncoding.EncodeToString(keys[other].PublicKey().Bytes()),
			b.paths[peerTunnel][other].Addr, b.lab.Address(0, other, 4), end.Addr, tunnelMTU)
		key := base64.StdEncoding.EncodeToString(keys[i].Bytes())
		if _, err := b.retry(ctx, end.Node, key, "sh", "-c", script); err != nil {
			return err
		}
	}

	return nil
}

// retry runs a command until the program that it addresses, which has just been started, is ready.
func (b *stand) retry(ctx context.Context, node, input string, args ...string) (out string, err error) {
	for range 50 {
		if out, err = rig.Exec(ctx, b.lab, node, input, args...); err == nil || ctx.Err() != nil {
			break
		}

		time.Sleep(100 * time.Millisecond)
	}
	return out, err
}

// newest is an iperf3 built from source, with its fastest options: it sends pages from a file, and the
// receiver truncates.
type newest struct {
	traffic.Engine // the installed one
	stand          *stand
	file           string
}

// against returns the comparison with an iperf3 of the rates that both reach with all cores.
func (b *stand) against(file string) comparison {
	c := tcpAgainst("super", 4, goodput, .97, 1)
	c.theirs.engine = newest{iperf3, b, file}
	c.peer = "newest iperf3 -Z --skip-rx-copy"
	return c
}

// Name implements traffic.Engine.
func (n newest) Name() string { return "iperf3 newest" }

// Check implements traffic.Engine.
func (n newest) Check(context.Context, traffic.End, traffic.End, record.Load) check.Answer {
	return check.OK()
}

// Offer implements traffic.Engine.
func (n newest) Offer(ctx context.Context, near, far traffic.End, load record.Load,
	_ traffic.Conductor) (*record.Traffic, error) {
	const port = "5301"
	server, err := rig.Start(ctx, n.stand.lab, far.Node, n.file, "-s", "-1", "-p", port)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	text, err := n.stand.retry(ctx, near.Node, "", n.file, "-c", far.Target.String(), "-p", port, "-J", "-Z",
		"--skip-rx-copy", "-C", load.Congestion, "-t", strconv.Itoa(int(load.Duration/time.Second)),
		"-P", strconv.Itoa(load.Streams))
	if err != nil {
		return nil, err
	}

	var out struct {
		End struct {
			Sum struct{ Bytes, Seconds float64 } `json:"sum_received"`
		}
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("read the output of %s: %w", n.file, err)
	}

	return &record.Traffic{
		Engine: n.Name(),
		Load:   load,
		Flows: []record.Flow{{
			Stream:        1,
			Direction:     record.Up,
			ReceivedBytes: int64(out.End.Sum.Bytes),
			ReceiverNs:    int64(out.End.Sum.Seconds * 1e9),
		}},
	}, nil
}
