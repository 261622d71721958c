package labtest

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
)

// Tunnel is a fake tunnel on a Wire.
type Tunnel struct{ wire *Wire }

// Name implements tunnel.Tunnel. It returns "wireguard", because plans use this name.
func (Tunnel) Name() string { return "wireguard" }

// Check implements tunnel.Tunnel.
func (Tunnel) Check(context.Context, tunnel.End, tunnel.End) check.Answer { return check.OK() }

// Up implements tunnel.Tunnel. Both nodes keep a session open while the tunnel is up, as they do for a
// real tunnel.
func (t Tunnel) Up(ctx context.Context, near, far tunnel.End, s tunnel.Spec) (tunnel.Path, error) {
	slot, err := strconv.Atoi(strings.TrimPrefix(s.Device, "tun"))
	if err != nil {
		return nil, err
	}

	p := &tunnelPath{wire: t.wire, slot: slot, device: s.Device, mtu: cmp.Or(s.MTU, tunnel.DefaultMTU)}
	for _, end := range []tunnel.End{near, far} {
		session, err := end.Agent.Open(ctx, host.Verb(host.FamilyTunnel, t.Name()), s)
		if err == nil {
			p.sessions = append(p.sessions, session)
			err = session.Recv(nil)
		}

		if err != nil {
			return nil, errors.Join(err, p.Down(ctx))
		}
	}

	t.wire.mu.Lock()
	defer t.wire.mu.Unlock()
	t.wire.tunnels[slot], t.wire.innerMTU[slot] = &tunnel.Counters{}, p.mtu
	return p, nil
}

// Serve implements tunnel.Tunnel.
func (Tunnel) Serve(_ context.Context, s host.Session) error {
	if err := s.Recv(nil); err != nil {
		return err
	}

	if err := s.Send(struct{}{}); err != nil {
		return err
	}

	for s.Recv(nil) == nil {
	}

	return nil
}

// tunnelPath implements tunnel.Path.
type tunnelPath struct {
	wire      *Wire
	slot, mtu int
	device    string

	once     sync.Once
	sessions []host.Session
}

func (p *tunnelPath) MTU() int               { return p.mtu }
func (p *tunnelPath) Devices() []string      { return []string{p.device, p.device} }
func (p *tunnelPath) Implementation() string { return "wireguard-fake" }

func (p *tunnelPath) Counters(context.Context, bool) (tunnel.Counters, error) {
	p.wire.mu.Lock()
	defer p.wire.mu.Unlock()
	c := p.wire.tunnels[p.slot]
	if c == nil {
		return tunnel.Counters{}, errors.New("read counters of the tunnel: it is down")
	}

	return *c, nil
}

func (p *tunnelPath) Down(context.Context) error {
	p.once.Do(func() {
		for _, s := range p.sessions {
			s.Close()
		}

		p.wire.mu.Lock()
		defer p.wire.mu.Unlock()
		delete(p.wire.tunnels, p.slot)
		delete(p.wire.innerMTU, p.slot)
	})
	return nil
}
