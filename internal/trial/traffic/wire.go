package traffic

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Lengths of what precedes the UDP payload.
const (
	ipv4Header = 20
	ipv6Header = 40
	udpHeader  = 8
)

// packetOverhead is what a datagram's IP length holds beside its payload.
func packetOverhead(ip int) int {
	if ip == 6 {
		return ipv6Header + udpHeader
	}
	return ipv4Header + udpHeader
}

// flowKey names one stream in one direction.
type flowKey struct {
	Stream    int
	Direction string
}

// flowsOf lists the flows of a load. Both ends compute the same list and name a flow by its index.
func flowsOf(load record.Load) []flowKey {
	var keys []flowKey
	for _, d := range []string{record.Up, record.Down} {
		if load.Direction != d && load.Direction != record.Both {
			continue
		}
		for i := range load.Streams {
			keys = append(keys, flowKey{Stream: i + 1, Direction: d})
		}
	}
	return keys
}

// sends says whether the end on side is the flow's sender.
func (k flowKey) sends(side string) bool { return (k.Direction == record.Up) == (side == "near") }

// The payload of every datagram begins with the tag's hash (4 bytes), the flow's index (2), the phase (1),
// the sequence number (5) and the send time in ticks of the sender's clock (4), big endian. A sequence
// number counts within its phase; in the cool-down it is the number of packets that were sent in the
// window, so that the receiver learns of a missing tail. The header fits the 18 bytes that a 64-byte
// Ethernet frame leaves to UDP in IPv4.
const datagramHeader = 16

type phase byte

const (
	phaseHello   phase = iota + 1 // opener → listener, until welcomed
	phaseWelcome                  // its answer
	phaseWarmup
	phaseWindow
	phaseCooldown
	phaseProbe // latency
	phaseEcho
)

type datagram struct {
	tag   uint32
	flow  uint16
	phase phase
	seq   uint64 // 40 bits: five hours of the smallest frames at 40 Gbit/s
	tick  uint32
}

// seqMask is of the 40 bits.
const seqMask = 1<<40 - 1

func (d datagram) put(b []byte) {
	binary.BigEndian.PutUint32(b, d.tag)
	binary.BigEndian.PutUint16(b[4:], d.flow)
	putSequence(b, d.phase, d.seq, d.tick)
}

func readDatagram(b []byte) (d datagram, ok bool) {
	if len(b) < datagramHeader {
		return datagram{}, false
	}
	return datagram{
		tag:   binary.BigEndian.Uint32(b),
		flow:  binary.BigEndian.Uint16(b[4:]),
		phase: phase(b[6]),
		seq:   uint64(b[7])<<32 | uint64(binary.BigEndian.Uint32(b[8:])),
		tick:  binary.BigEndian.Uint32(b[12:]),
	}, true
}

// putSequence rewrites what differs between datagrams of one flow.
func putSequence(b []byte, ph phase, seq uint64, tick uint32) {
	b[6], b[7] = byte(ph), byte(seq&seqMask>>32)
	binary.BigEndian.PutUint32(b[8:], uint32(seq))
	binary.BigEndian.PutUint32(b[12:], tick)
}

// tagHash tells this trial's packets from strays. It is no protection against an attacker, which a testbed
// does not have.
func tagHash(tag string) uint32 {
	h := sha256.Sum256([]byte("datagram " + tag))
	return binary.BigEndian.Uint32(h[:])
}

// A TCP connection begins with the opener's preamble: the tag's long hash and the flow's index; the
// listener answers with another hash.
const (
	preambleSize = 20
	welcomeSize  = 16
)

func preamble(tag string, flow int) []byte {
	h := sha256.Sum256([]byte("preamble " + tag))
	return binary.BigEndian.AppendUint32(h[:16:16], uint32(flow))
}

func welcome(tag string) []byte {
	h := sha256.Sum256([]byte("welcome " + tag))
	return h[:welcomeSize]
}

// readPreamble returns the flow's index, or false for a stranger's.
func readPreamble(b []byte, tag string, flows int) (int, bool) {
	if len(b) != preambleSize || string(b[:16]) != string(preamble(tag, 0)[:16]) {
		return 0, false
	}
	i := binary.BigEndian.Uint32(b[16:])
	return int(i), i < uint32(flows)
}
