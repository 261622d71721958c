// Package model predicts the rates of routers under conditions that were not measured, based on measured
// rates. It models packet size, numbers of streams and cores, clock, and cipher speed. Each model states its
// assumptions, and returns an error if they do not hold. Models are scored on published results that were
// withheld from them. docs/method/models.md has the formulas.
package model

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Size is a point of a sweep of packet sizes.
type Size struct {
	Packet     int // length of the inner IP packet
	Payload    int // bytes that count as payload in the rate
	GoodputBps float64
}

// time returns the time per packet in ns.
func (s Size) time() float64 { return float64(s.Payload) * 8 / s.GoodputBps * 1e9 }

// Interval is an estimate with its confidence interval. Without an interval, Level is 0 and Low and High
// equal Value.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Level float64 `json:"level"`
}

// PacketCost models the time per packet as PerPacket + PerByte × bytes. Neither cost is negative.
type PacketCost struct {
	PerPacket Interval // in ns
	PerByte   Interval // in ns
	Bound     string   // component that takes at least two thirds of the time of a mean packet
	N         int      // number of sizes

	smallest, largest int
	mean, spread      float64 // mean of the sizes, x̄, and Σ(x - x̄)²
	deviation         float64 // standard error of the time per packet in ns; 0 for only two sizes
}

// Components that limit a device.
const (
	BoundPackets = "packets"
	BoundBytes   = "bytes"
	BoundBoth    = "packets and bytes"
)

// RepeatedWithin and OnceWithin are relative tolerances of rates. RepeatedWithin is the possible error of a
// rate from at least five runs, and OnceWithin is the possible error of a rate from fewer runs. A rate with a
// wider interval has this interval as its tolerance. A sweep counts as impossible only if no costs of packets
// and bytes fit all rates within their tolerances.
const (
	RepeatedWithin = .02
	OnceWithin     = .05
)

// ErrImpossible means that no device with fixed costs per packet and per byte can produce the rates of the
// sweep.
var ErrImpossible = errors.New("no fixed cost of packets and bytes gives these rates")

// FitPacketCost fits the costs to a sweep by least squares, with 95 % intervals if there are at least three
// sizes. It returns ErrImpossible if the rates depend on the size more than costs per packet and per byte can
// explain. within is the relative tolerance of a rate.
//
// FitPacketCost assumes that the same resource limits the rate at every size, and that this resource is
// neither the link nor fragmentation.
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
	freeA, freeB := a, b // costs before negative ones are set to 0
	switch {
	case b < 0:
		a = meanTime
		b = 0
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

// interval returns the interval of a cost that cannot be negative. It takes the interval of the unconstrained
// estimate, free ± half, drops the negative part, and extends the rest to include the constrained estimate,
// value.
func interval(value, free, half float64) Interval {
	return Interval{value, min(value, max(0, free-half)), max(value, free+half), .95}
}

// possible returns ErrImpossible if the rates of two sizes have a ratio outside of its limits. From the
// larger to the smaller packet, the rate decreases in proportion to the payload if bytes cost nothing, and by
// less if packets cost nothing. within is the tolerance.
func possible(sorted []Size, within float64) error {
	worst := within
	said := ""
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

// reach is the largest factor by which a requested level may be outside of the measured range.
const reach = 2

// At returns the predicted rate of packets with the given length and payload, and the 95 % interval of a new
// measurement. high is +Inf if the interval is unbounded. Without an interval, low and high equal the rate.
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

// Text describes the costs.
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

// studentQuantiles holds t(0.975) for 1 to 10 degrees of freedom.
var studentQuantiles = [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228}

// student returns the 97.5 % quantile of Student's t distribution. Beyond the table, it uses the
// Cornish–Fisher expansion (Abramowitz and Stegun, 26.7.5), which is accurate to 0.01 % there.
func student(freedom int) float64 {
	if freedom <= len(studentQuantiles) {
		return studentQuantiles[freedom-1]
	}

	const z = 1.959964
	n := float64(freedom)
	return z + (math.Pow(z, 3)+z)/(4*n) + (5*math.Pow(z, 5)+16*math.Pow(z, 3)+3*z)/(96*n*n) +
		(3*math.Pow(z, 7)+19*math.Pow(z, 5)+17*math.Pow(z, 3)-15*z)/(384*n*n*n)
}
