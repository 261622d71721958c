package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// A session with a node starts with a request and the node's offer. The controller then sends the preshared
// key (as a secret) and a connect message, and the node replies with a status. After that, the node replies
// to each ask message with a status. Only the secret message contains secrets.

// request is the first message of a session. It asks the node to create a device with addresses. If Probe is
// set, it only asks whether the node can do so.
type request struct {
	Probe bool `json:"probe,omitempty"`
	Spec
	Inner  []netip.Prefix `json:"inner,omitempty"`
	Routes []netip.Prefix `json:"routes,omitempty"`
	Outer  netip.Addr     `json:"outer,omitzero"` // outer address of this end
	Near   bool           `json:"near,omitempty"` // whether this is the near end
	// Clear, if set, asks the node to remove what remains of a connected end whose process hangs. The node
	// first waits until the agent has killed this process.
	Clear *connect `json:"clear,omitempty"`
}

// setQueue sets the queue length of a TUN device if the request contains one.
func setQueue(r request) error {
	if r.Queue == 0 {
		return nil
	}
	return kernel.SetTxQueueLen(r.Device, r.Queue)
}

// offer contains the public key of the node, or the answer to a probe.
type offer struct {
	Public string       `json:"public,omitempty"`
	Answer check.Answer `json:"answer"`
}

// connect describes the peer: its public key, outer address and allowed IPs.
type connect struct {
	Public   string         `json:"public"`
	Endpoint netip.AddrPort `json:"endpoint"`
	Allowed  []netip.Prefix `json:"allowed"`
}

// ask requests a status. The node first sends a datagram to each address in Prove.
type ask struct {
	Prove []netip.Addr `json:"prove,omitempty"`
}

// status describes an end: the bytes and packets that it has carried, the age of the last handshake in ns (-1
// if there was none), and the last error message of the implementation. Device and Counted are set only if
// the tunnel has no device. They contain the outgoing device and the object whose counters are reported.
type status struct {
	Sent            uint64 `json:"sent"`
	Received        uint64 `json:"received"`
	SentPackets     uint64 `json:"sent_packets"`
	ReceivedPackets uint64 `json:"received_packets"`
	Handshake       int64  `json:"handshake_ns"`
	MTU             int    `json:"mtu"`
	Complaint       string `json:"complaint,omitempty"`
	Device          string `json:"device,omitempty"`
	Counted         string `json:"counted,omitempty"`
}

// nodeSide is the part of a kind of tunnel that runs on nodes.
type nodeSide interface {
	Name() string
	probe(ctx context.Context, r request) check.Answer
	open(r request) (side, error)
	clear(r request, c connect) error // removes what remains of an end whose process was killed
}

// side is one end of a tunnel on its node. configure sets it up. Neither configure nor read retains a secret.
// close undoes everything, even if configure failed halfway.
type side interface {
	public() string // value to send to the other end: a public key, a fingerprint, or ""
	configure(ctx context.Context, secret []byte, c connect) error
	read() (status, error)
	close() error
}

// serve sets up one end of a tunnel and keeps it until the session ends.
func serve(ctx context.Context, s host.Session, k nodeSide) (err error) {
	var r request
	if err := s.Recv(&r); err != nil {
		return ended(err)
	}

	if r.Probe {
		return s.Send(offer{Answer: k.probe(ctx, r)})
	}

	if r.Clear != nil {
		return clearEnd(ctx, k, r)
	}

	owned, err := own(r.Device)
	if err != nil {
		return conclude(err)
	}
	defer owned.Close()
	e, err := k.open(r)
	if err != nil {
		return conclude(err)
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := meet(ctx, s, e.public(), e.configure); err != nil {
		return ended(err)
	}

	return ended(report(ctx, s, e.read, sendDatagram))
}

// clearEnd waits until no process owns the end, and removes what remains of the end.
func clearEnd(ctx context.Context, k nodeSide, r request) error {
	for {
		owned, err := own(r.Device)
		if err == nil {
			return errors.Join(k.clear(r, *r.Clear), owned.Close())
		}

		if err := host.Pause(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// removeDevice deletes a device. It is not an error if the device does not exist.
func removeDevice(dev string) error {
	there, err := kernel.Exists(dev)
	if err != nil || !there {
		return err
	}
	return kernel.DeleteLink(dev)
}

// unused returns an error if the node already has a device with the given name.
func unused(device string) error {
	there, err := kernel.Exists(device)
	if err == nil && there {
		err = fmt.Errorf("make tunnel device %s: it exists already", device)
	}
	return err
}

// meet exchanges public keys or fingerprints with the other end through the controller, receives the secret
// and calls configure. It overwrites the secret before it returns. The copy in the tunnel's implementation
// remains as long as the device exists.
func meet(ctx context.Context, s host.Session, public string,
	configure func(ctx context.Context, secret []byte, c connect) error) error {
	if err := s.Send(offer{Public: public, Answer: check.OK()}); err != nil {
		return err
	}

	secret, err := s.(host.SecretSession).RecvSecret()
	if err != nil {
		return err
	}

	return secret.Use(func(b []byte) error {
		defer clear(b)
		if len(b) != presharedSize {
			return fmt.Errorf("receive preshared key: %d bytes, want %d", len(b), presharedSize)
		}

		var c connect
		if err := s.Recv(&c); err != nil {
			return err
		}

		return configure(ctx, b, c)
	})
}

// report sends a status once, and then another status in reply to each request.
func report(ctx context.Context, s host.Session, read func() (status, error),
	send func(to netip.Addr) error) error {
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
			if err := send(to); err != nil {
				return err
			}
		}
	}
	return nil
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

// deviceStatus returns a status that contains the kernel's counters of a device, but no handshake.
func deviceStatus(dev string) (status, error) {
	c, err := kernel.Counters(dev)
	if err != nil {
		return status{}, err
	}

	mtu, err := kernel.MTU(dev)
	return status{
		Sent:            c.TxBytes,
		Received:        c.RxBytes,
		SentPackets:     c.TxPackets,
		ReceivedPackets: c.RxPackets,
		Handshake:       -1,
		MTU:             mtu,
	}, err
}

// kernelAnswer returns the answer to a probe, given the error that the probed kernel function returned.
func kernelAnswer(err error, lacks, hint string) check.Answer {
	switch {
	case err == nil:
		return check.OK()
	case errors.Is(err, kernel.ErrUnsupported):
		return check.Not("%s: %v", lacks, err).Hinted("%s", hint)
	case errors.Is(err, fs.ErrPermission):
		return check.Not("%v", err).Hinted("run as root, or where user namespaces are allowed")
	}
	return check.CouldNotTell("%v", err)
}

// sendDatagram sends a datagram to the discard port of the other end (RFC 863).
func sendDatagram(to netip.Addr) error {
	const discard = 9
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, discard)))
	if err != nil {
		return fmt.Errorf("send a datagram through the tunnel to %s: %w", to, err)
	}
	defer c.Close()
	// Ignore errors. "connection refused" is the reply to an earlier datagram, and therefore proves that it
	// arrived.
	_, _ = c.Write([]byte("chokepoint"))
	return nil
}

const goneTime = 2 * time.Second // time limit for a closed device to disappear

// gone waits until a device has disappeared. If the device does not disappear in time, gone deletes it.
func gone(dev string) error {
	for deadline := time.Now().Add(goneTime); time.Now().Before(deadline); time.Sleep(pollEvery) {
		if there, err := kernel.Exists(dev); err != nil || !there {
			return err
		}
	}
	return kernel.DeleteLink(dev)
}

// ended returns nil if err is an error with which a session normally ends.
func ended(err error) error { return conclude(host.Quiet(err)) }

// conclude adds host.ErrUnsupported, which the controller recognises, to an error that is a
// kernel.ErrUnsupported.
func conclude(err error) error {
	if errors.Is(err, kernel.ErrUnsupported) {
		return fmt.Errorf("%w: %w", host.ErrUnsupported, err)
	}
	return err
}
