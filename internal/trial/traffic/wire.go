package traffic

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Lengths of the headers before the UDP payload.
const (
	Ipv4Header = 20
	ipv6Header = 40
	udpHeader  = 8
)

// PacketOverhead returns the bytes of a datagram's IP length beside its payload.
func PacketOverhead(ip int) int {
	if ip == 6 {
		return ipv6Header + udpHeader
	}
	return Ipv4Header + udpHeader
}

// MeanPayload returns the mean payload of a load's datagrams.
func MeanPayload(load record.Load) float64 {
	return record.MeanSize(load.PacketSizes()) - float64(PacketOverhead(load.IP))
}

// FlowKey identifies one stream in one direction.
type FlowKey struct {
	Stream    int
	Direction string
}

// FlowsOf lists the flows of a load, cut to one more than the maximum. Both ends compute the same list and
// refer to a flow by its index.
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

// Sends reports whether the end on side is the flow's sender.
func (k FlowKey) Sends(side string) bool { return (k.Direction == record.Up) == (side == "near") }

// The payload of every datagram begins with the tag's hash (4 bytes), the flow's index (2), the phase (1),
// the sequence number (5) and the send time in ticks of the sender's clock (4), big endian. A sequence number
// counts within its phase; in the cool-down it is the number of packets sent in the window, which reveals a
// missing tail to the receiver. The header fits the 18 bytes that a 64-byte Ethernet frame leaves to UDP in
// IPv4.
const DatagramHeader = 16

type Phase byte

const (
	PhaseHello   Phase = iota + 1 // opener → listener, until welcomed
	PhaseWelcome                  // its answer
	PhaseWarmup
	PhaseWindow
	PhaseCooldown
	PhaseProbe // latency
	PhaseEcho
	PhaseChallenge // the listener's answer to a hello without a cookie
)

type Datagram struct {
	Tag   uint32
	Flow  uint16
	Phase Phase
	Seq   uint64 // 40 bits: five hours of the smallest frames at 40 Gbit/s
	Tick  uint32
}

// seqMask keeps 40 bits.
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

// WithCookie returns the datagram with a cookie in place of its number and time, which hellos and their
// answers do not have.
func (d Datagram) WithCookie(c uint64) Datagram {
	d.Seq, d.Tick = c>>32, uint32(c)
	return d
}

// Cookie returns the cookie set by WithCookie.
func (d Datagram) Cookie() uint64 { return d.Seq<<32 | uint64(d.Tick) }

// PutSequence overwrites the fields that differ between datagrams of one flow.
func PutSequence(b []byte, ph Phase, seq uint64, tick uint32) {
	b[6], b[7] = byte(ph), byte(seq&seqMask>>32)
	binary.BigEndian.PutUint32(b[8:], uint32(seq))
	binary.BigEndian.PutUint32(b[12:], tick)
}

// Purposes of tags: seeing the packets of one purpose does not make it possible to forge those of another.
const (
	TagData     = "datagram"
	TagHello    = "hello" // and for their answers
	TagProbe    = "probe"
	TagFrames   = "frames"
	TagPattern  = "pattern" // for a payload
	TagSchedule = "schedule"
)

// TagHash distinguishes a trial's packets of one purpose from strays. Anybody on the path can read it:
// protection from others needs a cookie as well.
func TagHash(purpose, tag string) uint32 {
	h := sha256.Sum256([]byte(purpose + " " + tag))
	return binary.BigEndian.Uint32(h[:])
}

// helloHash distinguishes the hellos of a load from strays.
func helloHash(load record.Load) uint32 { return TagHash(TagHello+" "+load.Protocol, load.Tag) }

// A TCP connection begins with the opener's preamble: the tag's long hash and the flow's index; the
// listener answers with another hash.
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

// ReadPreamble returns the flow's index, or false if it is that of another load: first is the preamble of
// flow 0 of this load.
func ReadPreamble(b, first []byte, flows int) (int, bool) {
	if len(b) != PreambleSize || !bytes.Equal(b[:16], first[:16]) {
		return 0, false
	}

	i := binary.BigEndian.Uint32(b[16:])
	return int(i), i < uint32(flows)
}
