package kernel

import (
	"encoding/binary"
	"errors"
	"syscall"
)

// Qdisc is a queueing discipline or class from a dump. It contains a struct tcmsg and the attributes of
// linux/rtnetlink.h and gen_stats.h. Kind, Options and App are slices of the parsed datagram.
type Qdisc struct {
	Index          int32
	Handle, Parent uint32
	Kind, Options  []byte
	App            []byte // kind-specific counters (TCA_STATS_APP)
	Stab           bool   // whether it has a size table
	QdiscCounters
}

// QdiscCounters holds counters since the creation of a queueing discipline. Backlog and Queue are gauges: the
// bytes and packets that are currently queued.
type QdiscCounters struct{ Bytes, Packets, Drops, Overlimits, Requeues, Backlog, Queue uint64 }

// ErrNetlink reports a message from the kernel that violates linux/netlink.h.
var ErrNetlink = errors.New("malformed netlink answer")

var errShort = errors.New("shorter than the kernel's own structure")

// These are the header sizes of a netlink message, and of rtnetlink before the attributes, in bytes.
const (
	NetlinkHeader   = 16
	TrafficHeader   = 20
	attributeHeader = 4
	nlmsgError      = 2
	nlmsgDone       = 3
)

// EachMessage calls the function do for each message in a datagram of a dump. done reports whether the dump
// has ended. If the kernel rejects the request, err is a syscall.Errno. EachMessage, EachAttribute and
// ReadQdisc do not allocate memory, because they run ten times a second.
func EachMessage(b []byte, do func(kind uint16, body []byte) error) (done bool, err error) {
	for len(b) > 0 {
		if len(b) < NetlinkHeader {
			return false, ErrNetlink
		}

		size := binary.NativeEndian.Uint32(b)
		if size < NetlinkHeader || uint64(size) > uint64(len(b)) {
			return false, ErrNetlink
		}

		kind := binary.NativeEndian.Uint16(b[4:])
		body := b[NetlinkHeader:size]
		switch kind {
		case nlmsgDone:
			return true, nil
		case nlmsgError:
			if len(body) < 4 {
				return false, ErrNetlink
			}
			return false, syscall.Errno(-int32(binary.NativeEndian.Uint32(body)))
		}

		if err := do(kind, body); err != nil {
			return false, err
		}

		b = b[min(int(size+3)&^3, len(b)):]
	}
	return false, nil
}

// EachAttribute calls the function do for each netlink attribute in b until do returns false. In that case,
// or if b is malformed, EachAttribute returns false.
func EachAttribute(b []byte, do func(kind uint16, v []byte) bool) bool {
	const flags = 0xc000 // NLA_F_NESTED and NLA_F_NET_BYTEORDER
	for len(b) >= attributeHeader {
		n := int(binary.NativeEndian.Uint16(b))
		if n < attributeHeader || n > len(b) || !do(binary.NativeEndian.Uint16(b[2:])&^flags,
			b[attributeHeader:n]) {
			return false
		}

		b = b[min((n+3)&^3, len(b)):]
	}
	return true
}

// ReadQdisc parses the body of an RTM_NEWQDISC or RTM_NEWTCLASS message.
func ReadQdisc(b []byte) (q Qdisc, ok bool) {
	const kind, options, stats2, stab = 1, 2, 7, 8 // TCA_KIND, TCA_OPTIONS, TCA_STATS2, TCA_STAB
	const basic, queue, app, packets64 = 1, 3, 4, 8
	if len(b) < TrafficHeader {
		return Qdisc{}, false
	}

	q.Index = int32(binary.NativeEndian.Uint32(b[4:]))
	q.Handle, q.Parent = binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:])
	var stats []byte
	ok = EachAttribute(b[TrafficHeader:], func(at uint16, v []byte) bool {
		switch at {
		case kind:
			for q.Kind = v; len(q.Kind) > 0 && q.Kind[len(q.Kind)-1] == 0; {
				q.Kind = q.Kind[:len(q.Kind)-1]
			}
		case options:
			q.Options = v
		case stats2:
			stats = v
		case stab:
			q.Stab = true
		}
		return true
	})
	// The 64-bit packet count (Linux 5.5 and later) comes after the 32-bit packet count.
	ok = ok && EachAttribute(stats, func(at uint16, v []byte) bool {
		switch {
		case at == basic && len(v) >= 12: // struct gnet_stats_basic
			q.Bytes, q.Packets = binary.NativeEndian.Uint64(v), word(v, 2)
		case at == packets64 && len(v) >= 8:
			q.Packets = binary.NativeEndian.Uint64(v)
		case at == queue && len(v) >= 20: // struct gnet_stats_queue
			q.Queue, q.Backlog, q.Drops = word(v, 0), word(v, 1), word(v, 2)
			q.Requeues, q.Overlimits = word(v, 3), word(v, 4)
		case at == app:
			q.App = v
		}
		return true
	})
	if !ok {
		return Qdisc{}, false
	}

	return q, true
}
