package kernel

import (
	"encoding/binary"
	"errors"
	"math"
)

// tick is the unit of buffer sizes that travel as time: 64 ns, PSCHED_SHIFT of net/pkt_sched.h.
const tick = 64

// ethernet is TC_LINKLAYER_ETHERNET: with it the kernel wants no rate table.
const ethernet = 1

func appendAttribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func attributes(b []byte) (map[uint16][]byte, error) {
	found := map[uint16][]byte{}
	if !EachAttribute(b, func(kind uint16, v []byte) bool { found[kind] = v; return true }) {
		return nil, errShort
	}
	return found, nil
}

func narrow(v uint64) uint32 { return uint32(min(v, math.MaxUint32)) }

// rateSpec is struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate in bytes per second.
func rateSpec(b []byte, bytesPerSecond uint64) []byte {
	b = append(b, 0, ethernet)
	b = binary.NativeEndian.AppendUint16(b, 0)
	b = binary.NativeEndian.AppendUint16(b, 0)
	b = binary.NativeEndian.AppendUint16(b, 0)
	return binary.NativeEndian.AppendUint32(b, narrow(bytesPerSecond))
}

// ticks is how long a number of bytes takes at a rate.
func ticks(bytes, bytesPerSecond uint64) uint32 {
	if bytesPerSecond == 0 {
		return 0
	}
	return narrow(uint64(float64(bytes) * 1e9 / float64(bytesPerSecond) / tick))
}

func ticksToBytes(t uint32, bytesPerSecond uint64) uint64 {
	return uint64(math.Ceil(float64(t) * tick * float64(bytesPerSecond) / 1e9))
}

// encodeTBF writes struct tc_tbf_qopt and the attributes beside it: 1 PARMS, 4 RATE64, 6 BURST in bytes,
// which spares the detour through ticks.
func encodeTBF(_ queueKind, v map[string]uint64) []byte {
	rate := v["rate"] / 8
	p := rateSpec(nil, rate)
	p = append(p, make([]byte, 12)...) // no peak rate
	p = binary.NativeEndian.AppendUint32(p, narrow(v["limit"]))
	p = binary.NativeEndian.AppendUint32(p, ticks(v["burst"], rate))
	p = binary.NativeEndian.AppendUint32(p, 0)
	b := appendAttribute(nil, 1, p)
	if rate > math.MaxUint32 {
		b = appendAttribute(b, 4, binary.NativeEndian.AppendUint64(nil, rate))
	}
	return appendAttribute(b, 6, binary.NativeEndian.AppendUint32(nil, narrow(v["burst"])))
}

func decodeTBF(_ queueKind, b []byte) (map[string]uint64, error) {
	found, err := attributes(b)
	if err != nil {
		return nil, err
	}
	p := found[1]
	if len(p) < 36 {
		return nil, errShort
	}
	if binary.NativeEndian.Uint32(p[20:]) != 0 {
		return nil, errors.New("has a peak rate, which could not be restored")
	}
	rate := uint64(binary.NativeEndian.Uint32(p[8:]))
	if wide := found[4]; len(wide) >= 8 {
		rate = binary.NativeEndian.Uint64(wide)
	}
	return map[string]uint64{
		"rate":  rate * 8,
		"burst": ticksToBytes(binary.NativeEndian.Uint32(p[28:]), rate),
		"limit": uint64(binary.NativeEndian.Uint32(p[24:])),
	}, nil
}

// htbDefault is the one class of our htb.
const htbDefault = 1

// encodeHTB writes struct tc_htb_glob in attribute 2: version 3, quantum = rate / 10, and the class for
// what no filter claims.
func encodeHTB(queueKind, map[string]uint64) []byte {
	var p []byte
	for _, x := range []uint32{3, 10, htbDefault, 0, 0} {
		p = binary.NativeEndian.AppendUint32(p, x)
	}
	return appendAttribute(nil, 2, p)
}

// encodeHTBClass writes struct tc_htb_opt in attribute 1, and 6 RATE64 and 7 CEIL64. The ceiling is the
// rate: there is nobody to borrow from.
func encodeHTBClass(v map[string]uint64) []byte {
	rate := v["rate"] / 8
	p := rateSpec(rateSpec(nil, rate), rate)
	buffer := ticks(v["burst"], rate)
	// The quantum only matters between classes; given so that the kernel does not complain that the rate
	// makes too large a one.
	for _, x := range []uint32{buffer, buffer, 60_000, 0, 0} {
		p = binary.NativeEndian.AppendUint32(p, x)
	}
	b := appendAttribute(nil, 1, p)
	if rate > math.MaxUint32 {
		b = appendAttribute(b, 6, binary.NativeEndian.AppendUint64(nil, rate))
		b = appendAttribute(b, 7, binary.NativeEndian.AppendUint64(nil, rate))
	}
	return b
}

func decodeHTBClass(b []byte) (map[string]uint64, error) {
	found, err := attributes(b)
	if err != nil {
		return nil, err
	}
	p := found[1]
	if len(p) < 28 {
		return nil, errShort
	}
	rate := uint64(binary.NativeEndian.Uint32(p[8:]))
	if wide := found[6]; len(wide) >= 8 {
		rate = binary.NativeEndian.Uint64(wide)
	}
	return map[string]uint64{
		"rate": rate * 8, "burst": ticksToBytes(binary.NativeEndian.Uint32(p[24:]), rate),
	}, nil
}

// encodeSFQ writes struct tc_sfq_qopt: quantum, perturbation period in seconds, limit, divisor, flows; zero
// leaves one to the kernel.
func encodeSFQ(_ queueKind, v map[string]uint64) []byte {
	var b []byte
	for _, x := range []uint64{v["quantum"], v["perturb"], v["limit"], 0, 0} {
		b = binary.NativeEndian.AppendUint32(b, narrow(x))
	}
	return b
}

func decodeSFQ(_ queueKind, b []byte) (map[string]uint64, error) {
	if len(b) < 20 {
		return nil, errShort
	}
	return map[string]uint64{
		"quantum": uint64(binary.NativeEndian.Uint32(b)),
		"perturb": uint64(binary.NativeEndian.Uint32(b[4:])),
		"limit":   uint64(binary.NativeEndian.Uint32(b[8:])),
	}, nil
}
