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

// The exchange with a node: request → offer; then the preshared key as a secret and connect → status;
// then any number of ask → status. No message has a place for a secret.

// request is the first message: make a device with these addresses, or only say whether it could be made.
type request struct {
	Probe  bool           `json:"probe,omitempty"`
	Device string         `json:"device,omitempty"`
	MTU    int            `json:"mtu,omitempty"`
	Port   int            `json:"port,omitempty"`
	Queue  int            `json:"queue,omitempty"` // packets that the device holds; 0 = as made
	Inner  []netip.Prefix `json:"inner,omitempty"`
	Routes []netip.Prefix `json:"routes,omitempty"`
	Outer  netip.Addr     `json:"outer,omitzero"` // of this end
	Near   bool           `json:"near,omitempty"` // this is the near end
	// Clear: remove what an end that was connected so and is no more has left. One that hangs is waited for:
	// the agent kills it.
	Clear *connect `json:"clear,omitempty"`
}

// setQueue bounds what a TUN device holds for its process, where that is asked for.
func setQueue(r request) error {
	if r.Queue == 0 {
		return nil
	}
	return kernel.SetTxQueueLen(r.Device, r.Queue)
}

// offer is the node's public key, or the answer to a probe.
type offer struct {
	Public string       `json:"public,omitempty"`
	Answer check.Answer `json:"answer"`
}

// connect names the peer: its public key, its outer address, and what it may send and be sent.
type connect struct {
	Public   string         `json:"public"`
	Endpoint netip.AddrPort `json:"endpoint"`
	Allowed  []netip.Prefix `json:"allowed"`
}

// ask wants the status; before it, a datagram to each address in Prove.
type ask struct {
	Prove []netip.Addr `json:"prove,omitempty"`
}

// status is of the tunnel's device: bytes and packets of what it carried, the age of the last handshake in
// ns or -1, and the implementation's last complaint. A tunnel without device says by which one its packets
// leave, and what counts them.
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

// nodeSide holds what a kind of tunnel does on a node: it says whether it could, and makes one end.
type nodeSide interface {
	Name() string
	probe(ctx context.Context, r request) check.Answer
	open(r request) (side, error)
	clear(r request, c connect) error // removes what a killed one has left
}

// side is one end on its node. configure sets it up, and neither it nor read keeps a secret; close undoes
// everything, however far it came.
type side interface {
	public() string // what the other end is told: a key, a fingerprint, or nothing
	configure(ctx context.Context, secret []byte, c connect) error
	read() (status, error)
	close() error
}

// serve holds one end: it lives as long as the session.
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

// clearEnd waits until no process holds the end any more, and removes what the last one has left.
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

// removeDevice deletes a device that is still there.
func removeDevice(dev string) error {
	there, err := kernel.Exists(dev)
	if err != nil || !there {
		return err
	}
	return kernel.DeleteLink(dev)
}

// unused says that a node has no such device yet.
func unused(device string) error {
	there, err := kernel.Exists(device)
	if err == nil && there {
		err = fmt.Errorf("make tunnel device %s: it exists already", device)
	}
	return err
}

// meet tells the other end what is public, hears of it and the secret, and sets this end up. The secret is
// overwritten before it returns; what an implementation keeps lives as long as its device.
func meet(ctx context.Context, s host.Session, public string,
	configure func(ctx context.Context, secret []byte, c connect) error) error {
	if err := s.Send(offer{Public: public, Answer: check.OK()}); err != nil {
		return err
	}

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

// report tells the state, and again after each question.
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

// deviceStatus returns what the kernel counts of a tunnel's device, without a handshake.
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

// kernelAnswer is that to a probe of what a kernel may lack.
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

// sendDatagram sends one to the discard port (RFC 863) of the other end.
func sendDatagram(to netip.Addr) error {
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

const goneTime = 2 * time.Second // how long a closed device may take to disappear

// gone waits until a device has disappeared, and deletes it if it does not.
func gone(dev string) error {
	for deadline := time.Now().Add(goneTime); time.Now().Before(deadline); time.Sleep(pollEvery) {
		if there, err := kernel.Exists(dev); err != nil || !there {
			return err
		}
	}
	return kernel.DeleteLink(dev)
}

// ended makes the ordinary ends of a session no error.
func ended(err error) error { return conclude(host.Quiet(err)) }

// conclude lets the controller tell "this kernel cannot" from other errors.
func conclude(err error) error {
	if errors.Is(err, kernel.ErrUnsupported) {
		return fmt.Errorf("%w: %w", host.ErrUnsupported, err)
	}
	return err
}
