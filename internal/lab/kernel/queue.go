package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

// codec encodes and decodes the options of a queueing discipline of one kind.
type codec struct {
	encode func(all []qdisc.Parameter, v map[string]uint64) []byte
	decode func(all []qdisc.Parameter, b []byte) (map[string]uint64, error)
}

var codecs = map[string]codec{
	"noqueue":    {encodeWords, decodeWords},
	"pfifo_fast": {encodeWords, decodeWords},
	"mq":         {encodeWords, decodeWords},
	"pfifo":      {encodeWords, decodeWords},
	"bfifo":      {encodeWords, decodeWords},
	"tbf":        {encodeTBF, decodeTBF},
	"htb":        {encodeHTB, decodeNothing},
	"sfq":        {encodeSFQ, decodeWords},
	"netem":      {encodeNetem, decodeNetem},
	"codel":      {encodeAttributes, decodeAttributes},
	"fq_codel":   {encodeAttributes, decodeAttributes},
	"fq":         {encodeAttributes, decodeAttributes},
	"cake":       {encodeAttributes, decodeCake},
}

// cakeRaw is the attribute that is present if OVERHEAD was never set. In that case, the overhead is the size
// of the device's own header.
const cakeRaw = 12

func decodeCake(all []qdisc.Parameter, b []byte) (map[string]uint64, error) {
	found, err := attributes(b)
	if err != nil {
		return nil, err
	}

	v, err := decodeAttributes(all, b)
	_, raw := found[cakeRaw]
	if err == nil && raw {
		delete(v, "overhead")
	}

	if v["overhead"] > math.MaxInt32 {
		return nil, errors.New("has a negative overhead, which could not be restored")
	}

	return v, err
}

func encodeQueue(q qdisc.Queue) ([]byte, error) {
	k, ok := codecs[q.Kind]
	if !ok {
		return nil, fmt.Errorf("queue kind %q: %w", q.Kind, ErrUnsupported)
	}

	parameters, _ := qdisc.Parameters(q.Kind)
	return k.encode(parameters, q.Values), nil
}

func decodeQueue(kind string, options []byte) (q qdisc.Queue, err error) {
	k, ok := codecs[kind]
	if !ok {
		return q, fmt.Errorf("queue kind %q: %w: not one that could be restored", kind,
			ErrUnsupported)
	}

	parameters, _ := qdisc.Parameters(kind)
	v, err := k.decode(parameters, options)
	if err != nil {
		return q, fmt.Errorf("read options of queue kind %s: %w", kind, err)
	}

	return qdisc.Queue{Kind: kind, Values: v}, nil
}

// decodeNothing is for htb, whose parameters are in its class; see decodeHTBClass.
func decodeNothing([]qdisc.Parameter, []byte) (map[string]uint64, error) {
	return map[string]uint64{}, nil
}

// encodeWords encodes a struct of 32-bit words, such as tc_fifo_qopt. The words are in the order of the
// parameters. Without parameters, there is no struct.
func encodeWords(all []qdisc.Parameter, v map[string]uint64) []byte {
	var b []byte
	for _, p := range all {
		b = words(b, narrow(v[p.Name]))
	}
	return b
}

func decodeWords(all []qdisc.Parameter, b []byte) (map[string]uint64, error) {
	if len(b) < 4*len(all) {
		return nil, errShort
	}

	v := map[string]uint64{}
	for i, p := range all {
		v[p.Name] = uint64(binary.NativeEndian.Uint32(b[4*i:]))
	}

	return v, nil
}

func encodeAttributes(all []qdisc.Parameter, v map[string]uint64) []byte {
	var b []byte
	for _, p := range all {
		x, ok := v[p.Name]
		if p.Quantity == qdisc.BitsPerSecond {
			x /= 8
		}

		switch {
		case ok && p.Wide:
			b = appendWide(b, p.Attribute, x)
		case ok:
			b = appendAttribute(b, p.Attribute, words(nil, narrow(x)))
		}
	}
	return b
}

func decodeAttributes(all []qdisc.Parameter, b []byte) (map[string]uint64, error) {
	found, err := attributes(b)
	if err != nil {
		return nil, err
	}

	v := map[string]uint64{}
	for _, p := range all {
		raw := found[p.Attribute]
		switch {
		case p.Wide && len(raw) >= 8:
			v[p.Name] = binary.NativeEndian.Uint64(raw)
		case !p.Wide && len(raw) >= 4:
			v[p.Name] = uint64(binary.NativeEndian.Uint32(raw))
		default:
			continue
		}

		if p.Quantity == qdisc.BitsPerSecond {
			v[p.Name] *= 8
		}

		if p.Quantity == qdisc.Flag && v[p.Name] > 1 {
			v[p.Name] = 1
		}
	}

	return v, nil
}
