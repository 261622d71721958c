package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Forms of a column in the store; docs/reference/store.md describes them.
const (
	columnDoubles  = iota // as they are
	columnConstant        // one value, that of every row
	columnWhole           // differences of whole numbers, in units of their greatest common divisor
	columnGaps            // likewise of those present, after a bitmap that says which are
)

var errSeries = errors.New("damaged series")

// absent are the bits of the one NaN that a gap gives back.
var absent = math.Float64bits(math.NaN())

// appendSeries encodes the parts of a trial: first what each is, which hardly differs from trial to trial,
// then the values.
func appendSeries(b []byte, parts []part) ([]byte, error) {
	b = binary.AppendUvarint(b, uint64(len(parts)))
	for _, p := range parts {
		b = appendText(appendText(b, p.path), p.kind)
		if p.table != nil {
			b = binary.AppendUvarint(b, uint64(len(p.table.Names)))
			for _, n := range p.table.Names {
				b = appendText(b, n)
			}
		}
	}
	var beside []int64 // probes of a node are read together
	for _, p := range parts {
		switch {
		case p.table != nil:
			b = appendWhole(b, p.table.T, beside)
			beside = p.table.T
			for i, column := range p.table.V {
				if len(column) != len(p.table.T) {
					return nil, fmt.Errorf("%s: column %s: %d values for %d times", p.path,
						p.table.Names[i], len(column), len(p.table.T))
				}
				b = appendColumn(b, column)
			}
		case p.latency != nil:
			l := p.latency
			b = appendWhole(b, l.RTT, nil)
			b = appendWhole(b, l.UserRTT, l.RTT)
			b = appendWhole(b, l.Late, nil)
			b = appendWhole(b, l.SentAt, l.Late) // is on time but for that
			b = appendWhole(b, l.EchoNs, nil)
		default:
			b = appendText(b, string(p.body))
		}
	}
	return b, nil
}

// readSeries decodes what appendSeries wrote.
func readSeries(b []byte) ([]part, error) {
	r := &reader{rest: b, size: len(b)}
	parts := make([]part, r.count())
	for i := range parts {
		p := &parts[i]
		p.path, p.kind = r.text(), r.text()
		if p.kind == kindTable {
			p.table = &record.Table{Names: make([]string, r.count())}
			for j := range p.table.Names {
				p.table.Names[j] = r.text()
			}
		}
	}
	var beside []int64
	for i := range parts {
		p := &parts[i]
		switch p.kind {
		case kindTable:
			p.table.T = r.whole(beside)
			beside = p.table.T
			p.table.V = make([][]float64, len(p.table.Names))
			for j := range p.table.V {
				p.table.V[j] = r.column(len(p.table.T))
			}
		case kindLatency:
			l := &record.Latency{}
			l.RTT = r.whole(nil)
			l.UserRTT = r.whole(l.RTT)
			l.Late = r.whole(nil)
			l.SentAt = r.whole(l.Late)
			l.EchoNs = r.whole(nil)
			p.latency = l
		default:
			p.body = []byte(r.text())
		}
	}
	if r.failed || len(r.rest) > 0 {
		return nil, errSeries
	}
	return parts, nil
}

// reader takes values off an encoded series. After the first that is not there it gives nothing.
type reader struct {
	rest    []byte
	size    int // of all
	failed  bool
	scratch []int64 // for the numbers of one column
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.failed, r.rest, n = true, nil, 0
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		n = -1
	}
	r.take(n)
	return v
}

// count is a number of things, each of which takes a byte or more, so that a damaged one exhausts nothing.
func (r *reader) count() int {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.failed, r.rest, n = true, nil, 0
	}
	return int(n)
}

func (r *reader) text() string { return string(r.take(r.count())) }

func (r *reader) whole(beside []int64) []int64 {
	n := r.number()
	if n > uint64(r.size) { // some array of as many values takes a byte or more for each: times grow
		r.failed = true
	}
	if n == 0 || r.failed {
		return nil
	}
	values := r.steps(nil, int(n))
	if len(beside) == len(values) {
		for i := range values {
			values[i] += beside[i]
		}
	}
	return values
}

// steps decodes what appendSteps wrote of n values, into a slice that has room for them or a new one.
func (r *reader) steps(into []int64, n int) []int64 {
	if n == 0 || r.failed {
		return nil
	}
	zigzag := r.number()
	width := 0
	if b := r.take(1); len(b) > 0 {
		width = int(b[0])
	}
	planes := r.take(width * (n - 1))
	if r.failed || width > 8 {
		r.failed = true
		return nil
	}
	values := slices.Grow(into[:0], n)[:n]
	values[0] = int64(zigzag>>1) ^ -int64(zigzag&1)
	for i := 1; i < n; i++ {
		step := uint64(0)
		for plane := range width {
			step |= uint64(planes[plane*(n-1)+i-1]) << (8 * plane)
		}
		values[i] = values[i-1] + (int64(step>>1) ^ -int64(step&1))
	}
	return values
}

// column decodes n values. What is read after a failure is discarded.
func (r *reader) column(n int) []float64 {
	form := r.take(1)
	if r.failed {
		return nil
	}
	out := make([]float64, n)
	switch form[0] {
	case columnDoubles:
		for i, b := 0, r.take(8*n); i < n && !r.failed; i++ {
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
	case columnConstant:
		if b := r.take(8); !r.failed {
			for i := range out {
				out[i] = math.Float64frombits(binary.LittleEndian.Uint64(b))
			}
		}
	case columnWhole, columnGaps:
		r.wholes(out, form[0] == columnGaps)
	default:
		r.failed = true
	}
	return out
}

func (r *reader) wholes(out []float64, gaps bool) {
	present, n := []byte(nil), len(out)
	if gaps {
		present, n = r.take((len(out)+7)/8), 0
		for _, b := range present {
			n += bits.OnesCount8(b)
		}
	}
	unit := float64(r.number())
	r.scratch = r.steps(r.scratch, min(n, len(out)))
	values := r.scratch
	for i := range out {
		switch {
		case gaps && !r.failed && present[i/8]>>(i%8)&1 == 0:
			out[i] = math.NaN()
		case len(values) > 0:
			out[i], values = float64(values[0])*unit, values[1:]
		}
	}
}

func appendColumn(b []byte, column []float64) []byte {
	form, unit := formOf(column)
	b = append(b, form)
	switch form {
	case columnDoubles:
		for _, v := range column {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
		return b
	case columnConstant:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(column[0]))
	case columnGaps:
		present := make([]byte, (len(column)+7)/8)
		for i, v := range column {
			if v == v {
				present[i/8] |= 1 << (i % 8)
			}
		}
		b = append(b, present...)
	}
	b = binary.AppendUvarint(b, uint64(unit))
	whole := make([]int64, 0, len(column))
	for _, v := range column {
		if v == v {
			whole = append(whole, int64(v)/unit)
		}
	}
	return appendSteps(b, whole)
}

// appendSteps encodes the differences between neighbours: the first value, then by their bytes, all lowest
// ones first, because those are noise and the others are nearly always the same.
func appendSteps(b []byte, values []int64) []byte {
	if len(values) == 0 {
		return b
	}
	b = binary.AppendVarint(b, values[0])
	step := func(i int) uint64 {
		d := values[i] - values[i-1]
		return uint64(d<<1) ^ uint64(d>>63)
	}
	all := uint64(0)
	for i := range values[1:] {
		all |= step(i + 1)
	}
	width := (bits.Len64(all) + 7) / 8
	b = append(b, byte(width))
	for plane := range width {
		for i := range values[1:] {
			b = append(b, byte(step(i+1)>>(8*plane)))
		}
	}
	return b
}

// formOf is the shortest form that gives back every bit, with the unit of whole numbers.
func formOf(column []float64) (form byte, unit int64) {
	constant, gaps, whole := len(column) > 0, false, true
	for _, v := range column {
		pattern := math.Float64bits(v)
		constant = constant && pattern == math.Float64bits(column[0])
		switch {
		case pattern == absent:
			gaps = true
		case v != math.Trunc(v) || math.Abs(v) > 1<<53 || pattern == 1<<63: // minus zero is no whole number
			whole = false
		default:
			unit = divisor(unit, int64(math.Abs(v)))
		}
	}
	unit = max(unit, 1)
	switch {
	case !whole && constant:
		return columnConstant, unit
	case !whole:
		return columnDoubles, unit
	case gaps:
		return columnGaps, unit
	}
	return columnWhole, unit
}

func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// appendWhole encodes the differences between neighbours, of what lies above beside where there is as much.
func appendWhole(b []byte, values, beside []int64) []byte {
	b = binary.AppendUvarint(b, uint64(len(values)))
	return appendSteps(b, above(values, beside))
}

// above is what lies above beside, where there is as much of that.
func above(values, beside []int64) []int64 {
	if len(beside) != len(values) {
		return values
	}
	out := make([]int64, len(values))
	for i, v := range values {
		out[i] = v - beside[i]
	}
	return out
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}
