package kernel

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

// tick is the unit, in ns, of the times that encode buffer sizes (PSCHED_SHIFT in net/pkt_sched.h).
const tick = 64

// ethernet is TC_LINKLAYER_ETHERNET. With this link layer, the kernel needs no rate table.
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

func appendWide(b []byte, kind uint16, value uint64) []byte {
	return appendAttribute(b, kind, binary.NativeEndian.AppendUint64(nil, value))
}

func words(b []byte, values ...uint32) []byte {
	for _, v := range values {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return b
}

func word(b []byte, i int) uint64 { return uint64(binary.NativeEndian.Uint32(b[4*i:])) }

func attributes(b []byte) (map[uint16][]byte, error) {
	found := map[uint16][]byte{}
	if !EachAttribute(b, func(kind uint16, v []byte) bool { found[kind] = v; return true }) {
		return nil, errShort
	}
	return found, nil
}

func narrow(v uint64) uint32 { return uint32(min(v, math.MaxUint32)) }

// rateSpec appends a struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate in bytes per
// second.
func rateSpec(b []byte, bytesPerSecond uint64) []byte {
	return words(append(b, 0, ethernet, 0, 0, 0, 0, 0, 0), narrow(bytesPerSecond))
}

// ticks returns the time, in ticks, to transmit a number of bytes.
func ticks(bytes, bytesPerSecond uint64) uint32 {
	if bytesPerSecond == 0 {
		return 0
	}
	return narrow(uint64(float64(bytes) * 1e9 / float64(bytesPerSecond) / tick))
}

func ticksToBytes(t uint32, bytesPerSecond uint64) uint64 {
	return uint64(math.Ceil(float64(t) * tick * float64(bytesPerSecond) / 1e9))
}

// encodeTBF encodes a struct tc_tbf_qopt without a peak rate, and the attributes 1 PARMS, 4 RATE64 and 6
// BURST. BURST is in bytes, so it is not rounded to ticks.
func encodeTBF(_ []qdisc.Parameter, v map[string]uint64) []byte {
	rate := v["rate"] / 8
	p := words(rateSpec(nil, rate), 0, 0, 0, narrow(v["limit"]), ticks(v["burst"], rate), 0)
	b := appendAttribute(nil, 1, p)
	if rate > math.MaxUint32 {
		b = appendWide(b, 4, rate)
	}

	return appendAttribute(b, 6, words(nil, narrow(v["burst"])))
}

func decodeTBF(_ []qdisc.Parameter, b []byte) (map[string]uint64, error) {
	p, rate, err := rated(b, 36, 4)
	if err != nil {
		return nil, err
	}

	if word(p, 5) != 0 {
		return nil, errors.New("has a peak rate, which could not be restored")
	}

	// These are the fields of struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu.
	if p[1] > ethernet || binary.NativeEndian.Uint16(p[2:]) != 0 || binary.NativeEndian.Uint16(p[6:]) != 0 {
		return nil, errors.New("counts bytes in addition to those of the frame, which could not be restored")
	}

	burst := ticksToBytes(uint32(word(p, 7)), rate)
	return map[string]uint64{"rate": rate * 8, "burst": burst, "limit": word(p, 6)}, nil
}

// rated returns attribute 1 and the rate in bytes per second. The attribute is a struct that starts with a
// rate and has at least the given number of bytes. The 64-bit attribute wide overrides the rate in the
// struct.
func rated(b []byte, least int, wide uint16) (p []byte, rate uint64, err error) {
	found, err := attributes(b)
	if err != nil {
		return nil, 0, err
	}

	if p = found[1]; len(p) < least {
		return nil, 0, errShort
	}

	w := found[wide]
	if len(w) >= 8 {
		return p, binary.NativeEndian.Uint64(w), nil
	}

	return p, word(p, 2), nil
}

// htbDefault is the minor number of the only class of our htb.
const htbDefault = 1

// encodeHTB encodes a struct tc_htb_glob in attribute 2: version 3, rate2quantum 10, and the default class.
func encodeHTB([]qdisc.Parameter, map[string]uint64) []byte {
	return appendAttribute(nil, 2, words(nil, 3, 10, htbDefault, 0, 0))
}

// encodeHTBClass encodes a struct tc_htb_opt in attribute 1, and the attributes 6 RATE64 and 7 CEIL64. The
// ceiling equals the rate, because there is no class to borrow from.
func encodeHTBClass(v map[string]uint64) []byte {
	rate := v["rate"] / 8
	buffer := ticks(v["burst"], rate)
	// The quantum matters only if there are several classes. With this value, the kernel does not warn that
	// the quantum is too large for the rate.
	b := appendAttribute(nil, 1, words(rateSpec(rateSpec(nil, rate), rate), buffer, buffer, 60_000, 0, 0))
	if rate > math.MaxUint32 {
		b = appendWide(appendWide(b, 6, rate), 7, rate)
	}

	return b
}

func decodeHTBClass(b []byte) (map[string]uint64, error) {
	p, rate, err := rated(b, 28, 6)
	if err != nil {
		return nil, err
	}
	return map[string]uint64{"rate": rate * 8, "burst": ticksToBytes(uint32(word(p, 6)), rate)}, nil
}

// encodeSFQ encodes a struct tc_sfq_qopt: quantum, perturbation period in seconds, limit, divisor, flows.
// Zero means the kernel's default.
func encodeSFQ(all []qdisc.Parameter, v map[string]uint64) []byte {
	return words(encodeWords(all, v), 0, 0)
}

// probability converts parts per million to the kernel's 32-bit fraction.
func probability(perMillion uint64) uint32 {
	return uint32(math.Round(min(float64(perMillion)/1e6, 1) * math.MaxUint32))
}

func perMillion(probability uint64) uint64 {
	return uint64(math.Round(float64(probability) / math.MaxUint32 * 1e6))
}

// encodeNetem encodes a struct tc_netem_qopt (latency, limit, loss, gap, duplicate, jitter) and attributes
// after it: 3 REORDER (struct tc_netem_reorder), 6 RATE (struct tc_netem_rate), and, in ns, 10 LATENCY64 and
// 11 JITTER64, which override the struct's values in ticks. If gap is 1, every packet may be reordered.
func encodeNetem(_ []qdisc.Parameter, v map[string]uint64) []byte {
	gap := uint32(min(v["reorder"], 1))
	b := words(nil, narrow(v["delay"]*1000/tick), narrow(v["limit"]), probability(v["loss"]), gap,
		probability(v["duplicate"]), narrow(v["jitter"]*1000/tick))
	if gap > 0 {
		b = appendAttribute(b, 3, words(nil, probability(v["reorder"]), 0))
	}

	b = appendWide(appendWide(b, 10, v["delay"]*1000), 11, v["jitter"]*1000)
	rate := v["rate"] / 8
	if rate > 0 {
		b = appendAttribute(b, 6, words(nil, narrow(rate), 0, 0, 0))
	}

	return b
}

func decodeNetem(_ []qdisc.Parameter, b []byte) (map[string]uint64, error) {
	if len(b) < 24 {
		return nil, errShort
	}

	found, err := attributes(b[24:])
	if err != nil {
		return nil, err
	}

	v := map[string]uint64{
		"limit": word(b, 1), "delay": word(b, 0) * tick / 1000, "jitter": word(b, 5) * tick / 1000,
		"loss": perMillion(word(b, 2)), "duplicate": perMillion(word(b, 4)), "reorder": 0, "rate": 0,
	}
	gap := word(b, 3)
	if gap > 1 {
		return nil, errors.New("reorders with a gap, which could not be restored")
	}

	overtake := found[3]
	if len(overtake) >= 4 && gap == 1 {
		v["reorder"] = perMillion(word(overtake, 0))
	}

	for kind, name := range map[uint16]string{10: "delay", 11: "jitter"} {
		wide := found[kind]
		if len(wide) >= 8 {
			v[name] = binary.NativeEndian.Uint64(wide) / 1000
		}
	}

	rate := found[6]
	if len(rate) >= 4 {
		v["rate"] = word(rate, 0) * 8
	}

	return v, nil
}
