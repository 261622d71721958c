package tunnel

import (
	"context"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Router sets up an end of a WireGuard tunnel on a router without an agent. The router has WireGuard in its
// kernel and generates the private key itself. After the tunnel is down, the caller that provides a Router
// must undo the changes that the Router has made.
type Router struct {
	Check func(ctx context.Context) check.Answer
	// Open creates a device with the given addresses and returns its public key.
	Open func(ctx context.Context, s Spec, inner []netip.Prefix) (public string, err error)
	// Connect configures the peer, given the peer's public key, outer address and allowed IPs.
	Connect func(ctx context.Context, public string, endpoint netip.AddrPort, allowed []netip.Prefix) error
	// Read returns the counters of the device, and the age of the last handshake in ns, or -1 if there was no
	// handshake.
	Read func(ctx context.Context) (c kernel.LinkCounters, handshake int64, err error)
	// Send sends a packet through the tunnel to an address of the other end.
	Send func(ctx context.Context, to netip.Addr) error
}

// Agentless returns an agent in this process that serves an end of a tunnel by calling the given Router. The
// agent supports only the verb for kernel WireGuard.
func Agentless(ctx context.Context, by Router) host.Agent {
	serve := func(ctx context.Context, s host.Session) error {
		var r request
		if err := s.Recv(&r); err != nil || r.Clear != nil {
			return ended(err)
		}

		if r.Probe {
			return s.Send(offer{Answer: by.Check(ctx)})
		}

		public, err := by.Open(ctx, r.Spec, r.Inner)
		if err != nil {
			return conclude(err)
		}

		configure := func(ctx context.Context, _ []byte, c connect) error {
			return by.Connect(ctx, c.Public, c.Endpoint, c.Allowed)
		}
		read := func() (status, error) {
			c, handshake, err := by.Read(ctx)
			return status{
				Sent:            c.TxBytes,
				Received:        c.RxBytes,
				SentPackets:     c.TxPackets,
				ReceivedPackets: c.RxPackets,
				Handshake:       handshake,
				MTU:             r.MTU,
			}, err
		}
		if err := meet(ctx, s, public, configure); err != nil {
			return ended(err)
		}

		return ended(report(ctx, s, read, func(to netip.Addr) error { return by.Send(ctx, to) }))
	}
	return host.Inside(ctx, map[string]host.Handler{host.Verb(host.FamilyTunnel, nameKernel): serve})
}
