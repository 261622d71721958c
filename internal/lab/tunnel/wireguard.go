package tunnel

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// All returns all kinds of tunnels in display order.
func All() []Tunnel {
	return slices.Concat([]Tunnel{WireGuard(), WireGuardKernel(), WireGuardUserspace()}, espKinds(),
		openVPNKinds())
}

// These are the defaults of a WireGuard tunnel. The MTU is the one that wg-quick(8) sets if the MTU of an
// Ethernet underlay is 1500 bytes. It leaves room for an outer IPv6 header.
const (
	DefaultMTU    = 1420
	DefaultPort   = 51820
	DefaultDevice = "wg0"
)

// These are the names of the kinds.
const (
	nameAuto      = "wireguard"
	nameKernel    = "wireguard-kernel"
	nameUserspace = "wireguard-userspace"
)

// WireGuard returns the kind of tunnel that uses the implementation in the kernel on each end that has it,
// and the userspace implementation on the other ends.
func WireGuard() Tunnel {
	return auto{kind{nodeSide: wireguard{nameAuto, openUserspaceDevice, probeUserspaceDevice}}}
}

// WireGuardKernel returns the kind of tunnel that uses the implementation of WireGuard in the kernel.
func WireGuardKernel() Tunnel {
	return kind{nodeSide: wireguard{nameKernel, openKernelDevice, probeKernelDevice}}
}

// WireGuardUserspace returns the kind of tunnel that uses golang.zx2c4.com/wireguard, including the offloads
// of its TUN device and socket. Serve should run in a separate process, so that its CPU time can be measured
// separately.
func WireGuardUserspace() Tunnel {
	return kind{nodeSide: wireguard{nameUserspace, openUserspaceDevice, probeUserspaceDevice}}
}

// wireguard is an implementation of WireGuard. Through the controller, the ends exchange public keys and
// receive a preshared key.
type wireguard struct {
	name     string
	device   func(r request) (device, error)
	possible func() check.Answer
}

func (w wireguard) Name() string                                { return w.name }
func (w wireguard) probe(context.Context, request) check.Answer { return w.possible() }
func (w wireguard) clear(r request, _ connect) error            { return removeDevice(r.Device) }

// device is a device of an implementation on this node. It exists, and has its MTU, before configure sets it
// up.
type device interface {
	configure(w kernel.WireGuard) error
	// handshake returns the time of the last handshake, or the zero time if there was none.
	handshake() (time.Time, error)
	complaint() string
	close() error
}

// wireguardSide is one end of a WireGuard tunnel. Its private key is overwritten once the device has it. The
// copy in the implementation remains as long as the device exists.
type wireguardSide struct {
	device
	request
	private kernel.Key
	own     kernel.Key // public key of this end
}

func (w wireguard) open(r request) (side, error) {
	if err := unused(r.Device); err != nil {
		return nil, err
	}

	e := &wireguardSide{request: r}
	var err error
	if e.own, err = newKey(&e.private); err == nil {
		e.device, err = w.device(r)
	}

	if err != nil {
		e.private.Clear()
		return nil, err
	}

	return e, nil
}

func (e *wireguardSide) public() string { return spellPublic(e.own) }

func (e *wireguardSide) configure(_ context.Context, secret []byte, c connect) (err error) {
	defer e.private.Clear()
	w := kernel.WireGuard{
		Private:   e.private,
		Port:      e.Port,
		Preshared: kernel.Key(secret),
		Endpoint:  c.Endpoint,
		Allowed:   c.Allowed,
	}
	defer w.Private.Clear()
	defer w.Preshared.Clear()
	if w.Peer, err = parsePublic(c.Public); err != nil {
		return err
	}

	if err := e.device.configure(w); err != nil {
		return err
	}

	return address(e.request)
}

func (e *wireguardSide) read() (status, error) {
	now, err := deviceStatus(e.Device)
	if err != nil {
		return status{}, err
	}

	last, err := e.handshake()
	if err != nil {
		return status{}, err
	}

	if !last.IsZero() {
		now.Handshake = max(0, int64(time.Since(last)))
	}

	now.Complaint = e.complaint()
	return now, nil
}

func (e *wireguardSide) close() error {
	e.private.Clear()
	return errors.Join(e.device.close(), gone(e.Device))
}

// newKey stores a new private key in private and returns the public key.
func newKey(private *kernel.Key) (kernel.Key, error) {
	rand.Read(private[:]) // never returns an error since Go 1.24
	// Clamp the key (RFC 7748 §5) as WireGuard's tools do before they store a key.
	private[0] &= 248
	private[31] = private[31]&127 | 64
	k, err := ecdh.X25519().NewPrivateKey(private[:])
	if err != nil {
		return kernel.Key{}, errors.New("make private key: no X25519 here")
	}

	return kernel.Key(k.PublicKey().Bytes()), nil
}

func spellPublic(k kernel.Key) string { return base64.StdEncoding.EncodeToString(k[:]) }

func parsePublic(text string) (kernel.Key, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) != len(kernel.Key{}) {
		return kernel.Key{}, errors.New("parse public key: want 32 bytes in base64")
	}
	return kernel.Key(b), nil
}

type kernelDevice struct{ name string } // device of the implementation in the kernel

func openKernelDevice(r request) (device, error) {
	if err := kernel.AddWireGuard(r.Device, r.MTU); err != nil {
		return nil, err
	}
	return kernelDevice{r.Device}, nil
}

func (d kernelDevice) configure(w kernel.WireGuard) error {
	return kernel.ConfigureWireGuard(d.name, w)
}

func (d kernelDevice) handshake() (time.Time, error) {
	s, err := kernel.ReadWireGuard(d.name)
	return s.Handshake, err
}

func (kernelDevice) complaint() string { return "" }
func (d kernelDevice) close() error    { return kernel.DeleteLink(d.name) }

func probeKernelDevice() check.Answer {
	return kernelAnswer(kernel.ProbeWireGuard(), "the kernel has no WireGuard",
		"load the module wireguard, or take wireguard-userspace")
}

// auto is WireGuard with the best implementation that each end supports. Our controllers do not use its verb,
// because they request a particular implementation.
type auto struct{ kind }

func (auto) Check(ctx context.Context, near, far End) check.Answer {
	var why []string
	for _, e := range []End{near, far} {
		kernel := probeEnd(ctx, nameKernel, e)
		if kernel.State == check.Yes {
			continue
		}

		if e.Agentless { // a router has no userspace implementation
			return kernel
		}

		a := probeEnd(ctx, nameUserspace, e)
		if a.State != check.Yes {
			return a
		}

		why = append(why, kernel.Reason)
	}

	if len(why) == 0 {
		return check.OKBecause("kernel implementation")
	}

	return check.OKBecause("userspace implementation; not the kernel's, because %s", strings.Join(why, "; "))
}

func (auto) Up(ctx context.Context, near, far End, s Spec) (Path, error) {
	p := &path{spec: s}
	for i, e := range []End{near, far} {
		p.ends[i] = &end{End: e, kind: nameUserspace}
		if e.Agentless || probeEnd(ctx, nameKernel, e).State == check.Yes {
			p.ends[i].kind = nameKernel
		}
	}
	return up(ctx, p)
}
