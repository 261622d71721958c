package bpf

import "encoding/binary"

// Writer builds the frames of a load for sending through a socket. They are identical to the frames that the
// BPF program builds.
type Writer struct {
	whole []byte // first frame of the first flow
	udp   int    // offset of the UDP header
	ports [][4]byte
	sums  []uint32 // constant part of the checksum by flow, in native byte order
	sizes []variant
}

// NewWriter returns a Writer for the flows that l sends.
func NewWriter(l Load) *Writer {
	w := &Writer{udp: l.headers() - udp, sizes: l.variants()}
	for i, t := range l.Send {
		b := l.frame(t)
		if i == 0 {
			w.whole = b
		}

		w.ports = append(w.ports, ports(t))
		w.sums = append(w.sums, l.constant(b))
	}
	return w
}

// Size returns the length of the largest frame in bytes.
func (w *Writer) Size() int { return len(w.whole) }

// Begin fills b with the parts common to all frames.
func (w *Writer) Begin(b []byte) { copy(b, w.whole) }

// Put turns b, prepared by Begin or an earlier Put, into the frame with number seq of a flow in a phase.
// stamp is the time in nanoseconds of CLOCK_MONOTONIC, or zero. Put returns the frame's length in bytes.
func (w *Writer) Put(b []byte, flow, phase int, seq uint32, stamp int64) int {
	size := &w.sizes[(seq+uint32(flow))%uint32(len(w.sizes))]
	if len(w.sizes) > 1 {
		copy(b, size.head)
	}

	header := b[w.udp:]
	copy(header, w.ports[flow][:])
	payload := header[udp:]
	binary.BigEndian.PutUint32(payload[4:], seq)
	binary.BigEndian.PutUint64(payload[8:], uint64(stamp))
	binary.BigEndian.PutUint16(payload[16:], uint16(phase<<14|flow))
	check := ^fold(uint64(w.sums[flow]) + uint64(size.sum) + sum(payload[4:Header]))
	if check == 0 {
		check = 0xffff // because zero would mean no checksum (RFC 768)
	}

	binary.NativeEndian.PutUint16(header[6:], check)
	return ethernet + size.size
}

// ports returns the ports in the format of a UDP header.
func ports(t Tuple) (b [4]byte) {
	binary.BigEndian.PutUint16(b[:], t.From.Port())
	binary.BigEndian.PutUint16(b[2:], t.To.Port())
	return b
}

// Datagram holds the parsed payload of a frame.
type Datagram struct {
	Flow, Phase int
	Seq         uint32
	Stamp       int64
}

// ReadDatagram parses the payload of a frame. ok is false if the payload does not have the load's tag.
func ReadDatagram(payload []byte, tag uint32) (d Datagram, ok bool) {
	if len(payload) < Header || binary.BigEndian.Uint32(payload) != tag {
		return Datagram{}, false
	}

	mark := binary.BigEndian.Uint16(payload[16:])
	return Datagram{
		Flow:  int(mark & 0x3fff),
		Phase: int(mark >> 14),
		Seq:   binary.BigEndian.Uint32(payload[4:]),
		Stamp: int64(binary.BigEndian.Uint64(payload[8:])),
	}, true
}
