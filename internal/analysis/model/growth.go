package model

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Scaling is the Universal Scalability Law, fitted to the rates at several levels, such as numbers of
// streams.
type Scaling struct {
	statistics.Scaling
	lowest, highest float64
}

// scalingLevels is the minimum number of levels for fitting the law's three parameters.
const scalingLevels = 3

// FitScaling fits the law to the rates at three or more levels. It assumes that the same resource limits the
// rate at all levels, and that the link limits the rate at none of them.
func FitScaling(points []statistics.ScalingPoint) (Scaling, error) {
	var levels []float64
	for _, p := range points {
		levels = once(levels, p.Level)
	}

	if len(levels) < scalingLevels {
		return Scaling{}, fmt.Errorf("%s measured, the law needs %d", unit.Count(len(levels), "level"),
			scalingLevels)
	}

	s := Scaling{lowest: slices.Min(levels), highest: slices.Max(levels)}
	if s.lowest < 1 {
		return Scaling{}, errors.New("a level is below one")
	}

	var ok bool
	if s.Scaling, ok = statistics.FitScaling(points); !ok {
		return Scaling{}, errors.New("the law does not fit these rates")
	}

	return s, nil
}

// At returns the predicted rate at the level n. It returns an error if n is too far from the measured levels.
func (s Scaling) At(n float64) (float64, error) {
	if n < 1 || n > s.highest*reach || n*reach < s.lowest {
		return 0, fmt.Errorf("%g is more than a factor of %d outside of the measured %g to %g", n, reach,
			s.lowest, s.highest)
	}
	return s.Scaling.At(n), nil
}

// Text describes the fitted law.
func (s Scaling) Text() string {
	text := fmt.Sprintf("one carries %s; %s of the work is serial, and each costs each other one %s",
		unit.Bitrate(s.SingleBps), unit.Percent(s.Contention), unit.Percent(s.Coherence))
	if most, ok := s.Peak(); ok {
		text += fmt.Sprintf("; most with %.0f", most)
	}
	return text
}

// Clocked is a rate at a clock frequency.
type Clocked struct {
	MHz        float64
	GoodputBps float64
}

// Elasticity returns Δ ln rate ÷ Δ ln clock for one device, by least squares. It is 1 if the processor is the
// limit, and 0 if something else is.
func Elasticity(points []Clocked) (float64, error) {
	n := float64(len(points))
	x := 0.0
	y := 0.0
	for _, p := range points {
		if !(p.MHz > 0) || !(p.GoodputBps > 0) {
			return 0, errors.New("a clock without a number or a rate")
		}

		x += math.Log(p.MHz) / n
		y += math.Log(p.GoodputBps) / n
	}

	square := 0.0
	product := 0.0
	for _, p := range points {
		dx := math.Log(p.MHz) - x
		square += dx * dx
		product += dx * (math.Log(p.GoodputBps) - y)
	}

	if square == 0 {
		return 0, errors.New("the clock was never changed")
	}

	return product / square, nil
}

// Stages holds the costs of the stages through which a packet in a tunnel passes, one after the other.
type Stages struct {
	Forward float64 // ns per forwarded packet; 0 means not measured
	Cipher  float64 // bytes per second that all encrypting cores reach together
}

// TunnelRate returns the rate of packets through the tunnel on a device that only forwards and encrypts:
// payload ÷ (outer packets × Forward + bytes ÷ Cipher). A device with these stages cannot be faster.
func (s Stages) TunnelRate(packet, payload, fragments int) (float64, error) {
	if !(s.Cipher > 0) {
		return 0, errors.New("the speed of the cipher is not known")
	}

	time := s.Forward*float64(max(1, fragments)) + float64(packet)/s.Cipher*1e9
	return float64(payload) * 8 / time * 1e9, nil
}
