package traffic

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Lengths in bytes of the headers before the UDP payload.
const (
	Ipv4Header = 20
	ipv6Header = 40
	udpHeader  = 8
)

// PacketOverhead returns the length of the IP and UDP headers in bytes.
func PacketOverhead(ip int) int {
	if ip == 6 {
		return ipv6Header + udpHeader
	}
	return Ipv4Header + udpHeader
}

// MeanPayload returns the mean payload of the load's datagrams in bytes.
func MeanPayload(load record.Load) float64 {
	return record.MeanSize(load.PacketSizes()) - float64(PacketOverhead(load.IP))
}

// Sizes holds the payload sizes of a flow's datagrams. In every phase, the sequence number determines the
// size, so both ends know the length of each datagram.
type Sizes struct {
	cycle []int
	ahead []int64 // sum of the sizes before each size; the last entry is the sum of the whole cycle
}

// SizesOf returns the sizes for a flow. Flows begin at different positions in the cycle, so that flows
// that take turns do not all send large datagrams at the same time.
func SizesOf(load record.Load, flow int) Sizes {
	all := load.PacketSizes()
	s := Sizes{cycle: make([]int, len(all)), ahead: make([]int64, len(all)+1)}
	for i := range all {
		s.cycle[i] = all[(flow+i)%len(all)] - PacketOverhead(load.IP)
		s.ahead[i+1] = s.ahead[i] + int64(s.cycle[i])
	}

	return s
}

// Of returns the payload size of the datagram with number seq.
func (s *Sizes) Of(seq uint64) int {
	if len(s.cycle) == 1 {
		return s.cycle[0]
	}
	return s.cycle[seq%uint64(len(s.cycle))]
}

// Bytes returns the total payload of the first n datagrams, in bytes.
func (s *Sizes) Bytes(n uint64) int64 {
	round := uint64(len(s.cycle))
	return int64(n/round)*s.ahead[round] + s.ahead[n%round]
}

// FlowKey identifies a stream in one direction.
type FlowKey struct {
	Stream    int
	Direction string
}

// FlowsOf lists the flows of a load, up to one more than the maximum per direction. Both ends compute the
// same list and identify flows by their index in it.
func FlowsOf(load record.Load) []FlowKey {
	var keys []FlowKey
	for _, d := range []string{record.Up, record.Down} {
		if load.Direction != d && load.Direction != record.Both {
			continue
		}

		for i := range min(load.Streams, maxUDPFlows+1) {
			keys = append(keys, FlowKey{Stream: i + 1, Direction: d})
		}
	}
	return keys
}

// Sends reports whether the endpoint side, "near" or "far", sends the flow.
func (k FlowKey) Sends(side string) bool { return (k.Direction == record.Up) == (side == "near") }

// The payload of every datagram begins with the hash of the tag (4 bytes), the index of the flow (2), the
// phase (1), the sequence number (5) and the send time in ticks of the sender's clock (4), in big-endian
// order. Sequence numbers count within a phase. In the cool-down, the sequence number is the number of
// packets sent in the window, from which the receiver detects losses at the end. The header fits the 18
// bytes of UDP payload in a 64-byte Ethernet frame with IPv4.
const DatagramHeader = 16

type Phase byte

const (
	PhaseHello   Phase = iota + 1 // sent from opener to listener until it is answered
	PhaseWelcome                  // answer to a hello
	PhaseWarmup
	PhaseWindow
	PhaseCooldown
	PhaseProbe // phase of a latency probe
	PhaseEcho
	PhaseChallenge // answer to a hello without a valid cookie
)

type Datagram struct {
	Tag   uint32
	Flow  uint16
	Phase Phase
	Seq   uint64 // 40 bits: five hours of the smallest frames at 40 Gbit/s
	Tick  uint32
}

// seqMask selects the low 40 bits of a number.
const seqMask = 1<<40 - 1

func (d Datagram) Put(b []byte) {
	binary.BigEndian.PutUint32(b, d.Tag)
	binary.BigEndian.PutUint16(b[4:], d.Flow)
	PutSequence(b, d.Phase, d.Seq, d.Tick)
}

func ReadDatagram(b []byte) (d Datagram, ok bool) {
	if len(b) < DatagramHeader {
		return Datagram{}, false
	}
	return Datagram{
		Tag:   binary.BigEndian.Uint32(b),
		Flow:  binary.BigEndian.Uint16(b[4:]),
		Phase: Phase(b[6]),
		Seq:   uint64(b[7])<<32 | uint64(binary.BigEndian.Uint32(b[8:])),
		Tick:  binary.BigEndian.Uint32(b[12:]),
	}, true
}

// WithCookie returns the datagram with a cookie in place of number and time, because hellos and their
// answers need neither.
func (d Datagram) WithCookie(c uint64) Datagram {
	d.Seq, d.Tick = c>>32, uint32(c)
	return d
}

// Cookie returns the cookie set by WithCookie.
func (d Datagram) Cookie() uint64 { return d.Seq<<32 | uint64(d.Tick) }

// PutSequence writes the fields that differ between datagrams of a flow.
func PutSequence(b []byte, ph Phase, seq uint64, tick uint32) {
	b[6], b[7] = byte(ph), byte(seq&seqMask>>32)
	binary.BigEndian.PutUint32(b[8:], uint32(seq))
	binary.BigEndian.PutUint32(b[12:], tick)
}

// Purposes of tag hashes. Packets for one purpose do not reveal the hash for another purpose.
const (
	TagData     = "datagram"
	TagHello    = "hello" // for hellos and their answers
	TagProbe    = "probe"
	TagFrames   = "frames"
	TagPattern  = "pattern" // for the content of verified flows
	TagSchedule = "schedule"
)

// TagHash returns a hash that distinguishes a trial's packets from other packets. Anybody on the path can
// read the hash, so protection against forgery also needs a cookie.
func TagHash(purpose, tag string) uint32 {
	h := sha256.Sum256([]byte(purpose + " " + tag))
	return binary.BigEndian.Uint32(h[:])
}

// helloHash returns the hash in the hellos of a load.
func helloHash(load record.Load) uint32 { return TagHash(TagHello+" "+load.Protocol, load.Tag) }

// A TCP connection begins with the opener's preamble: a hash of the tag and the index of the flow. The
// listener answers with a different hash.
const (
	PreambleSize = 20
	WelcomeSize  = 16
)

func Preamble(tag string, flow int) []byte {
	h := sha256.Sum256([]byte("preamble " + tag))
	return binary.BigEndian.AppendUint32(h[:16:16], uint32(flow))
}

func Welcome(tag string) []byte {
	h := sha256.Sum256([]byte("welcome " + tag))
	return h[:WelcomeSize]
}

// ReadPreamble returns the index of the flow in a preamble. ok is false if the preamble is of another
// load. first is the preamble of flow 0.
func ReadPreamble(b, first []byte, flows int) (int, bool) {
	if len(b) != PreambleSize || !bytes.Equal(b[:16], first[:16]) {
		return 0, false
	}

	i := binary.BigEndian.Uint32(b[16:])
	return int(i), i < uint32(flows)
}
