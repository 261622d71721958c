package tunnel

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// espKinds returns the kinds of IPsec ESP in tunnel mode (RFC 4303): one per cipher, and a policy-based one.
// They run in the kernel. There is no key exchange: the keys for both directions are derived from a secret
// that is sent to both ends, and remain valid as long as the tunnel exists. The policy-based kind has no
// device, and the kernel matches every packet against its policies. The others are route-based, with an XFRM
// interface.
func espKinds() []Tunnel {
	return []Tunnel{espKind("esp", kernel.ESPAESGCM128, false),
		espKind("esp-aes-gcm-256", kernel.ESPAESGCM256, false),
		espKind("esp-aes-cbc-sha256", kernel.ESPAESCBC256SHA256, false),
		espKind("esp-chacha20-poly1305", kernel.ESPChaCha20Poly1305, false),
		espKind("esp-policy", kernel.ESPAESGCM128, true)}
}

// espKind returns a kind of ESP tunnel. It is a Burden, because the kernel looks up a policy for every packet
// while any policy is loaded.
func espKind(name string, cipher kernel.ESPCipher, deviceless bool) Tunnel {
	return kind{esp{name, cipher, deviceless}, traits{fitted: true, mute: true, burdens: true}}
}

type esp struct {
	name       string
	cipher     kernel.ESPCipher
	deviceless bool // whether the kind is policy-based
}

func (k esp) Name() string { return k.name }

func (k esp) probe(_ context.Context, r request) check.Answer {
	return kernelAnswer(kernel.ProbeESP(k.cipher, r.Outer.Is6(), !k.deviceless),
		"the kernel has no IPsec like this", "load the modules xfrm_interface, xfrm_user, esp4, esp6 and "+
			"the cipher's, or take --lab vm and topology site-to-site or peer-to-router")
}

// espSide holds one end of an ESP tunnel: its device, security associations and policies. The end of a
// policy-based tunnel has no device. Instead, it has routes, with the MTU of the tunnel, on the device that
// leads to the other end.
type espSide struct {
	esp
	request
	connect connect
	set     kernel.ESP // configuration without keys; ID 0 means not configured
	device  string     // device of the tunnel, or the outgoing device
}

func (k esp) open(r request) (side, error) {
	e := &espSide{esp: k, request: r}
	if k.deviceless {
		return e, nil
	}

	if err := unused(r.Device); err != nil {
		return nil, err
	}

	e.device = r.Device
	return e, kernel.AddXfrm(r.Device, uint32(r.Port), r.MTU)
}

func (*espSide) public() string { return "" }

func (e *espSide) configure(_ context.Context, secret []byte, c connect) error {
	set, err := e.esp.set(e.request, c, secret)
	defer clear(set.Out.Key)
	defer clear(set.In.Key)
	if err == nil {
		err = kernel.AddESP(set)
	}

	if err != nil {
		return err
	}

	set.Out.Key, set.In.Key = nil, nil
	e.set, e.connect = set, c
	if !e.deviceless {
		return address(e.request)
	}

	dev, err := kernel.RouteDevice(set.Remote)
	if err != nil {
		return err
	}

	e.device = dev
	for _, p := range e.Inner {
		if err := kernel.AddAddress(loopback, alone(p)); err != nil {
			return err
		}
	}

	for _, to := range c.Allowed {
		if err := kernel.AddRouteFrom(to, dev, innerLike(to, e.Inner), e.MTU); err != nil {
			return err
		}
	}

	return nil
}

// set returns the kernel configuration of an end, with keys derived from a secret.
func (k esp) set(r request, c connect, secret []byte) (kernel.ESP, error) {
	out, err1 := k.association(secret, r.Port, r.Near)
	in, err2 := k.association(secret, r.Port, !r.Near)
	set := kernel.ESP{
		ID:     uint32(r.Port),
		Cipher: k.cipher,
		Local:  r.Outer,
		Remote: c.Endpoint.Addr(),
		Out:    out,
		In:     in,
	}
	if k.deviceless {
		set.Behind = c.Allowed
	}

	return set, errors.Join(err1, err2)
}

// clear removes what remains of an end whose process was killed.
func (k esp) clear(r request, c connect) error {
	e := espSide{esp: k, request: r, connect: c}
	var err error
	if e.set, err = k.set(r, c, nil); err != nil {
		return err
	}

	if !k.deviceless {
		return errors.Join(kernel.RemoveESP(e.set), removeDevice(r.Device))
	}

	if e.device, err = kernel.RouteDevice(e.set.Remote); err != nil {
		return err
	}

	_ = e.close() // error ignored: a part may not exist any more
	return nil
}

// association returns the security association for packets in one direction. If the argument there is set,
// this is the direction from the near to the far end, and otherwise the opposite direction. It derives the
// SPI from the port, so that parallel tunnels between the same nodes, which have different ports, have
// different SPIs.
func (k esp) association(secret []byte, port int, there bool) (kernel.ESPAssociation, error) {
	spi := uint32(port) << 1
	direction := "there"
	if !there {
		spi = spi | 1
		direction = "back"
	}

	key, err := hkdf.Key(sha256.New, secret, nil, "chokepoint "+k.name+" "+direction, k.cipher.KeySize())
	if err != nil {
		return kernel.ESPAssociation{}, fmt.Errorf("derive keys of %s: %w", k.name, err)
	}

	return kernel.ESPAssociation{SPI: spi, Key: key}, nil
}

// read returns the bytes that the device carried, and the packets that the associations encrypted and
// decrypted. It uses the counters of the associations, so that packets outside the tunnel do not count.
func (e *espSide) read() (status, error) {
	a, err := kernel.ReadESP(e.set)
	if err != nil {
		return status{}, err
	}

	now := status{
		Sent:      a.SentBytes,
		Received:  a.ReceivedBytes,
		Handshake: -1,
		MTU:       e.MTU,
		Device:    e.device,
		Counted:   fmt.Sprintf("association %#x", e.set.Out.SPI),
	}
	if !e.deviceless {
		if now, err = deviceStatus(e.device); err != nil {
			return status{}, err
		}
	}

	now.SentPackets = a.Sent
	now.ReceivedPackets = a.Received
	if a.Forged+a.Replayed > 0 {
		now.Complaint = fmt.Sprintf("%d packets missed the integrity check, %d were outside the replay "+
			"window", a.Forged, a.Replayed)
	}

	return now, nil
}

func (e *espSide) close() error {
	var errs []error
	if e.deviceless && e.device != "" {
		for _, to := range e.connect.Allowed {
			errs = append(errs, kernel.DelRoute(to, netip.Addr{}, e.device))
		}

		for _, p := range e.Inner {
			errs = append(errs, kernel.DelAddress(loopback, alone(p)))
		}
	}

	if e.set.ID != 0 {
		errs = append(errs, kernel.RemoveESP(e.set))
	}

	if !e.deviceless {
		errs = append(errs, kernel.DeleteLink(e.device), gone(e.device))
	}

	return errors.Join(errs...)
}

const loopback = "lo" // device that has the inner addresses of policy-based tunnels

func alone(p netip.Prefix) netip.Prefix { return netip.PrefixFrom(p.Addr(), p.Addr().BitLen()) }

// innerLike returns the inner address that has the IP version of the given prefix.
func innerLike(to netip.Prefix, inner []netip.Prefix) netip.Addr {
	for _, p := range inner {
		if p.Addr().Is4() == to.Addr().Is4() {
			return p.Addr()
		}
	}
	return netip.Addr{}
}
