package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// loopback carries the inner addresses of a tunnel that has no device.
const loopback = "lo"

// serveDeviceless holds one end of a policy-based tunnel. Its routes lead out of the device that the other
// end is reached by, and have the tunnel's MTU.
func (k esp) serveDeviceless(ctx context.Context, s host.Session, r request) (err error) {
	e, c, err := k.meet(s, r)
	if err != nil {
		return ended(err)
	}
	defer func() { err = errors.Join(err, kernel.RemoveESP(e)) }()
	dev, err := kernel.RouteDevice(e.Remote)
	if err != nil {
		return conclude(err)
	}
	defer func() { err = errors.Join(err, withdraw(r, c, dev)) }()
	if err := lead(r, c, dev); err != nil {
		return conclude(err)
	}
	return ended(report(ctx, s, func() (status, error) {
		a, err := kernel.ReadESP(e)
		if err != nil {
			return status{}, err
		}
		return status{
			Sent: a.SentBytes, Received: a.ReceivedBytes, SentPackets: a.Sent, ReceivedPackets: a.Received,
			Handshake: -1, MTU: r.MTU, Complaint: complaintOf(a), Device: dev,
			Counted: fmt.Sprintf("association %#x", e.Out.SPI),
		}, nil
	}))
}

// lead gives this end its inner addresses, and routes to the other's.
func lead(r request, c connect, dev string) error {
	for _, p := range r.Inner {
		if err := kernel.AddAddress(loopback, alone(p)); err != nil {
			return err
		}
	}
	for _, to := range c.Allowed {
		if err := kernel.AddRouteFrom(to, dev, innerLike(to, r.Inner), r.MTU); err != nil {
			return err
		}
	}
	return nil
}

// withdraw undoes lead.
func withdraw(r request, c connect, dev string) error {
	var errs []error
	for _, to := range c.Allowed {
		errs = append(errs, kernel.DelRoute(to, netip.Addr{}, dev))
	}
	for _, p := range r.Inner {
		errs = append(errs, kernel.DelAddress(loopback, alone(p)))
	}
	return errors.Join(errs...)
}

func alone(p netip.Prefix) netip.Prefix { return netip.PrefixFrom(p.Addr(), p.Addr().BitLen()) }

// innerLike is the inner address of a destination's version of IP.
func innerLike(to netip.Prefix, inner []netip.Prefix) netip.Addr {
	for _, p := range inner {
		if p.Addr().Is4() == to.Addr().Is4() {
			return p.Addr()
		}
	}
	return netip.Addr{}
}
