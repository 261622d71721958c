package traffic

import (
	"encoding/binary"
	"math/bits"
)

// Pattern is the content of a verified flow: an endless sequence of bytes. Each byte depends on the flow's
// seed and on its position, so that lost, repeated, moved and changed bytes are detected. The generator is
// SplitMix64, with the index of the 64-bit word as its counter (Steele, Lea, Flood, OOPSLA 2014).
type Pattern struct{ seed uint64 }

func NewPattern(tag string, flow int) Pattern {
	return Pattern{uint64(TagHash(TagPattern, tag))<<32 ^ uint64(flow)*0xd1342543de82ef95}
}

func (p Pattern) word(i uint64) uint64 {
	z := p.seed + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Fill fills b with the part of the pattern that begins at position at.
func (p Pattern) Fill(b []byte, at uint64) {
	for len(b) > 0 && at%8 != 0 {
		b[0] = byte(p.word(at/8) >> (8 * (at % 8)))
		b = b[1:]
		at = at + 1
	}

	i := at / 8
	for ; len(b) >= 8; b, i = b[8:], i+1 {
		binary.LittleEndian.PutUint64(b, p.word(i))
	}

	for j := range b {
		b[j] = byte(p.word(i) >> (8 * j))
	}
}

// Mismatches returns the number of bytes of b that differ from the part of the pattern that begins at
// position at.
func (p Pattern) Mismatches(b []byte, at uint64) int64 {
	var n int64
	for len(b) > 0 && at%8 != 0 {
		if b[0] != byte(p.word(at/8)>>(8*(at%8))) {
			n++
		}

		b = b[1:]
		at = at + 1
	}

	i := at / 8
	for ; len(b) >= 8; b, i = b[8:], i+1 {
		d := binary.LittleEndian.Uint64(b) ^ p.word(i)
		if d != 0 {
			n += int64(8 - zeroBytes(d))
		}
	}

	for j := range b {
		if b[j] != byte(p.word(i)>>(8*j)) {
			n++
		}
	}

	return n
}

// zeroBytes counts the zero bytes of a word.
func zeroBytes(d uint64) int {
	d |= d >> 4
	d |= d >> 2
	d |= d >> 1
	return 8 - bits.OnesCount64(d&0x0101010101010101)
}

// DatagramPosition returns the position in the pattern at which the payload of a datagram begins. Each
// datagram has a separate range, which is longer than any datagram.
func DatagramPosition(ph Phase, seq uint64) uint64 { return uint64(ph)<<60 | seq<<16 }
