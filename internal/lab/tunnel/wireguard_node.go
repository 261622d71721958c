package tunnel

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// device is an implementation's device on this node. It exists, with its MTU, from its opening on;
// configure sets it up.
type device interface {
	configure(w kernel.WireGuard) error
	// handshake is the time of the last one, zero if there was none.
	handshake() (time.Time, error)
	complaint() string
	close() error
}

// Serve holds one end: the device lives as long as the session.
func (w wireguard) Serve(ctx context.Context, s host.Session) (err error) {
	var r request
	if err := s.Recv(&r); err != nil {
		return ended(err)
	}
	if r.Probe {
		return s.Send(offer{Answer: w.probe()})
	}
	if err := unused(r.Device); err != nil {
		return conclude(err)
	}
	d, err := w.open(r)
	if err != nil {
		return conclude(err)
	}
	defer func() { err = errors.Join(err, d.close(), gone(r.Device)) }()
	if err := serveDevice(ctx, s, r, d); err != nil {
		return ended(err)
	}
	return nil
}

func unused(dev string) error {
	there, err := kernel.Exists(dev)
	if err == nil && there {
		err = fmt.Errorf("make tunnel device %s: it exists already", dev)
	}
	return err
}

// serveDevice is the conversation from the key on.
func serveDevice(ctx context.Context, s host.Session, r request, d device) error {
	if err := introduce(s, r, d); err != nil {
		return err
	}
	return report(ctx, s, func() (status, error) { return read(r.Device, d) })
}

// report tells the state, and again after each question.
func report(ctx context.Context, s host.Session, read func() (status, error)) error {
	for ctx.Err() == nil {
		now, err := read()
		if err != nil {
			return err
		}
		if err := s.Send(now); err != nil {
			return err
		}
		var a ask
		if err := s.Recv(&a); err != nil {
			return err
		}
		for _, to := range a.Prove {
			if err := knock(to); err != nil {
				return err
			}
		}
	}
	return nil
}

// introduce makes this node's key, tells the public one, hears of the peer, and sets the device up. The
// keys are overwritten before it returns; what the implementation keeps lives as long as its device.
func introduce(s host.Session, r request, d device) error {
	w := kernel.WireGuard{Port: r.Port}
	defer w.Private.Clear()
	defer w.Preshared.Clear()
	public, err := newKey(&w.Private)
	if err != nil {
		return err
	}
	if err := s.Send(offer{Public: spellPublic(public), Answer: check.OK()}); err != nil {
		return err
	}
	if err := receivePreshared(s, w.Preshared[:]); err != nil {
		return err
	}
	var c connect
	if err := s.Recv(&c); err != nil {
		return err
	}
	if w.Peer, err = parsePublic(c.Public); err != nil {
		return err
	}
	w.Endpoint, w.Allowed = c.Endpoint, c.Allowed
	if err := d.configure(w); err != nil {
		return err
	}
	return address(r)
}

func address(r request) error {
	if err := kernel.Up(r.Device); err != nil {
		return err
	}
	for _, p := range r.Inner {
		if err := kernel.AddAddress(r.Device, p); err != nil {
			return err
		}
	}
	for _, p := range r.Routes {
		if err := kernel.AddRoute(p, netip.Addr{}, r.Device); err != nil {
			return err
		}
	}
	return nil
}

// newKey makes a private key in place and returns the public one.
func newKey(private *kernel.Key) (kernel.Key, error) {
	rand.Read(private[:]) // never fails since Go 1.24
	// Clamping, RFC 7748 §5; WireGuard's tools store keys in this form.
	private[0] &= 248
	private[31] = private[31]&127 | 64
	k, err := ecdh.X25519().NewPrivateKey(private[:])
	if err != nil {
		return kernel.Key{}, errors.New("make private key: no X25519 here")
	}
	return kernel.Key(k.PublicKey().Bytes()), nil
}

func receivePreshared(s host.Session, into []byte) error {
	carrier, ok := s.(host.SecretSession)
	if !ok {
		return errors.New("receive preshared key: the session cannot carry a secret")
	}
	secret, err := carrier.RecvSecret()
	if err != nil {
		return err
	}
	return secret.Use(func(b []byte) error {
		defer clear(b)
		if len(b) != len(into) {
			return fmt.Errorf("receive preshared key: %d bytes, want %d", len(b), len(into))
		}
		copy(into, b)
		return nil
	})
}

func read(dev string, d device) (status, error) {
	c, err := kernel.Counters(dev)
	if err != nil {
		return status{}, err
	}
	mtu, err := kernel.MTU(dev)
	if err != nil {
		return status{}, err
	}
	last, err := d.handshake()
	if err != nil {
		return status{}, err
	}
	age := int64(-1)
	if !last.IsZero() {
		age = max(0, int64(time.Since(last)))
	}
	return status{
		Sent: c.TxBytes, Received: c.RxBytes, SentPackets: c.TxPackets, ReceivedPackets: c.RxPackets,
		Handshake: age, MTU: mtu, Complaint: d.complaint(),
	}, nil
}

// knock sends a datagram to the discard port (RFC 863) of the other end.
func knock(to netip.Addr) error {
	const discard = 9
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, discard)))
	if err != nil {
		return fmt.Errorf("send a datagram through the tunnel to %s: %w", to, err)
	}
	defer c.Close()
	// An answer of "port unreachable" to an earlier one is a proof too.
	_, _ = c.Write([]byte("chokepoint"))
	return nil
}

// goneTime is how long a closed device may take to disappear.
const goneTime = 2 * time.Second

// gone waits until a device has disappeared, and deletes it if it does not.
func gone(dev string) error {
	for deadline := time.Now().Add(goneTime); time.Now().Before(deadline); time.Sleep(look) {
		if there, err := kernel.Exists(dev); err != nil || !there {
			return err
		}
	}
	return kernel.DeleteLink(dev)
}

// ended makes the ordinary ends of a session no error.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, host.ErrAbandoned) {
		return nil
	}
	return conclude(err)
}

// conclude lets the controller tell "this kernel cannot" from other errors.
func conclude(err error) error {
	if errors.Is(err, kernel.ErrUnsupported) {
		return fmt.Errorf("%w: %w", host.ErrUnsupported, err)
	}
	return err
}
