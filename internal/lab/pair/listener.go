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

// These limits bound the resources that unauthenticated clients use: the number of pending connections, in
// total and per prefix, and the duration of a connection. If a client fails to prove that it knows the
// pairing code, its slot remains occupied for restTime, so that repeated attempts do not take CPU time from a
// run. While no run is being served, a new client that finds no free slot evicts another client. If the
// prefix of the new client has used its share, this is the oldest client of that prefix. Otherwise, it is the
// oldest client of the prefix with the most connections. Therefore, unauthenticated clients that keep
// connections open cannot lock out a controller.
const (
	maxPending     = 64
	maxPendingEach = 8
	proveTime      = 5 * time.Second
	restTime       = 100 * time.Millisecond
)

const forEver = 100 * 365 * 24 * time.Hour

// errEvicted reports that a connection was dropped in favour of another connection.
var errEvicted = errors.New("too many have proved nothing; another took the place")

// pending is a connection whose client has not proved that it knows the pairing code: it has yet to do so, or
// has failed.
type pending struct {
	prefix netip.Prefix
	drop   context.CancelCauseFunc // closes the connection
}

// prefixOf returns the smallest prefix that identifies a machine or site. It is an IPv4 address, or the first
// 64 bits of an IPv6 address, because a machine can use any address in its /64 (RFC 4291 §2.5.4).
func prefixOf(a netip.Addr) netip.Prefix {
	prefix, _ := a.Prefix(min(a.BitLen(), 64)) // the zero Prefix if a is the zero Addr, as for pipes in tests
	return prefix
}

// ErrIdle reports that a listener was closed because no controller connected.
var ErrIdle = errors.New("nobody came")

// Listener accepts controllers that know the pairing code, and serves one controller at a time.
type Listener struct {
	Code host.Secret
	Idle time.Duration // time without a visit after which Serve returns ErrIdle; 0 means unlimited
	Once bool          // whether Serve returns after the first visit
	// Tell, if not nil, is called when a controller has connected, was refused, or has left. Calls do not
	// overlap.
	Tell func(from netip.AddrPort, what string)

	prove time.Duration // equals proveTime, except in tests

	told    sync.Mutex
	mu      sync.Mutex
	waiting []*pending // in order of arrival
	inside  string     // address of the controller that is being served; "" means none
}

// Serve accepts controllers on ln, and calls serve for the duration of each visit. It returns when ctx ends,
// after Idle without a visit, or, if Once is set, after the first visit. Before it returns, it waits until
// all clients are gone. It closes ln.
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
		case err != nil: // there are no free file descriptors, or the client has already left
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

// refused reports a client that did not prove that it knows the pairing code. It keeps the client's slot
// occupied for restTime, unless another client evicts it.
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

// host serves a controller that has been admitted.
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

// enter registers a pending connection and reports whether it got a slot. If there is no free slot, enter
// evicts another connection, unless a run is being served.
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

// take reserves the listener for one controller. If another controller has reserved it, take returns that
// controller's address, and otherwise "".
func (d *Listener) take(who string) (by string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	by = d.inside
	d.inside = cmp.Or(by, who)
	return by
}

func (d *Listener) free() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside = ""
}

// admit waits, for at most proveTime, until a client has proved that it knows the pairing code. If admit
// returns an error, the listener is not reserved.
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
		// Ignore errors: the client is refused even if it does not receive the reason.
		_, _ = c.Write(answer{verdict: v, reason: reason}.bytes())
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

	if by := d.take(addrOf(raw.RemoteAddr()).String()); by != "" {
		return refuse(busy, "another run is being served, of "+by)
	}

	ours, err := proof(d.Code, c, peer)
	if err == nil {
		_, err = c.Write(answer{verdict: accepted, proof: ours}.bytes())
	}

	var v *Visit
	if err == nil {
		v, err = visit(c, raw, d.Code)
	}

	if err != nil {
		d.free()
		return nil, impatient(err, limit)
	}

	return v, nil
}

// impatient returns an error with a readable message if the client is not a controller.
func impatient(err error, limit time.Duration) error {
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("proved nothing within %s", limit)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("hung up before it proved anything")
	case plain:
		return errProtocol
	}
	return host.Cause(err)
}
