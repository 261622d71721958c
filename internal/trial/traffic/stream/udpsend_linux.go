package stream

import (
	"encoding/binary"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

const sendBatch = 128

// udpSender sends the flows of a source in batches, with one system call per batch.
type udpSender struct {
	*udpSource
	flows []*udpFlow
	batch *traffic.Batch
	ttl   []byte // control message on a shared socket; nil if the TTL is set on the socket
}

func newUDPSender(flows []*udpFlow, q traffic.Request, all int) *udpSender {
	s := &udpSender{flows: flows, udpSource: newUDPSource(counts(flows), q, all, sendBatch)}
	s.udpSource.give, s.udpSource.mark = s.give, s.mark
	return s
}

// counts returns the udpCount of each flow.
func counts(flows []*udpFlow) (list []*udpCount) {
	for _, f := range flows {
		list = append(list, &f.udpCount)
	}
	return list
}

func (s *udpSender) Run(p *traffic.Phases) error {
	one := s.flows[0]
	s.batch = traffic.NewBatch(sendBatch, one.payload, 0)
	for i := range sendBatch {
		one.pattern.Fill(s.batch.At(i), 0)
	}

	return s.udpSource.Run(p)
}

// TTLs of the phases in count mode. The kernel merges only datagrams with equal TTLs, so datagrams of
// different phases are never merged.
const (
	ttlWarmup   = 63
	ttlWindow   = 64
	ttlCooldown = 62
)

// mark sets the TTL of the current phase for the datagrams that follow.
func (s *udpSender) mark() {
	one := s.flows[0]
	if !one.count {
		return
	}

	ttl := map[traffic.Phase]int{traffic.PhaseWarmup: ttlWarmup, traffic.PhaseWindow: ttlWindow,
		traffic.PhaseCooldown: ttlCooldown}[s.phase]
	six := one.size-one.payload == traffic.PacketOverhead(6)
	level := unix.IPPROTO_IP
	option := unix.IP_TTL
	control := unix.IP_TTL
	if six {
		level = unix.IPPROTO_IPV6
		option = unix.IPV6_UNICAST_HOPS
		control = unix.IPV6_HOPLIMIT
	}

	if one.to == nil {
		for _, f := range s.flows {
			unix.SetsockoptInt(f.FD, level, option, ttl)
		}
		return
	}

	s.ttl = make([]byte, unix.CmsgSpace(4))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&s.ttl[0]))
	h.Level, h.Type = int32(level), int32(control)
	h.SetLen(unix.CmsgLen(4))
	binary.NativeEndian.PutUint32(s.ttl[unix.CmsgLen(0):], uint32(ttl))
}

// give sends up to n datagrams of a flow, as one UDP GSO batch if possible. Datagrams sent with one system
// call have the same send time.
func (s *udpSender) give(flow, n int, seq uint64) (int, error) {
	f := s.flows[flow]
	if f.gso.most < 2 {
		s.fill(f, n, seq)
		return s.batch.Send(f.FD, 0, n)
	}

	n = min(n, f.gso.most)
	s.fill(f, n, seq)
	err := s.batch.SendGSO(f.FD, n)
	switch err {
	case nil:
		return n, nil
	case unix.EINVAL, unix.EIO, unix.EMSGSIZE:
		if f.gso.most > oldGSOSegments { // retry with the limit before Linux 6.9
			f.gso.most = oldGSOSegments
			return 0, nil
		}

		// This route does not support GSO (no checksum offload, a policy, or a small MTU), so send datagrams
		// one by one.
		f.gso = gso{}
		unix.SetsockoptInt(f.FD, unix.SOL_UDP, unix.UDP_SEGMENT, 0)
		return 0, nil
	}

	return 0, err
}

// fill builds n datagrams of a flow.
func (s *udpSender) fill(f *udpFlow, n int, seq uint64) {
	tick := sendTick(time.Now().UnixNano())
	for i := range n {
		b := s.batch.Size(i, f.sizes.Of(seq+uint64(i)))
		binary.BigEndian.PutUint32(b, f.tag)
		binary.BigEndian.PutUint16(b[4:], f.index)
		traffic.PutSequence(b, s.phase, seq+uint64(i), tick)
		if f.verify {
			f.pattern.Fill(b[traffic.DatagramHeader:], traffic.DatagramPosition(s.phase, seq+uint64(i)))
		}

		s.batch.Address(i, f.to, s.ttl)
	}
}
