package kernel

import (
	"encoding/binary"
	"errors"
	"math"
)

func netemParameters() []Parameter {
	return []Parameter{
		{Name: "limit", Quantity: Packets, Default: 1000},
		{Name: "delay", Quantity: Microseconds},
		{Name: "jitter", Quantity: Microseconds},
		{Name: "loss", Quantity: PartsPerMillion},
		{Name: "duplicate", Quantity: PartsPerMillion},
		{Name: "reorder", Quantity: PartsPerMillion},
		{Name: "rate", Quantity: BitsPerSecond},
	}
}

// probability is a share of one million in the kernel's form.
func probability(perMillion uint64) uint32 {
	return uint32(math.Round(min(float64(perMillion)/1e6, 1) * math.MaxUint32))
}

func perMillion(probability uint32) uint64 {
	return uint64(math.Round(float64(probability) / math.MaxUint32 * 1e6))
}

// encodeNetem writes struct tc_netem_qopt (latency, limit, loss, gap, duplicate, jitter), followed by
// attributes: 3 REORDER (struct tc_netem_reorder), 6 RATE (struct tc_netem_rate), 10 LATENCY64 and 11
// JITTER64 in ns, which overrule the ticks of the struct. With a gap of 1 every packet may be the one that
// overtakes.
func encodeNetem(_ queueKind, v map[string]uint64) []byte {
	var b []byte
	gap := uint32(min(v["reorder"], 1))
	for _, x := range []uint32{
		narrow(v["delay"] * 1000 / tick), narrow(v["limit"]), probability(v["loss"]), gap,
		probability(v["duplicate"]),
		narrow(v["jitter"] * 1000 / tick),
	} {
		b = binary.NativeEndian.AppendUint32(b, x)
	}
	if gap > 0 {
		overtake := binary.NativeEndian.AppendUint32(nil, probability(v["reorder"]))
		b = appendAttribute(b, 3, append(overtake, make([]byte, 4)...))
	}
	b = appendAttribute(b, 10, binary.NativeEndian.AppendUint64(nil, v["delay"]*1000))
	b = appendAttribute(b, 11, binary.NativeEndian.AppendUint64(nil, v["jitter"]*1000))
	if rate := v["rate"] / 8; rate > 0 {
		spec := binary.NativeEndian.AppendUint32(nil, narrow(rate))
		b = appendAttribute(b, 6, append(spec, make([]byte, 12)...))
	}
	return b
}

func decodeNetem(_ queueKind, b []byte) (map[string]uint64, error) {
	if len(b) < 24 {
		return nil, errShort
	}
	found, err := attributes(b[24:])
	if err != nil {
		return nil, err
	}
	word := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(b[4*i:])) }
	v := map[string]uint64{
		"limit": word(1), "delay": word(0) * tick / 1000, "jitter": word(5) * tick / 1000,
		"loss": perMillion(uint32(word(2))), "duplicate": perMillion(uint32(word(4))), "reorder": 0,
		"rate": 0,
	}
	if gap := word(3); gap > 1 {
		return nil, errors.New("reorders with a gap, which could not be restored")
	}
	if overtake := found[3]; len(overtake) >= 4 && word(3) == 1 {
		v["reorder"] = perMillion(binary.NativeEndian.Uint32(overtake))
	}
	if wide := found[10]; len(wide) >= 8 {
		v["delay"] = binary.NativeEndian.Uint64(wide) / 1000
	}
	if wide := found[11]; len(wide) >= 8 {
		v["jitter"] = binary.NativeEndian.Uint64(wide) / 1000
	}
	if rate := found[6]; len(rate) >= 4 {
		v["rate"] = uint64(binary.NativeEndian.Uint32(rate)) * 8
	}
	return v, nil
}
