package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/overhead"
)

// proof is the time limit for the first packet in each direction to arrive. It allows for one lost handshake
// initiation, because WireGuard repeats it after 5 s (REKEY_TIMEOUT).
const proof = 8 * time.Second
const pollEvery = 5 * time.Millisecond // interval between attempts to send the first packet
const answerTime = 5 * time.Second     // time limit for a node to reply or to undo its changes
const presharedSize = 32               // length of the shared secret in bytes
// killTime is the time limit for removing an end that hangs. Its agent kills the end after answerTime.
const killTime = answerTime + 3*time.Second

// agentlessTime is used instead of answerTime for an end without an agent. A slow router needs several
// commands for a reply, and the first request also starts a guard, which the scheduler of the router must
// confirm.
const agentlessTime = 90 * time.Second

// end is one end of a path, and the session that keeps it up.
type end struct {
	End
	kind    string // kind of tunnel, including the implementation
	session host.Session
	public  string
	device  string // device of the tunnel, or the outgoing device
	failed  bool   // whether the node has already returned an error and undone its changes
	opened  bool   // whether the end's device was created
	hung    bool   // whether the end did not reply in time
}

// patience returns the time limit for a reply of the end.
func (e *end) patience() time.Duration {
	if e.Agentless {
		return agentlessTime
	}
	return answerTime
}

// path is the controller's side of a tunnel that is up.
type path struct {
	spec Spec
	traits
	mu   sync.Mutex // a session allows only one exchange at a time
	ends [2]*end
	down bool
}

// kind is a kind of tunnel whose ends have the same implementation.
type kind struct {
	nodeSide
	traits
}

type traits struct {
	fitted  bool   // whether the default MTU is the largest that fits into a 1500-byte underlay
	mute    bool   // whether the kind has no handshake
	burdens bool   // result of Burdens; see Burden
	remark  string // text to append to a positive answer
	// serverFirst makes Up connect the far end, which is a server, before the near end.
	serverFirst bool
	// connectTime is the time limit for an end to connect. 0 means answerTime.
	connectTime time.Duration
}

// Check probes both nodes.
func (k kind) Check(ctx context.Context, near, far End) check.Answer {
	for _, e := range []End{near, far} {
		a := probeEnd(ctx, k.Name(), e)
		if a.State != check.Yes {
			return a
		}
	}
	return check.OKBecause("%s", k.remark)
}

// Up sets up both ends with a shared secret, and returns once packets have passed in both directions.
func (k kind) Up(ctx context.Context, near, far End, s Spec) (Path, error) {
	if s.MTU == 0 && k.fitted {
		s.MTU = fitMTU(k.Name(), near.Outer.Is6())
	}
	return up(ctx, &path{
		spec:   s,
		traits: k.traits,
		ends:   [2]*end{{End: near, kind: k.Name()}, {End: far, kind: k.Name()}},
	})
}

func (k kind) Serve(ctx context.Context, s host.Session) error { return serve(ctx, s, k) }
func (k kind) Burdens() bool                                   { return k.burdens }

func probeEnd(ctx context.Context, name string, e End) check.Answer {
	var o offer
	err := e.Agent.Invoke(ctx, host.Verb(host.FamilyTunnel, name), request{Probe: true, Outer: e.Outer}, &o)
	switch {
	case errors.Is(err, host.ErrUnknownVerb), errors.Is(err, host.ErrUnsupported):
		return check.Not("%s: %v", e.Node, err)
	case err != nil:
		return check.CouldNotTell("%s: %v", e.Node, err)
	}

	if o.Answer.State != check.Yes && o.Answer.Reason != "" {
		o.Answer.Reason = e.Node + ": " + o.Answer.Reason
	}

	return o.Answer
}

func up(ctx context.Context, p *path) (Path, error) {
	near := p.ends[0]
	far := p.ends[1]
	p.spec.MTU = cmp.Or(p.spec.MTU, DefaultMTU)
	p.spec.Port = cmp.Or(p.spec.Port, DefaultPort)
	p.spec.Device = cmp.Or(p.spec.Device, DefaultDevice)
	err := plausible(near.End, far.End, p.spec)
	if err == nil {
		err = p.lay(ctx)
	}

	if err != nil {
		// Undo the changes even if the caller has given up.
		return nil, errors.Join(fmt.Errorf("lay %s from %s to %s: %w", p.Implementation(), near.Node,
			far.Node, err), p.Down(context.WithoutCancel(ctx)))
	}

	return p, nil
}

// fitMTU returns the largest inner MTU for an Ethernet underlay with an MTU of 1500 bytes.
func fitMTU(kind string, outer6 bool) int {
	t, _ := overhead.Named(kind)
	if t.OuterIP = overhead.V4; outer6 {
		t.OuterIP = overhead.V6
	}
	return t.FitMTU(1500)
}

// plausible returns an error for addresses and MTUs that would otherwise fail late or without an error.
func plausible(near, far End, s Spec) error {
	if near.Outer.Is4() != far.Outer.Is4() || !near.Outer.IsValid() {
		return fmt.Errorf("outer addresses %v and %v are not of one IP version", near.Outer, far.Outer)
	}

	if s.MTU < 576 || s.MTU > 65535-80 {
		return fmt.Errorf("mtu %d, want 576 to %d", s.MTU, 65535-80)
	}

	ends := []End{near, far}
	for i, e := range ends {
		if len(e.Inner) == 0 {
			return fmt.Errorf("%s has no inner address", e.Node)
		}

		for _, r := range e.Routes {
			other := ends[1-i]
			if r.Contains(other.Outer) {
				return fmt.Errorf("route %s of %s leads to %s's outer address into the tunnel itself", r,
					e.Node, other.Node)
			}
		}

		for _, p := range e.Inner {
			if p.Addr().Is6() && s.MTU < 1280 {
				return fmt.Errorf("mtu %d with IPv6 inside, which needs 1280 (RFC 8200)", s.MTU)
			}
		}
	}

	return nil
}

func (p *path) lay(ctx context.Context) error {
	for _, e := range p.ends {
		if err := p.open(ctx, e); err != nil {
			return fmt.Errorf("%s: %w", e.Node, err)
		}
	}

	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	preshared := host.NewSecret(presharedSize)
	// A router would receive the preshared key in a command and store it. Therefore, use the all-zero key,
	// which means no key.
	if p.agentless() {
		preshared = host.SecretFrom(make([]byte, presharedSize))
	}
	defer preshared.Use(func(b []byte) error { clear(b); return nil })
	order := p.ends
	if p.serverFirst {
		slices.Reverse(order[:])
	}

	for i, e := range order {
		if err := p.connect(e, order[1-i], preshared); err != nil {
			return fmt.Errorf("%s: %w", e.Node, err)
		}
	}

	for i, e := range p.ends {
		if err := p.prove(ctx, e, p.ends[1-i]); err != nil {
			return err
		}
	}

	return nil
}

func (p *path) open(ctx context.Context, e *end) (err error) {
	e.session, err = e.Agent.Open(ctx, host.Verb(host.FamilyTunnel, e.kind), p.request(e))
	if err != nil {
		return err
	}

	var o offer
	if err := e.receive(&o, e.patience()); err != nil {
		return err
	}

	e.public = o.Public
	e.opened = true
	return nil
}

func (p *path) connect(e, peer *end, preshared host.Secret) error {
	if err := e.session.(host.SecretSession).SendSecret(preshared); err != nil {
		return err
	}

	if err := e.session.Send(p.connection(e, peer)); err != nil {
		return err
	}

	var s status
	if err := e.receive(&s, cmp.Or(p.connectTime, e.patience())); err != nil {
		return err
	}

	e.device = cmp.Or(s.Device, p.spec.Device)
	if s.MTU != p.spec.MTU {
		return fmt.Errorf("device %s has mtu %d, want %d", p.spec.Device, s.MTU, p.spec.MTU)
	}

	return nil
}

// connection returns the message to e that describes its peer.
func (p *path) connection(e, peer *end) connect {
	allowed := make([]netip.Prefix, 0, len(peer.Inner)+len(e.Routes))
	for _, in := range peer.Inner {
		allowed = append(allowed, alone(in))
	}
	return connect{
		Public:   peer.public,
		Endpoint: netip.AddrPortFrom(peer.Outer, uint16(p.spec.Port)),
		Allowed:  append(allowed, e.Routes...),
	}
}

func (p *path) request(e *end) request {
	return request{
		Spec:   p.spec,
		Inner:  e.Inner,
		Routes: e.Routes,
		Outer:  e.Outer,
		Near:   e == p.ends[0],
	}
}

// prove makes one end (from) send datagrams until the other end (to) has counted one as received.
func (p *path) prove(ctx context.Context, from, to *end) error {
	most := proof
	if p.agentless() {
		most = 3 * proof // each request runs a command on the router
	}

	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("nothing arrived within %v", most))
	defer cancel()
	before, err := to.inquire()
	if err != nil {
		return err
	}

	var targets []netip.Addr
	for _, in := range to.Inner {
		targets = append(targets, in.Addr())
	}

	for {
		sent, err := from.inquire(targets...)
		if err != nil {
			return err
		}

		got, err := to.inquire()
		if err != nil {
			return err
		}

		if got.ReceivedPackets > before.ReceivedPackets && (p.mute || sent.Handshake >= 0 &&
			got.Handshake >= 0) {
			return nil
		}

		if err := host.Pause(ctx, pollEvery); err != nil {
			return fmt.Errorf("prove the path from %s to %s: %w: %s; %s", from.Node, to.Node, err,
				sent.words(from.Node, p.mute), got.words(to.Node, p.mute))
		}
	}
}

func (p *path) agentless() bool { return p.ends[0].Agentless || p.ends[1].Agentless }

func (s status) words(node string, mute bool) string {
	handshake := ""
	if !mute {
		handshake = map[bool]string{true: "handshake done, ", false: "no handshake, "}[s.Handshake >= 0]
	}

	text := fmt.Sprintf("%s: %s%d packets sent, %d received", node, handshake, s.SentPackets,
		s.ReceivedPackets)
	if s.Complaint != "" {
		text += ", says: " + s.Complaint
	}

	return text
}

func (p *path) MTU() int          { return p.spec.MTU }
func (p *path) Devices() []string { return []string{p.ends[0].device, p.ends[1].device} }

// Implementation returns the kind including its implementation, such as "wireguard-userspace". If the
// implementations of the ends differ, it returns both.
func (p *path) Implementation() string {
	near := p.ends[0]
	far := p.ends[1]
	if near.kind == far.kind {
		return near.kind
	}

	return fmt.Sprintf("%s (%s %s, %s %s)", nameAuto, near.Node, near.implementation(), far.Node,
		far.implementation())
}

// implementation returns "userspace" or "kernel".
func (e *end) implementation() string {
	if strings.HasPrefix(e.kind, nameOpenVPN) {
		return "userspace"
	}

	if word, ok := strings.CutPrefix(e.kind, nameAuto+"-"); ok {
		return word
	}
	return "kernel"
}

// Counters reads the counters of the near end. If the reply is late, Counters closes the session, and the
// tunnel is lost, because a later reply could not be matched to its request.
func (p *path) Counters(ctx context.Context, underLoad bool) (Counters, error) {
	within, cancel := withinTime(context.Background(), answerTime)
	if underLoad {
		within, cancel = host.Beyond(ctx, answerTime)
	}
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return Counters{}, fmt.Errorf("read counters of %s: the tunnel is down", p.Implementation())
	}

	if ctx.Err() != nil {
		return Counters{}, context.Cause(ctx)
	}

	near := p.ends[0]
	s, err := near.inquireWithin(within, ask{})
	if err != nil {
		return Counters{}, fmt.Errorf("read counters of %s at %s: %w", near.kind, near.Node, err)
	}

	return Counters{
		Sent:           s.Sent,
		Received:       s.Received,
		Handshake:      s.Handshake,
		Implementation: near.implementation(),
		Counted:        cmp.Or(s.Counted, near.device),
	}, nil
}

// Down ends both sessions. It returns when the nodes have undone their changes or ctx ends.
func (p *path) Down(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return nil
	}

	p.down = true
	within, cancel := withinTime(ctx, answerTime)
	defer cancel()
	var errs []error
	for i, e := range p.ends {
		if e.session == nil {
			continue
		}

		err := e.finish(within)
		if e.hung || e.failed && e.opened {
			err = p.clear(ctx, e, p.ends[1-i])
		}

		if err != nil {
			errs = append(errs, fmt.Errorf("take down %s at %s: %w", e.kind, e.Node, err))
		}
	}

	return errors.Join(errs...)
}

// clear removes an end whose process hangs or has failed.
func (p *path) clear(ctx context.Context, e, peer *end) error {
	ctx, cancel := withinTime(ctx, killTime)
	defer cancel()
	r := p.request(e)
	c := p.connection(e, peer)
	r.Clear = &c
	err := e.Agent.Invoke(ctx, host.Verb(host.FamilyTunnel, e.kind), r, nil)
	if errors.Is(err, host.ErrUnreachable) {
		return nil // the node is gone, and with it the end
	}

	return err
}

// finish waits until the handler on the node has returned. It returns an error if the node could not undo its
// changes, or if ctx ends. It returns nil if the node is gone, because the device is then gone, too. It also
// returns nil if the end has failed, because this was already reported, or if the session was abandoned,
// because the node then undoes its changes by itself.
func (e *end) finish(ctx context.Context) error {
	s := e.session
	defer s.Close()
	if e.failed || s.Finish() != nil {
		return nil
	}

	for {
		var last status
		err := host.Await(ctx, s, &last)
		_, told := errors.AsType[*host.RemoteError](err)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			e.hung = true
			return err
		case told:
			return err // the node could not undo its changes
		default:
			return nil
		}
	}
}

func withinTime(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %v", d))
}

// inquire makes the end send a datagram to each of the given addresses, and returns the status of the end.
func (e *end) inquire(prove ...netip.Addr) (status, error) {
	within, cancel := withinTime(context.Background(), e.patience())
	defer cancel()
	got, err := e.inquireWithin(within, ask{prove})
	if err != nil {
		err = fmt.Errorf("%s: %w", e.Node, err)
	}

	return got, err
}

func (e *end) inquireWithin(ctx context.Context, a ask) (got status, err error) {
	if err := e.session.Send(a); err != nil {
		return got, fmt.Errorf("%w: %v", host.ErrUnreachable, err)
	}

	err = e.receiveWithin(ctx, &got)
	return got, err
}

// receive decodes the next message into v. It waits for the message for at most d.
func (e *end) receive(v any, d time.Duration) error {
	ctx, cancel := withinTime(context.Background(), d)
	defer cancel()
	return e.receiveWithin(ctx, v)
}

// receiveWithin decodes the next message into v. Do not pass the context of a caller, which may end at any
// time. A session that is abandoned in the middle of an exchange is unusable, even for waiting until the node
// has undone its changes.
func (e *end) receiveWithin(ctx context.Context, v any) error {
	err := host.Await(ctx, e.session, v)
	e.hung = e.hung || err != nil && ctx.Err() != nil
	_, told := errors.AsType[*host.RemoteError](err)
	e.failed = e.failed || told
	return err
}
