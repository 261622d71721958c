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

// These verbs verify a path before a measurement.
const (
	VerbCounters   = "path/counters"
	VerbEcho       = "path/echo"
	VerbReach      = "path/reach"
	VerbReassembly = "path/reassembly"
	VerbRoute      = "path/route"
	VerbFacing     = "path/facing"
)

// readCounters returns the counters of devices, by name.
func readCounters(_ context.Context, devices []string) (out map[string]kernel.LinkCounters, err error) {
	out = map[string]kernel.LinkCounters{}
	for _, d := range devices {
		if out[d], err = kernel.Counters(d); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readReassembly returns the share of the memory for IP fragment reassembly that is in use.
func readReassembly(context.Context, struct{}) (float64, error) { return kernel.Reassembly(), nil }

// EchoAt makes a node echo the datagrams that it receives at an address, until the session ends. The node
// replies as soon as it is listening.
type EchoAt struct {
	Addr netip.Addr `json:"addr"`
	Port int        `json:"port"`
	// Tag restricts the echo to datagrams that a Reach with the same Tag sends and that contain the sender's
	// cookie. The reply to a datagram with a wrong cookie contains the right cookie. Tag is "" in a lab's own
	// network.
	Tag string `json:"tag,omitempty"`
	// From is the only address whose datagrams are echoed. If From is the zero Addr, datagrams from all
	// addresses are echoed.
	From netip.Addr `json:"from,omitzero"`
}

// A tagged datagram starts with the number of the attempt (1 byte), a hash of the tag (8 bytes) and the
// sender's cookie (8 bytes; see host.Cookies).
const (
	markSize   = 8
	cookieAt   = 1 + markSize
	taggedSize = cookieAt + 8
)

func markOf(tag string) []byte {
	h := sha256.Sum256([]byte("path check " + tag))
	return h[:markSize]
}

// marked reports whether datagram b has the tag.
func marked(b []byte, tag string) bool {
	return tag == "" || len(b) >= taggedSize && bytes.Equal(b[1:1+markSize], markOf(tag))
}

func cookieOf(b []byte) uint64 { return binary.BigEndian.Uint64(b[cookieAt:]) }

// tagged returns the start of a tagged datagram.
func tagged(try int, tag string, cookie uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte{byte(try)}, markOf(tag)...), cookie)
}

// listenExact opens a UDP socket whose packets have DF set, so neither the sender nor a router fragments
// them.
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
			return nil // the session has ended and closed the socket
		}

		if !marked(buf[:n], at.Tag) || at.From.IsValid() && from.Addr().Unmap() != at.From.Unmap() {
			continue
		}

		cookie := cookies.Of(from)
		if at.Tag != "" && cookieOf(buf) != cookie {
			n = len(binary.BigEndian.AppendUint64(buf[:cookieAt], cookie))
		}

		c.WriteToUDPAddrPort(buf[:n], from) // ignore the error: the datagram is too large for the return path
	}
}

// Reach asks a node to send a datagram of each size to an echo, without fragmentation, and to wait for the
// echo of each datagram. Sizes and Beyond are sizes of IP packets in bytes. A packet of size Beyond is
// expected not to pass, so it is tried only once. If Sizes is empty and Beyond is 0, the node only reports
// the device.
type Reach struct {
	From   netip.Addr `json:"from"`
	To     netip.Addr `json:"to"`
	Port   int        `json:"port"`
	Sizes  []int      `json:"sizes"`
	Beyond int        `json:"beyond,omitempty"`
	Tag    string     `json:"tag,omitempty"` // see EchoAt; the smallest size must leave room for the tag
	// Tries is the number of attempts for each of Sizes. If Tries is 0, the node makes enough attempts for
	// the handshake of a tunnel.
	Tries int `json:"tries,omitempty"`
}

// Reached lists the sizes of the packets that came back. Bytes is their total UDP payload in one direction.
type Reached struct {
	Back  []int  `json:"back"`
	Bytes int64  `json:"bytes"`
	Note  string `json:"note,omitempty"` // last error, such as "message too long"
	// Device is the device of the route to the echo. It is set only if Sizes was empty and Beyond was 0. It
	// is "" if the device is unknown.
	Device string `json:"device,omitempty"`
}

// These limits apply to a request, which may come from another user's controller.
const (
	maxSizes   = 64
	largestIPv = 40 + 1<<16 - 1 // maximum size of an IPv6 packet in bytes; the maximum for IPv4 is smaller
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

// These are the number of attempts for each datagram and the time to wait for each answer. The first datagram
// may be lost while a neighbour's address is resolved or a tunnel performs its handshake. In a tunnel over
// TCP, a lost datagram is delayed until TCP retransmits it, which takes a second or more if the
// retransmission is lost, too.
const (
	patience = 30
	wait     = 100 * time.Millisecond
)

// headers returns the total size of the IP and UDP headers in bytes.
func (r Reach) headers() int {
	if r.To.Is6() {
		return 40 + 8
	}
	return 20 + 8
}

// roundTrip sends datagrams in IP packets of the given size until a datagram comes back. It returns the
// payload size in bytes.
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

// askCookie requests our cookie from the echo, which returns only datagrams with a valid cookie.
func askCookie(c *net.UDPConn, r Reach) (uint64, error) {
	b, err := exchange(c, r, tagged(0, r.Tag, 0), cmp.Or(r.Tries, patience),
		func(b []byte) bool { return len(b) == taggedSize && cookieOf(b) != 0 })
	if err != nil {
		return 0, err
	}
	return cookieOf(b), nil
}

// exchange sends payload until a datagram arrives for which theOne returns true, and returns that datagram.
// It gives up after the given number of tries.
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
				return nil, err // a retry would fail, too: the packet is too large for the device
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

// FindRoute asks a node for the addresses of the routers on the path to an echo responder. A router reveals
// its address when it drops a packet whose TTL has expired (RFC 1812 §4.3.2.7).
type FindRoute struct {
	From netip.Addr `json:"from"`
	To   netip.Addr `json:"to"`
	Port int        `json:"port"`
	Tag  string     `json:"tag"` // see EchoAt
}

// FoundRoute lists the addresses of the routers on the path, the nearest first. A router that did not reveal
// its address is listed with the zero Addr. If Reached is set, the echo returned a datagram and the list is
// complete.
type FoundRoute struct {
	Reached bool         `json:"reached"`
	Routers []netip.Addr `json:"routers"`
}

// These limit the number of routers on the path, and the attempts for each router.
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
