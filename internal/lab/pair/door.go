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

// Bounds of what strangers can take: so many may be proving who they are at once, in all and from one home,
// and so long. Whoever failed keeps the place for a while, so that one who tries again and again costs no
// processor that a run has need of. While nobody is inside, who finds no place gets that of another, the
// longest waiting of his own home if it has its share, else of the home that has most: strangers who hold
// on to theirs keep no controller out.
const (
	maxGuests     = 64
	maxGuestsEach = 8
	proveTime     = 5 * time.Second
	restTime      = 100 * time.Millisecond
)

const forEver = 100 * 365 * 24 * time.Hour

// errRoom is why a guest goes for whom others came.
var errRoom = errors.New("too many have proved nothing; made room for another")

// guest is one who is proving who he is, or has failed to a while ago.
type guest struct {
	home netip.Prefix
	show context.CancelCauseFunc // shows him out
}

// homeOf is what one machine or site has at least: an address, or 64 bits of IPv6, in which each machine
// has as many addresses as it likes (RFC 4291 §2.5.4).
func homeOf(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	home, _ := a.Prefix(bits) // of the zero address, which tests' pipes have: the zero prefix
	return home
}

// ErrIdle is why a door closed for which nobody came.
var ErrIdle = errors.New("nobody came")

// Door lets controllers in that know the code, one at a time.
type Door struct {
	Code host.Secret
	Idle time.Duration // without a visit after which it closes; 0 = never
	// Tell is told who came, was refused and left, by one goroutine at a time; nil: nobody is told.
	Tell func(from netip.AddrPort, what string)

	prove time.Duration // proveTime, unless a test is in a hurry

	told   sync.Mutex
	mu     sync.Mutex
	guests []*guest // in the order in which they came
	inside string   // who is being served, "" = nobody
}

// Serve lets controllers in until ctx ends or nobody comes, and returns when all have left; serve lives as
// long as one's visit. It closes ln.
func (d *Door) Serve(ctx context.Context, ln net.Listener, serve func(ctx context.Context,
	v *Visit) error) error {
	cert, err := certificate()
	if err != nil {
		ln.Close()
		return err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		SessionTicketsDisabled: true}
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
		case err != nil: // too many files, or a guest who left while coming in
			pause(ctx, 50*time.Millisecond)
			continue
		}
		from := addrOf(raw.RemoteAddr())
		proving, show := context.WithCancelCause(ctx)
		g := &guest{homeOf(from.Addr()), show}
		if !d.enter(g) {
			show(nil)
			raw.Close()
			d.tell(from, "refused: too many connections that have proved nothing")
			continue
		}
		all.Go(func() {
			defer raw.Close()
			defer show(nil)
			stop := context.AfterFunc(proving, func() { raw.Close() })
			defer stop()
			v, err := d.admit(proving, raw, config)
			if err != nil {
				raw.Close()
				d.refused(proving, g, from, err)
				return
			}
			d.leave(g)
			idle.Stop()
			d.host(ctx, from, v, serve)
			idle.Reset(patience)
		})
	}
}

// refused tells of who did not prove the code, and has his place rest unless another has it.
func (d *Door) refused(proving context.Context, g *guest, from netip.AddrPort, why error) {
	switch ended := context.Cause(proving); {
	case ended == nil:
		d.tell(from, "refused: "+why.Error())
	case errors.Is(ended, errRoom):
		d.tell(from, "refused: "+errRoom.Error())
	}
	pause(proving, restTime)
	d.leave(g)
}

// host serves the one who is inside.
func (d *Door) host(ctx context.Context, from netip.AddrPort, v *Visit, serve func(ctx context.Context,
	v *Visit) error) {
	d.tell(from, "a run has begun")
	err := serve(ctx, v)
	d.free()
	if err != nil && ctx.Err() == nil {
		d.tell(from, "the run has ended: "+err.Error())
		return
	}
	d.tell(from, "the run has ended")
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (d *Door) tell(from netip.AddrPort, what string) {
	if d.Tell == nil {
		return
	}
	d.told.Lock()
	defer d.told.Unlock()
	d.Tell(from, what)
}

// enter finds a guest a place, if need be and may be another's.
func (d *Door) enter(g *guest) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	has := map[netip.Prefix]int{}
	for _, other := range d.guests {
		has[other.home]++
	}
	most := g.home
	if has[most] < maxGuestsEach {
		if len(d.guests) < maxGuests {
			d.guests = append(d.guests, g)
			return true
		}
		for _, other := range d.guests {
			if has[other.home] > has[most] {
				most = other.home
			}
		}
	}
	if d.inside != "" {
		return false
	}
	i := slices.IndexFunc(d.guests, func(other *guest) bool { return other.home == most })
	d.guests[i].show(errRoom)
	d.guests = append(slices.Delete(d.guests, i, i+1), g)
	return true
}

func (d *Door) leave(g *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guests = slices.DeleteFunc(d.guests, func(other *guest) bool { return other == g })
}

// take reserves the one place inside.
func (d *Door) take(who string) (by string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inside != "" {
		return d.inside, false
	}
	d.inside = who
	return "", true
}

func (d *Door) free() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside = ""
}

// admit has a guest prove the code within its time. With an error, nobody is inside who was not before.
func (d *Door) admit(ctx context.Context, raw net.Conn, config *tls.Config) (*Visit, error) {
	limit := d.prove
	if limit == 0 {
		limit = proveTime
	}
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
		_, _ = c.Write(answer{verdict: v, reason: reason}.bytes()) // refused whether it hears it or not
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
	v, err := d.welcome(c, raw)
	if err != nil {
		d.free()
		return nil, impatient(err, limit)
	}
	return v, nil
}

func (d *Door) welcome(c *tls.Conn, raw net.Conn) (*Visit, error) {
	ours, err := proof(d.Code, c, peer)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(answer{verdict: accepted, proof: ours}.bytes()); err != nil {
		return nil, err
	}
	return visit(c, raw, d.Code)
}

// impatient words the errors of guests that are no controllers.
func impatient(err error, limit time.Duration) error {
	var alert tls.RecordHeaderError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("proved nothing within %s", limit)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("hung up before it proved anything")
	case errors.As(err, &alert):
		return errStranger
	}
	return cause(err)
}
