package pair

import (
	"context"
	"crypto/hmac"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

const meetTime = 10 * time.Second // time limit for connecting and for proving the pairing code

// Visit is a connection on which both ends have proved that they know the pairing code.
type Visit struct {
	io.ReadWriteCloser
	Local, Remote netip.AddrPort // addresses as seen from this end
	// Data is the key for the data sockets of the run. Only the two ends know it.
	Data host.Secret
}

// Dial connects to the peer at address ("host:port"), and proves that this end knows the pairing code.
func Dial(ctx context.Context, address string, code host.Secret) (*Visit, error) {
	ctx, cancel := context.WithTimeout(ctx, meetTime)
	defer cancel()
	d := net.Dialer{Control: smallSegments}
	raw, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, check.WithHint(fmt.Errorf("reach the peer at %s: %w", address, host.Cause(err)),
			"start chokepoint peer on the other machine; a firewall there must let its ports in")
	}

	v, err := meet(ctx, raw, address, code)
	if err != nil {
		raw.Close()
		return nil, err
	}

	return v, nil
}

// ErrBusy reports that a peer rejects a controller that has the right pairing code. The peer serves another
// controller, or has not yet noticed that a connection is lost.
var ErrBusy = errors.New("the peer is busy")

// refusal is the error that Dial returns if a peer rejects a controller.
type refusal struct {
	address string
	answer
}

func (r refusal) Error() string {
	return fmt.Sprintf("the peer at %s refused: %s", r.address, r.reason)
}

func (r refusal) Is(target error) bool { return target == ErrBusy && r.verdict == busy }

// hints maps each kind of refusal to a suggestion for the user's next step.
var hints = map[verdict]string{
	wrongCode:    "type the code that chokepoint peer shows there; it is another one each time",
	busy:         "wait until that run is over",
	otherVersion: "use the same version of chokepoint on both machines",
}

func meet(ctx context.Context, raw net.Conn, address string, code host.Secret) (*Visit, error) {
	watched(raw)
	if at, ok := ctx.Deadline(); ok {
		if err := raw.SetDeadline(at); err != nil {
			return nil, err
		}
	}

	c := tls.Client(raw, &tls.Config{
		MinVersion: tls.VersionTLS13,
		// No authority has signed the certificate of the peer. Instead, the proofs of the pairing code
		// authenticate the connection.
		InsecureSkipVerify: true,
	})
	unanswered := func(err error) error {
		return check.WithHint(fmt.Errorf("no chokepoint peer answers at %s: %w", address, host.Cause(err)),
			"is it the port that chokepoint peer shows?")
	}
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, unanswered(err)
	}

	ours, err := proof(code, c, controller)
	if err != nil {
		return nil, err
	}

	if _, err := c.Write(hello{version, ours}.bytes()); err != nil {
		return nil, unanswered(err)
	}

	a, err := readAnswer(c)
	if err != nil {
		return nil, unanswered(err)
	}

	if a.verdict != accepted {
		return nil, check.WithHint(refusal{address, a}, hints[a.verdict])
	}

	theirs, err := proof(code, c, peer)
	if err != nil {
		return nil, err
	}

	if !hmac.Equal(a.proof, theirs) {
		return nil, check.WithHint(fmt.Errorf("the machine at %s does not know the code", address),
			"somebody else may be answering there")
	}

	return visit(c, raw, code)
}

// visit returns the Visit for a connection on which both ends have proved the pairing code.
func visit(c *tls.Conn, raw net.Conn, code host.Secret) (*Visit, error) {
	key, err := proof(code, c, data)
	if err != nil {
		return nil, err
	}

	if err := raw.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}

	return &Visit{
		ReadWriteCloser: host.Steady{Deadlined: c, Silence: Silence, Unread: unread},
		Local:           addrOf(raw.LocalAddr()),
		Remote:          addrOf(raw.RemoteAddr()),
		Data:            host.SecretFrom(key),
	}, nil
}

func addrOf(a net.Addr) netip.AddrPort {
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.AddrPort{} // not an IP address, for example the address of a pipe in a test
	}
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}
