// Package model predicts the rate of a router that was not measured from rates that were: by the size of
// packets, by the number of streams, by cores and their clock, and by the speed of a cipher. Each model
// states its assumptions, refuses where they do not hold, and is scored on published results that were
// withheld from it. The formulas are those of docs/method/models.md.
package model

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Size is a point of a sweep: the rate of packets of one length.
type Size struct {
	Packet     int     `json:"packet_bytes"`  // inner IP packet
	Payload    int     `json:"payload_bytes"` // part of it that the rate counts
	GoodputBps float64 `json:"goodput_bps"`
}

// time returns the time of one packet in ns.
func (s Size) time() float64 { return float64(s.Payload) * 8 / s.GoodputBps * 1e9 }

// Interval is an estimate with its interval; without one Level is 0 and Low and High are the value.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Level float64 `json:"level"`
}

// PacketCost is the cost of a packet: time = PerPacket + PerByte × bytes. Neither is negative.
type PacketCost struct {
	PerPacket Interval `json:"per_packet_ns"`
	PerByte   Interval `json:"per_byte_ns"`
	Bound     string   `json:"bound"` // what takes at least two thirds of the time per mean packet
	N         int      `json:"n"`     // sizes

	smallest, largest int
	mean, spread      float64 // of the sizes: x̄ and Σ(x - x̄)²
	deviation         float64 // standard error of a packet's time, ns; 0 if there is no more than a line
}

// What limits a device.
const (
	BoundPackets = "packets"
	BoundBytes   = "bytes"
	BoundBoth    = "packets and bytes"
)

// The share by which a rate must lie outside everything that a cost of packets and bytes can give before it
// counts as impossible: the possible error of a rate from five runs or more, and from fewer, unless its
// interval is wider.
const (
	RepeatedWithin = .02
	OnceWithin     = .05
)

// ErrImpossible means that no device with a fixed time per packet and a time per byte can produce the sweep.
var ErrImpossible = errors.New("no fixed cost of packets and bytes gives these rates")

// FitPacketCost fits a sweep by least squares, with 95 % intervals from three sizes on. It refuses, with
// ErrImpossible, rates that depend more on the size than packets and bytes together can explain, with within
// as the tolerance of a rate.
//
// It assumes that the same thing limits at every size, and that this is neither the link nor fragmentation.
func FitPacketCost(sweep []Size, within float64) (PacketCost, error) {
	s := slices.Clone(sweep)
	slices.SortFunc(s, func(a, b Size) int { return cmp.Compare(a.Packet, b.Packet) })
	s = slices.CompactFunc(s, func(a, b Size) bool { return a.Packet == b.Packet })
	for _, x := range s {
		if !(x.GoodputBps > 0) || x.Payload <= 0 || x.Packet <= 0 {
			return PacketCost{}, fmt.Errorf("packets of %d bytes have no rate", x.Packet)
		}
	}

	if len(s) < 2 {
		return PacketCost{}, errors.New("fewer than two sizes were measured")
	}

	c := PacketCost{N: len(s), smallest: s[0].Packet, largest: s[len(s)-1].Packet}
	if err := possible(s, within); err != nil {
		return c, err
	}

	n := float64(len(s))
	meanTime := 0.0
	product := 0.0
	square := 0.0
	for _, x := range s {
		c.mean += float64(x.Packet) / n
		meanTime += x.time() / n
	}

	for _, x := range s {
		dx := float64(x.Packet) - c.mean
		c.spread += dx * dx
		product += dx * (x.time() - meanTime)
		square += float64(x.Packet) * float64(x.Packet)
	}

	b := product / c.spread
	a := meanTime - b*c.mean
	freeA, freeB := a, b // without bounds
	switch {
	case b < 0:
		a, b = meanTime, 0
	case a < 0:
		a = 0
		b = (product + n*c.mean*meanTime) / square
	}

	errorSum := 0.0
	for _, x := range s {
		e := x.time() - freeA - freeB*float64(x.Packet)
		errorSum += e * e
	}

	c.PerPacket = Interval{Value: a, Low: a, High: a}
	c.PerByte = Interval{Value: b, Low: b, High: b}
	if len(s) > 2 {
		c.deviation = math.Sqrt(errorSum / (n - 2))
		t := student(len(s) - 2)
		half := t * c.deviation * math.Sqrt(1/n+c.mean*c.mean/c.spread)
		c.PerPacket = interval(a, freeA, half)
		c.PerByte = interval(b, freeB, t*c.deviation/math.Sqrt(c.spread))
	}

	switch share := a / (a + b*c.mean); {
	case share >= 2./3:
		c.Bound = BoundPackets
	case share <= 1./3:
		c.Bound = BoundBytes
	default:
		c.Bound = BoundBoth
	}

	return c, nil
}

// interval cuts the interval of the unbounded estimate at zero, and extends it to the value.
func interval(value, free, half float64) Interval {
	return Interval{value, min(value, max(0, free-half)), max(value, free+half), .95}
}

// possible checks the extremes: from a larger to a smaller packet the rate falls at most in proportion to the
// payload, if bytes cost nothing, and least if there is no cost per packet.
func possible(sorted []Size, within float64) error {
	worst, said := within, ""
	for i, small := range sorted {
		for _, large := range sorted[i+1:] {
			ratio := small.GoodputBps / large.GoodputBps
			least := float64(small.Payload) / float64(large.Payload)
			most := least * float64(large.Packet) / float64(small.Packet)
			if by := 1 - ratio/least; by > worst {
				worst = by
				said = fmt.Sprintf("from %d to %d bytes the rate falls to %s, and if packets alone cost "+
					"time to no less than %s", large.Packet, small.Packet, unit.Percent(ratio),
					unit.Percent(least))
			}

			if by := ratio/most - 1; by > worst {
				worst = by
				said = fmt.Sprintf("from %d to %d bytes the rate is %s of what it was, and if bytes alone "+
					"cost time no more than %s", large.Packet, small.Packet, unit.Percent(ratio),
					unit.Percent(most))
			}
		}
	}

	if said != "" {
		return fmt.Errorf("%w: %s", ErrImpossible, said)
	}

	return nil
}

// reach bounds, as a factor, how far beyond the measured sizes or levels a prediction goes.
const reach = 2

// At predicts the rate of packets of a length with such a payload, with the 95 % interval of one more
// measurement; high is +Inf if the interval is unbounded, and both are the rate if there is no interval.
func (c PacketCost) At(packet, payload int) (bps, low, high float64, err error) {
	if packet*reach < c.smallest || packet > c.largest*reach {
		return 0, 0, 0, fmt.Errorf("%d bytes is more than a factor of %d outside of the measured %d to %d",
			packet, reach, c.smallest, c.largest)
	}

	x := float64(packet)
	bits := float64(payload) * 8 * 1e9
	time := c.PerPacket.Value + c.PerByte.Value*x
	bps = bits / time
	if c.N < 3 {
		return bps, bps, bps, nil
	}

	half := student(c.N-2) * c.deviation * math.Sqrt(1+1/float64(c.N)+(x-c.mean)*(x-c.mean)/c.spread)
	if high = math.Inf(1); time > half {
		high = bits / (time - half)
	}

	return bps, bits / (time + half), high, nil
}

// Text describes the cost.
func (c PacketCost) Text() string {
	text := fmt.Sprintf("a packet costs %s and %s a byte: bound by %s", unit.Nanoseconds(c.PerPacket.Value),
		unit.Significant(c.PerByte.Value, 3)+" ns", c.Bound)
	if c.PerByte.Level > 0 {
		text += fmt.Sprintf(" (95 %%: %s to %s a packet, %s to %s ns a byte)",
			unit.Nanoseconds(c.PerPacket.Low), unit.Nanoseconds(c.PerPacket.High),
			unit.Significant(c.PerByte.Low, 3), unit.Significant(c.PerByte.High, 3))
	}
	return text
}

// studentQuantiles are t(0.975) for 1 to 10 degrees of freedom.
var studentQuantiles = [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228}

// student returns the 97.5 % quantile of Student's t; beyond the table by the expansion of Cornish and Fisher
// (Abramowitz and Stegun, 26.7.5), accurate to 0.01 % there.
func student(freedom int) float64 {
	if freedom <= len(studentQuantiles) {
		return studentQuantiles[freedom-1]
	}

	const z = 1.959964
	n := float64(freedom)
	return z + (math.Pow(z, 3)+z)/(4*n) + (5*math.Pow(z, 5)+16*math.Pow(z, 3)+3*z)/(96*n*n) +
		(3*math.Pow(z, 7)+19*math.Pow(z, 5)+17*math.Pow(z, 3)-15*z)/(384*n*n*n)
}
