package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Verbs that prove a path before it is measured.
const (
	VerbCounters   = "path/counters"
	VerbEcho       = "path/echo"
	VerbReach      = "path/reach"
	VerbReassembly = "path/reassembly"
	VerbRoute      = "path/route"
	VerbFacing     = "path/facing"
)

// readCounters answers a list of device names with their counters.
func readCounters(_ context.Context, devices []string) (out map[string]kernel.LinkCounters, err error) {
	out = map[string]kernel.LinkCounters{}
	for _, d := range devices {
		if out[d], err = kernel.Counters(d); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readReassembly answers with the used share of the memory for fragments.
func readReassembly(context.Context, struct{}) (float64, error) { return kernel.Reassembly(), nil }

// EchoAt asks a node to return datagrams to an address, until the session ends. It answers once it listens.
type EchoAt struct {
	Addr netip.Addr `json:"addr"`
	Port int        `json:"port"`
	// Tag limits the echo to datagrams of a Reach with the same tag that contain the cookie of their sender;
	// other senders receive the cookie. It is "" in a network of our own.
	Tag string `json:"tag,omitempty"`
	// From is the only address that gets answers; the zero value allows any.
	From netip.Addr `json:"from,omitzero"`
}

// A tagged datagram begins with the number of the attempt, the mark of its tag and the echo's cookie for its
// sender, see host.Cookies.
const (
	markSize   = 8
	cookieAt   = 1 + markSize
	taggedSize = cookieAt + 8
)

func markOf(tag string) []byte {
	h := sha256.Sum256([]byte("path check " + tag))
	return h[:markSize]
}

// marked reports whether a datagram carries the tag.
func marked(b []byte, tag string) bool {
	return tag == "" || len(b) >= taggedSize && bytes.Equal(b[1:1+markSize], markOf(tag))
}

func cookieOf(b []byte) uint64 { return binary.BigEndian.Uint64(b[cookieAt:]) }

// tagged returns the head of a datagram.
func tagged(try int, tag string, cookie uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte{byte(try)}, markOf(tag)...), cookie)
}

// listenExact opens a UDP socket whose packets are never fragmented by the sender and may not be on the path.
func listenExact(ctx context.Context, at netip.AddrPort) (*net.UDPConn, error) {
	network := "udp4"
	if at.Addr().Is6() {
		network = "udp6"
	}

	level, name, value := unfragmented(at.Addr().Is6())
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) (err error) {
		ctl := rc.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, name, value) })
		return cmp.Or(ctl, err)
	}}
	c, err := lc.ListenPacket(ctx, network, at.String())
	if err != nil {
		return nil, err
	}

	return c.(*net.UDPConn), nil
}

func echo(ctx context.Context, s host.Session, at EchoAt) error {
	c, err := listenExact(ctx, netip.AddrPortFrom(at.Addr, uint16(at.Port)))
	if err != nil {
		return fmt.Errorf("listen for the path check: %w", err)
	}
	defer c.Close()
	if err := s.Send(struct{}{}); err != nil {
		return err
	}

	ended := make(chan struct{})
	defer func() { <-ended }()
	go func() {
		defer close(ended)
		for s.Recv(nil) == nil {
		}

		c.Close()
	}()
	buf := make([]byte, 1<<16)
	cookies := host.NewCookies()
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return nil // closed: the session has ended
		}

		if !marked(buf[:n], at.Tag) || at.From.IsValid() && from.Addr().Unmap() != at.From.Unmap() {
			continue
		}

		cookie := cookies.Of(from)
		if at.Tag != "" && cookieOf(buf) != cookie {
			n = len(binary.BigEndian.AppendUint64(buf[:cookieAt], cookie))
		}

		c.WriteToUDPAddrPort(buf[:n], from) // too large for the return path: the sender will miss it
	}
}

// Reach asks a node to send one datagram of each size (IP length) to an echo, unfragmented, and to wait for
// its return. Beyond is a size that should not pass; it is tried once. Without sizes it returns only the
// device.
type Reach struct {
	From   netip.Addr `json:"from"`
	To     netip.Addr `json:"to"`
	Port   int        `json:"port"`
	Sizes  []int      `json:"sizes"`
	Beyond int        `json:"beyond,omitempty"`
	Tag    string     `json:"tag,omitempty"` // see EchoAt; each size must have room for it
	// of each of Sizes; 0 = enough for a tunnel's handshake
	Tries int `json:"tries,omitempty"`
}

// Reached lists the sizes that made the round trip; Bytes is their payload, one way.
type Reached struct {
	Back  []int  `json:"back"`
	Bytes int64  `json:"bytes"`
	Note  string `json:"note,omitempty"` // the last error, such as "message too long"
	// Device leads to the echo, if no size was asked for; "" = unknown.
	Device string `json:"device,omitempty"`
}

// Bounds on a request, which may come from somebody else's controller.
const (
	maxSizes   = 64
	largestIPv = 40 + 1<<16 - 1 // of either version
)

func (r Reach) check() error {
	wrong := func(size int) bool { return size < 0 || size > largestIPv }
	switch {
	case len(r.Sizes) > maxSizes:
		return fmt.Errorf("%d sizes: at most %d are tried at once", len(r.Sizes), maxSizes)
	case slices.ContainsFunc(r.Sizes, wrong) || wrong(r.Beyond):
		return fmt.Errorf("sizes %v and %d: an IP packet has 0 to %d bytes", r.Sizes, r.Beyond, largestIPv)
	case r.Tries < 0 || r.Tries > patience:
		return fmt.Errorf("%d tries: want 0 to %d", r.Tries, patience)
	case r.Port < 1 || r.Port > 1<<16-1:
		return fmt.Errorf("port %d: want 1 to %d", r.Port, 1<<16-1)
	}
	return nil
}

func reach(ctx context.Context, r Reach) (out Reached, err error) {
	if err := r.check(); err != nil {
		return out, fmt.Errorf("check the path to %s: %w", r.To, err)
	}

	if len(r.Sizes) == 0 && r.Beyond == 0 {
		w, err := kernel.WayTo(r.To)
		return Reached{Device: w.Device}, err
	}

	c, err := listenExact(ctx, netip.AddrPortFrom(r.From, 0))
	if err != nil {
		return out, fmt.Errorf("check the path from %s: %w", r.From, err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	cookie := uint64(0)
	if r.Tag != "" {
		if cookie, err = askCookie(c, r); err != nil {
			return Reached{Note: err.Error()}, nil
		}
	}

	for _, size := range r.Sizes {
		bytes, err := roundTrip(c, r, cookie, size, cmp.Or(r.Tries, patience))
		if err != nil {
			out.Note = err.Error()
			continue
		}

		out.Back = append(out.Back, size)
		out.Bytes += int64(bytes)
	}

	if r.Beyond > 0 {
		if _, err := roundTrip(c, r, cookie, r.Beyond, 1); err == nil {
			out.Back = append(out.Back, r.Beyond)
		}
	}

	return out, nil
}

// Attempts per datagram, and the wait for each: the first one may be sent before a neighbour is resolved or a
// tunnel has made its handshake, and one in a tunnel over TCP waits until the tunnel retransmits what it
// lost, a second or more if that was lost twice.
const (
	patience = 30
	wait     = 100 * time.Millisecond
)

// headers returns the size of a packet's headers in bytes.
func (r Reach) headers() int {
	if r.To.Is6() {
		return 40 + 8
	}
	return 20 + 8
}

// roundTrip sends a datagram until one returns, and reports its payload.
func roundTrip(c *net.UDPConn, r Reach, cookie uint64, size, tries int) (int, error) {
	if size < r.headers() {
		return 0, fmt.Errorf("packet of %d bytes: smaller than its headers", size)
	}

	payload := make([]byte, size-r.headers())
	if r.Tag != "" {
		if len(payload) < taggedSize {
			return 0, fmt.Errorf("packet of %d bytes: too small to show its tag", size)
		}

		copy(payload, tagged(0, r.Tag, cookie))
	}

	_, err := exchange(c, r, payload, tries, func(b []byte) bool {
		return len(b) == len(payload) && (r.Tag == "" || cookieOf(b) == cookie)
	})
	return len(payload), err
}

// askCookie asks the echo for the cookie without which it returns nothing.
func askCookie(c *net.UDPConn, r Reach) (uint64, error) {
	b, err := exchange(c, r, tagged(0, r.Tag, 0), cmp.Or(r.Tries, patience),
		func(b []byte) bool { return len(b) == taggedSize && cookieOf(b) != 0 })
	if err != nil {
		return 0, err
	}
	return cookieOf(b), nil
}

// exchange sends a payload until an answer satisfies theOne, and returns that answer.
func exchange(c *net.UDPConn, r Reach, payload []byte, tries int, theOne func(b []byte) bool) ([]byte,
	error) {
	to := netip.AddrPortFrom(r.To, uint16(r.Port))
	buf := make([]byte, 1<<16)
	last := fmt.Errorf("packet of %d bytes did not return", r.headers()+len(payload))
	for try := range tries {
		if len(payload) > 0 {
			payload[0] = byte(try)
		}

		if _, err := c.WriteToUDPAddrPort(payload, to); err != nil {
			if errors.Is(err, syscall.EMSGSIZE) {
				return nil, err // conclusive
			}

			last = err
		}

		c.SetReadDeadline(time.Now().Add(wait))
		for {
			n, _, err := c.ReadFromUDPAddrPort(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}

			if err != nil {
				last = err
				break
			}

			if marked(buf[:n], r.Tag) && theOne(buf[:n]) {
				return buf[:n], nil
			}
		}
	}

	return nil, last
}

// FindRoute asks a node which routers lie between it and an echo: they identify themselves when a datagram's
// time to live ends there (RFC 1812 §4.3.2.7).
type FindRoute struct {
	From netip.Addr `json:"from"`
	To   netip.Addr `json:"to"`
	Port int        `json:"port"`
	Tag  string     `json:"tag"` // see EchoAt
}

// FoundRoute holds what a node found: how many routers forward a datagram, known only if one came back, and
// their addresses, the nearest first. A router that does not identify itself has the zero address.
type FoundRoute struct {
	Reached bool         `json:"reached"`
	Routers []netip.Addr `json:"routers"`
}

// Bounds on the search: routers on the path, and attempts for each.
const (
	maxRouters = 24
	routeTries = 3
)

func route(ctx context.Context, r FindRoute) (FoundRoute, error) {
	found, err := findRoute(ctx, r)
	if err != nil {
		err = fmt.Errorf("find the route to %s: %w", r.To, err)
	}
	return found, err
}
