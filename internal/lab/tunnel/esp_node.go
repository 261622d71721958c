package tunnel

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Serve holds one end: the device, its associations and its policies live as long as the session.
func (k esp) Serve(ctx context.Context, s host.Session) (err error) {
	var r request
	if err := s.Recv(&r); err != nil {
		return ended(err)
	}
	if r.Probe {
		return s.Send(offer{Answer: k.probe(r.Outer.Is6())})
	}
	if k.deviceless {
		return k.serveDeviceless(ctx, s, r)
	}
	if err := unused(r.Device); err != nil {
		return conclude(err)
	}
	if err := kernel.AddXfrm(r.Device, uint32(r.Port), r.MTU); err != nil {
		return conclude(err)
	}
	defer func() { err = errors.Join(err, kernel.DeleteLink(r.Device), gone(r.Device)) }()
	e, _, err := k.meet(s, r)
	if err != nil {
		return ended(err)
	}
	defer func() { err = errors.Join(err, kernel.RemoveESP(e)) }()
	if err := address(r); err != nil {
		return conclude(err)
	}
	return ended(report(ctx, s, func() (status, error) { return readESP(r.Device, e) }))
}

func (k esp) probe(outer6 bool) check.Answer {
	err := kernel.ProbeESP(k.cipher, outer6, !k.deviceless)
	switch {
	case err == nil:
		return check.OK()
	case errors.Is(err, kernel.ErrUnsupported):
		return check.Not("the kernel has no IPsec like this: %v", err).
			Hinted("load the modules xfrm_interface, xfrm_user, esp4, esp6 and the cipher's, or take --lab " +
				"vm and topology site-to-site or peer-to-router")
	case errors.Is(err, fs.ErrPermission):
		return check.Not("%v", err).Hinted("run as root, or where user namespaces are allowed")
	}
	return check.CouldNotTell("%v", err)
}

// meet hears of the other end and the secret, and sets this end up. The keys are overwritten before it
// returns; what is given back has none.
func (k esp) meet(s host.Session, r request) (kernel.ESP, connect, error) {
	if err := s.Send(offer{Answer: check.OK()}); err != nil {
		return kernel.ESP{}, connect{}, err
	}
	var secret [presharedSize]byte
	defer clear(secret[:])
	if err := receivePreshared(s, secret[:]); err != nil {
		return kernel.ESP{}, connect{}, err
	}
	var c connect
	if err := s.Recv(&c); err != nil {
		return kernel.ESP{}, connect{}, err
	}
	there, err := k.association(secret[:], r.Port, true)
	if err != nil {
		return kernel.ESP{}, connect{}, err
	}
	defer clear(there.Key)
	back, err := k.association(secret[:], r.Port, false)
	if err != nil {
		return kernel.ESP{}, connect{}, err
	}
	defer clear(back.Key)
	e := kernel.ESP{
		ID: uint32(r.Port), Cipher: k.cipher, Local: r.Outer, Remote: c.Endpoint.Addr(), Out: there, In: back,
	}
	if !r.Near {
		e.Out, e.In = back, there
	}
	if k.deviceless {
		e.Behind = c.Allowed
	}
	err = kernel.AddESP(e)
	e.Out.Key, e.In.Key = nil, nil
	return e, c, err
}

// association is the direction from the near end to the far one, or back. The port, which tunnels laid side
// by side have each of their own, stands for the tunnel: no other one between the same nodes has its SPIs.
func (k esp) association(secret []byte, port int, there bool) (kernel.ESPAssociation, error) {
	spi, direction := uint32(port)<<1, "there"
	if !there {
		spi, direction = spi|1, "back"
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "chokepoint "+k.name+" "+direction, k.cipher.KeySize())
	if err != nil {
		return kernel.ESPAssociation{}, fmt.Errorf("derive keys of %s: %w", k.name, err)
	}
	return kernel.ESPAssociation{SPI: spi, Key: key}, nil
}

// readESP gives the device's bytes, and the packets that were sealed and opened: what leaves in clear text
// is not carried by the tunnel.
func readESP(dev string, e kernel.ESP) (status, error) {
	c, err := kernel.Counters(dev)
	if err != nil {
		return status{}, err
	}
	mtu, err := kernel.MTU(dev)
	if err != nil {
		return status{}, err
	}
	a, err := kernel.ReadESP(e)
	if err != nil {
		return status{}, err
	}
	return status{
		Sent: c.TxBytes, Received: c.RxBytes, SentPackets: a.Sent, ReceivedPackets: a.Received, Handshake: -1,
		MTU:       mtu,
		Complaint: complaintOf(a),
	}, nil
}

func complaintOf(a kernel.ESPStats) string {
	if a.Forged+a.Replayed == 0 {
		return ""
	}
	return fmt.Sprintf("%d packets missed the integrity check, %d were outside the replay window", a.Forged,
		a.Replayed)
}
