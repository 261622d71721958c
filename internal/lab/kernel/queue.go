package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Queue is a queueing discipline in the terms of tc(8). Values are kept in base units: packets, bytes, bits
// per second, microseconds, counts, 0 or 1.
type Queue struct {
	Kind   string
	Values map[string]uint64
	Handle uint32 // 0: the kernel chooses one
	Parent uint32 // class whose queue it is; 0: it is the device's root
}

// Quantity is the unit of a queue's parameter.
type Quantity int

const (
	Count Quantity = iota
	Packets
	Bytes
	BitsPerSecond
	Microseconds
	PartsPerMillion
	Flag // 0 or 1
	Word // index into Parameter.Words
)

// Parameter is one value of a kind of queue. Default is what is meant when nothing is said; a parameter
// without one is left to the kernel, or is Required.
type Parameter struct {
	Name     string
	Quantity Quantity
	Default  uint64
	Required bool
	Words    []string

	attribute uint16 // of linux/pkt_sched.h, in kinds that use attributes
	wide      bool   // 64 bits
}

// queueKind is a kind of queueing discipline: its parameters in the order of their canonical spelling, and
// how they travel.
type queueKind struct {
	parameters []Parameter
	encode     func(k queueKind, v map[string]uint64) []byte
	decode     func(k queueKind, b []byte) (map[string]uint64, error)
}

// QueueKinds lists the kinds that can be spelled.
func QueueKinds() []string { return slices.Sorted(maps.Keys(queueKinds())) }

// QueueParameters are the parameters of a kind, in canonical order.
func QueueParameters(kind string) ([]Parameter, bool) {
	k, ok := queueKinds()[kind]
	return k.parameters, ok
}

// The attribute numbers and defaults are those of linux/pkt_sched.h and of the kernel's sch_*.c.
func queueKinds() map[string]queueKind {
	none := queueKind{nil, encodeNothing, decodeNothing}
	packets := Parameter{Name: "limit", Quantity: Packets, Default: 1000}
	bytes := Parameter{Name: "limit", Quantity: Bytes, Required: true}
	rate := Parameter{Name: "rate", Quantity: BitsPerSecond, Required: true}
	burst := Parameter{Name: "burst", Quantity: Bytes}
	return map[string]queueKind{
		"noqueue":    none,
		"pfifo_fast": none,
		"mq":         none,
		"pfifo":      {[]Parameter{packets}, encodeWords, decodeWords},
		"bfifo":      {[]Parameter{bytes}, encodeWords, decodeWords},
		"tbf":        {[]Parameter{rate, burst, {Name: "limit", Quantity: Bytes}}, encodeTBF, decodeTBF},
		"htb":        {[]Parameter{rate, burst}, encodeHTB, decodeNothing},
		"sfq": {[]Parameter{{Name: "quantum", Quantity: Bytes}, {Name: "perturb", Quantity: Count},
			{Name: "limit", Quantity: Packets, Default: 127}}, encodeSFQ, decodeWords},
		"netem": {[]Parameter{packets,
			{Name: "delay", Quantity: Microseconds}, {Name: "jitter", Quantity: Microseconds},
			{Name: "loss", Quantity: PartsPerMillion}, {Name: "duplicate", Quantity: PartsPerMillion},
			{Name: "reorder", Quantity: PartsPerMillion}, {Name: "rate", Quantity: BitsPerSecond},
		}, encodeNetem, decodeNetem},
		"codel": {[]Parameter{
			{Name: "limit", Quantity: Packets, Default: 1000, attribute: 2},
			{Name: "target", Quantity: Microseconds, Default: 5000, attribute: 1},
			{Name: "interval", Quantity: Microseconds, Default: 100_000, attribute: 3},
			{Name: "ecn", Quantity: Flag, attribute: 4},
		}, encodeAttributes, decodeAttributes},
		"fq_codel": {[]Parameter{
			{Name: "limit", Quantity: Packets, Default: 10240, attribute: 2},
			{Name: "flows", Quantity: Count, Default: 1024, attribute: 5},
			{Name: "quantum", Quantity: Bytes, attribute: 6},
			{Name: "target", Quantity: Microseconds, Default: 5000, attribute: 1},
			{Name: "interval", Quantity: Microseconds, Default: 100_000, attribute: 3},
			{Name: "memory_limit", Quantity: Bytes, Default: 32 << 20, attribute: 9},
			{Name: "ecn", Quantity: Flag, attribute: 4},
		}, encodeAttributes, decodeAttributes},
		"fq": {[]Parameter{
			{Name: "limit", Quantity: Packets, Default: 10000, attribute: 1},
			{Name: "flow_limit", Quantity: Packets, Default: 100, attribute: 2},
			{Name: "quantum", Quantity: Bytes, attribute: 3},
			{Name: "initial_quantum", Quantity: Bytes, attribute: 4},
			{Name: "pacing", Quantity: Flag, attribute: 5},
		}, encodeAttributes, decodeAttributes},
		"cake": {[]Parameter{
			{Name: "bandwidth", Quantity: BitsPerSecond, attribute: 2, wide: true},
			{Name: "diffserv", Quantity: Word, attribute: 3,
				Words: []string{"diffserv3", "diffserv4", "diffserv8", "besteffort", "precedence"}},
			{Name: "flowmode", Quantity: Word, attribute: 5, Words: []string{"flowblind", "srchost",
				"dsthost", "hosts", "flows", "dual-srchost", "dual-dsthost", "triple-isolate"}},
			{Name: "rtt", Quantity: Microseconds, Default: 100_000, attribute: 7},
			{Name: "memlimit", Quantity: Bytes, attribute: 10},
			{Name: "nat", Quantity: Flag, attribute: 11},
			{Name: "wash", Quantity: Flag, attribute: 13},
			{Name: "ingress", Quantity: Flag, attribute: 15},
			{Name: "ack-filter", Quantity: Flag, attribute: 16},
			{Name: "split-gso", Quantity: Flag, attribute: 17},
			// What a frame has on the link beside the IP packet, and the least that it counts as: DSL, for
			// example.
			{Name: "overhead", Quantity: Count, attribute: cakeOverhead},
			{Name: "mpu", Quantity: Count, attribute: 14},
			{Name: "cells", Quantity: Word, attribute: 4, Words: []string{"noatm", "atm", "ptm"}},
		}, encodeAttributes, decodeCake},
	}
}

// Attributes of cake. RAW says that OVERHEAD, which is there too, was never given: then the device's own
// header counts.
const cakeOverhead, cakeRaw = 6, 12

func decodeCake(k queueKind, b []byte) (map[string]uint64, error) {
	found, err := attributes(b)
	if err != nil {
		return nil, err
	}
	v, err := decodeAttributes(k, b)
	if _, raw := found[cakeRaw]; err == nil && raw {
		delete(v, "overhead")
	}
	if v["overhead"] > math.MaxInt32 {
		return nil, errors.New("has a negative overhead, which could not be restored")
	}
	return v, err
}

// Room returns how much may pass at once and wait in the queue, in bytes, bytes and packets; 0 where the
// queue does not say.
func (q Queue) Room() (burst, limitBytes, limitPackets uint64) {
	parameters, _ := QueueParameters(q.Kind)
	for _, p := range parameters {
		switch {
		case p.Name == "limit" && p.Quantity == Bytes, p.Name == "memlimit":
			limitBytes = q.Values[p.Name]
		case p.Name == "limit":
			limitPackets = q.Values[p.Name]
		}
	}
	return q.Values["burst"], limitBytes, limitPackets
}

func (q Queue) encode() ([]byte, error) {
	k, ok := queueKinds()[q.Kind]
	if !ok {
		return nil, fmt.Errorf("queue kind %q: %w", q.Kind, ErrUnsupported)
	}
	return k.encode(k, q.Values), nil
}

func decodeQueue(kind string, options []byte) (Queue, error) {
	k, ok := queueKinds()[kind]
	if !ok {
		return Queue{}, fmt.Errorf("queue kind %q: %w: not one that could be restored", kind, ErrUnsupported)
	}
	v, err := k.decode(k, options)
	if err != nil {
		return Queue{}, fmt.Errorf("read options of queue kind %s: %w", kind, err)
	}
	return Queue{Kind: kind, Values: v}, nil
}

func encodeNothing(queueKind, map[string]uint64) []byte { return nil }

func decodeNothing(queueKind, []byte) (map[string]uint64, error) { return map[string]uint64{}, nil }

// encodeWords is a struct of 32-bit words in the order of the parameters, such as tc_fifo_qopt.
func encodeWords(k queueKind, v map[string]uint64) []byte {
	var b []byte
	for _, p := range k.parameters {
		b = words(b, narrow(v[p.Name]))
	}
	return b
}

func decodeWords(k queueKind, b []byte) (map[string]uint64, error) {
	if len(b) < 4*len(k.parameters) {
		return nil, errShort
	}
	v := map[string]uint64{}
	for i, p := range k.parameters {
		v[p.Name] = uint64(binary.NativeEndian.Uint32(b[4*i:]))
	}
	return v, nil
}

func encodeAttributes(k queueKind, v map[string]uint64) []byte {
	var b []byte
	for _, p := range k.parameters {
		x, ok := v[p.Name]
		if p.Quantity == BitsPerSecond {
			x /= 8
		}
		switch {
		case ok && p.wide:
			b = appendWide(b, p.attribute, x)
		case ok:
			b = appendAttribute(b, p.attribute, words(nil, narrow(x)))
		}
	}
	return b
}

func decodeAttributes(k queueKind, b []byte) (map[string]uint64, error) {
	found, err := attributes(b)
	if err != nil {
		return nil, err
	}
	v := map[string]uint64{}
	for _, p := range k.parameters {
		raw := found[p.attribute]
		switch {
		case p.wide && len(raw) >= 8:
			v[p.Name] = binary.NativeEndian.Uint64(raw)
		case !p.wide && len(raw) >= 4:
			v[p.Name] = uint64(binary.NativeEndian.Uint32(raw))
		default:
			continue
		}
		if p.Quantity == BitsPerSecond {
			v[p.Name] *= 8
		}
		if p.Quantity == Flag && v[p.Name] > 1 {
			v[p.Name] = 1
		}
	}
	return v, nil
}
