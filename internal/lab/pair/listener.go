package pair

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Bounds on what unauthenticated clients can use: how many may be pending at once, in total and from one
// prefix, and for how long. A client that failed keeps its place for a while, so that repeated attempts do
// not take CPU time needed by a run. While no run is served, a client that finds no place takes another's:
// the longest waiting one of its own prefix if that has its share, else of the prefix with the most. Thus
// unauthenticated clients that hold on to their places keep no controller out.
const (
	maxPending     = 64
	maxPendingEach = 8
	proveTime      = 5 * time.Second
	restTime       = 100 * time.Millisecond
)

const forEver = 100 * 365 * 24 * time.Hour

// errEvicted means that a connection was dropped in favour of another.
var errEvicted = errors.New("too many have proved nothing; another took the place")

// pending is a connection whose client is proving that it knows the code, or recently failed to.
type pending struct {
	prefix netip.Prefix
	drop   context.CancelCauseFunc // ends it
}

// prefixOf returns the smallest prefix that one machine or site has: an address, or 64 bits of IPv6, in which
// each machine can have any number of addresses (RFC 4291 §2.5.4).
func prefixOf(a netip.Addr) netip.Prefix {
	prefix, _ := a.Prefix(min(a.BitLen(), 64)) // for the zero address of tests' pipes: the zero prefix
	return prefix
}

// ErrIdle means that a listener closed because no controller came.
var ErrIdle = errors.New("nobody came")

// Listener admits controllers that know the code, one at a time.
type Listener struct {
	Code host.Secret
	Idle time.Duration // closes after this time without a visit; 0 = never
	Once bool          // closes after the first visit
	// Tell is called, by one goroutine at a time, for each controller that came, was refused or left; nil:
	// not called.
	Tell func(from netip.AddrPort, what string)

	prove time.Duration // proveTime, or shorter in tests

	told    sync.Mutex
	mu      sync.Mutex
	waiting []*pending // in order of arrival
	inside  string     // whom it serves, "" = nobody
}

// Serve admits controllers until ctx ends or no controller comes, and returns when all have left; serve runs
// for the length of a visit. It closes ln.
func (d *Listener) Serve(ctx context.Context, ln net.Listener, serve func(ctx context.Context,
	v *Visit) error) error {
	cert, err := certificate()
	if err != nil {
		ln.Close()
		return err
	}

	config := &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{cert},
		SessionTicketsDisabled: true,
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	context.AfterFunc(ctx, func() { ln.Close() })
	patience := cmp.Or(d.Idle, forEver)
	idle := time.AfterFunc(patience, func() { cancel(ErrIdle) })
	defer idle.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	for {
		raw, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				raw.Close()
			}

			if errors.Is(context.Cause(ctx), ErrIdle) {
				return ErrIdle
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("wait for a run: %w", err)
		case err != nil: // too many files, or a client that left while connecting
			_ = host.Pause(ctx, 50*time.Millisecond)
			continue
		}

		from := addrOf(raw.RemoteAddr())
		proving, drop := context.WithCancelCause(ctx)
		g := &pending{prefixOf(from.Addr()), drop}
		if !d.enter(g) {
			drop(nil)
			raw.Close()
			d.tell(from, "refused: too many connections that have proved nothing")
			continue
		}

		all.Go(func() {
			defer raw.Close()
			defer drop(nil)
			defer context.AfterFunc(proving, func() { raw.Close() })()
			v, err := d.admit(proving, raw, config)
			if err != nil {
				raw.Close()
				d.refused(proving, g, from, err)
				return
			}

			d.leave(g)
			idle.Stop()
			d.host(ctx, from, v, serve)
			if d.Once {
				cancel(nil)
			}

			idle.Reset(patience)
		})
	}
}

// refused reports a client that did not prove the code, and keeps its place blocked unless another client
// took it.
func (d *Listener) refused(proving context.Context, g *pending, from netip.AddrPort, why error) {
	switch ended := context.Cause(proving); {
	case ended == nil:
		d.tell(from, "refused: "+why.Error())
	case errors.Is(ended, errEvicted):
		d.tell(from, "refused: "+errEvicted.Error())
	}

	_ = host.Pause(proving, restTime)
	d.leave(g)
}

// host serves the controller inside.
func (d *Listener) host(ctx context.Context, from netip.AddrPort, v *Visit, serve func(ctx context.Context,
	v *Visit) error) {
	d.tell(from, "a run has begun")
	err := serve(ctx, v)
	if !d.Once {
		d.free()
	}

	why := ""
	if err != nil && ctx.Err() == nil {
		why = ": " + err.Error()
	}

	d.tell(from, "the run has ended"+why)
}

func (d *Listener) tell(from netip.AddrPort, what string) {
	if d.Tell == nil {
		return
	}

	d.told.Lock()
	defer d.told.Unlock()
	d.Tell(from, what)
}

// enter finds a place for a connection, or takes that of another if necessary and permitted.
func (d *Listener) enter(g *pending) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	has := map[netip.Prefix]int{}
	for _, other := range d.waiting {
		has[other.prefix]++
	}

	most := g.prefix
	if has[most] < maxPendingEach {
		if len(d.waiting) < maxPending {
			d.waiting = append(d.waiting, g)
			return true
		}

		for _, other := range d.waiting {
			if has[other.prefix] > has[most] {
				most = other.prefix
			}
		}
	}

	if d.inside != "" {
		return false
	}

	i := slices.IndexFunc(d.waiting, func(other *pending) bool { return other.prefix == most })
	d.waiting[i].drop(errEvicted)
	d.waiting = append(slices.Delete(d.waiting, i, i+1), g)
	return true
}

func (d *Listener) leave(g *pending) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = slices.DeleteFunc(d.waiting, func(other *pending) bool { return other == g })
}

// take reserves the only place inside.
func (d *Listener) take(who string) (by string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inside != "" {
		return d.inside, false
	}

	d.inside = who
	return "", true
}

func (d *Listener) free() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside = ""
}

// admit lets a client prove the code within its time. With an error, no new client is inside.
func (d *Listener) admit(ctx context.Context, raw net.Conn, config *tls.Config) (*Visit, error) {
	limit := cmp.Or(d.prove, proveTime)
	if err := raw.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}

	watched(raw)
	c := tls.Server(raw, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, impatient(err, limit)
	}

	b := make([]byte, helloSize)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, impatient(err, limit)
	}

	h, err := parseHello(b)
	if err != nil {
		return nil, err
	}

	refuse := func(v verdict, reason string) (*Visit, error) {
		_, _ = c.Write(answer{verdict: v, reason: reason}.bytes()) // refused whether it receives this or not
		_ = c.Close()
		return nil, errors.New(reason)
	}
	if h.version != version {
		return refuse(otherVersion, fmt.Sprintf("its version of the pair protocol is %d, ours is %d",
			h.version, version))
	}

	theirs, err := proof(d.Code, c, controller)
	if err != nil {
		return nil, err
	}

	if !hmac.Equal(h.proof, theirs) {
		return refuse(wrongCode, "wrong code")
	}

	who := addrOf(raw.RemoteAddr()).String()
	if by, ok := d.take(who); !ok {
		return refuse(busy, "another run is being served, of "+by)
	}

	v, err := d.accept(c, raw)
	if err != nil {
		d.free()
		return nil, impatient(err, limit)
	}

	return v, nil
}

func (d *Listener) accept(c *tls.Conn, raw net.Conn) (*Visit, error) {
	ours, err := proof(d.Code, c, peer)
	if err != nil {
		return nil, err
	}

	if _, err := c.Write(answer{verdict: accepted, proof: ours}.bytes()); err != nil {
		return nil, err
	}

	return visit(c, raw, d.Code)
}

// impatient rewords the errors of clients that are not controllers.
func impatient(err error, limit time.Duration) error {
	var alert tls.RecordHeaderError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("proved nothing within %s", limit)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("hung up before it proved anything")
	case errors.As(err, &alert):
		return errProtocol
	}
	return host.Cause(err)
}
