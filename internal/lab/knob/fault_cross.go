package knob

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

const verbCross = "fault/cross_traffic"

// crossing describes cross traffic: UDP datagrams that are sent at a constant rate, without congestion
// control, to a port where no program listens.
type crossing struct {
	RateBps uint64   `json:"rate_bps"` // rate of IP packets in bit/s
	To      []string `json:"to"`       // candidate addresses; the first that is not our own is used
	Port    uint16   `json:"port"`
}

// Datagrams are sent to the discard port (RFC 863).
const (
	crossPort  = 9
	crossSize  = 1200 // size of IP packets in bytes
	crossEvery = time.Millisecond
)

func crossTraffic(p Place, level State) []Companion {
	v, _ := parseLimit(level)
	return []Companion{{
		Verb: verbCross,
		Task: crossing{
			RateBps: v,
			Port:    crossPort,
			To:      append(slices.Clone(p.Inside), p.Collector),
		},
	}}
}

// cross sends cross traffic until ctx is cancelled.
func cross(ctx context.Context, s host.Session, q crossing) error {
	to, err := q.target()
	if err != nil {
		return err
	}

	c, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return fmt.Errorf("open a socket for cross traffic: %w", err)
	}
	defer c.Close()
	if err := s.Send(struct{}{}); err != nil {
		return err
	}

	payload := make([]byte, crossSize-20-8)
	begun := time.Now()
	sent := 0.0
	for host.Pause(ctx, crossEvery) == nil {
		// Count packets that a full queue rejects, too: they were sent, and got lost as on any path.
		for due := time.Since(begun).Seconds() * float64(q.RateBps) / 8; sent < due && ctx.Err() == nil; {
			_, _ = c.WriteToUDPAddrPort(payload, to)
			sent += crossSize
		}
	}

	return nil
}

// target returns an address of the other end of the path.
func (q crossing) target() (netip.AddrPort, error) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("list the node's addresses: %w", err)
	}

	for _, text := range q.To {
		a, err := netip.ParseAddr(text)
		if err != nil || !a.Is4() {
			continue
		}

		if !slices.ContainsFunc(own, func(o net.Addr) bool {
			p, err := netip.ParsePrefix(o.String())
			return err == nil && p.Addr() == a
		}) {
			return netip.AddrPortFrom(a, q.Port), nil
		}
	}

	return netip.AddrPort{}, fmt.Errorf("send cross traffic: %w: the path has no other end over IPv4",
		host.ErrUnsupported)
}
