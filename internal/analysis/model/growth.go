package model

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Scaling is the law fitted to a number of levels.
type Scaling struct {
	statistics.Scaling
	N int `json:"n"` // levels

	lowest, highest float64
}

// scalingLevels is the minimum number of levels for fitting the law, which has three parameters.
const scalingLevels = 3

// FitScaling fits the law to rates at three levels or more. It assumes that the same thing limits at all of
// them, the link at none.
func FitScaling(points []statistics.ScalingPoint) (Scaling, error) {
	var levels []float64
	for _, p := range points {
		if !slices.Contains(levels, p.Level) {
			levels = append(levels, p.Level)
		}
	}

	if len(levels) < scalingLevels {
		return Scaling{}, fmt.Errorf("%s measured, the law needs %d", unit.Count(len(levels), "level"),
			scalingLevels)
	}

	s := Scaling{N: len(levels), lowest: slices.Min(levels), highest: slices.Max(levels)}
	if s.lowest < 1 {
		return Scaling{}, errors.New("a level is below one")
	}

	var ok bool
	if s.Scaling, ok = statistics.FitScaling(points); !ok {
		return Scaling{}, errors.New("the law fits nothing here")
	}

	return s, nil
}

// At predicts the rate for n.
func (s Scaling) At(n float64) (float64, error) {
	if n < 1 || n > s.highest*reach || n*reach < s.lowest {
		return 0, fmt.Errorf("%g is more than a factor of %d outside of the measured %g to %g", n, reach,
			s.lowest, s.highest)
	}
	return s.Scaling.At(n), nil
}

// Text describes the fit.
func (s Scaling) Text() string {
	text := fmt.Sprintf("one carries %s; %s of the work is serial, and each costs each other one %s",
		unit.Bitrate(s.SingleBps), unit.Percent(s.Contention), unit.Percent(s.Coherence))
	if most, ok := s.Peak(); ok {
		text += fmt.Sprintf("; most with %.0f", most)
	}
	return text
}

// Clocked is a rate at a clock.
type Clocked struct {
	MHz        float64
	GoodputBps float64
}

// Elasticity returns how a rate changes with the clock of one device: Δ ln rate ÷ Δ ln clock, by least
// squares. At 1 the processor limits, at 0 something else does.
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

	square, product := 0.0, 0.0
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

// Stages holds the cost of the stages that a packet through a tunnel passes in sequence.
type Stages struct {
	Forward float64 // ns to forward one packet; 0: not measured, assumed free
	Cipher  float64 // bytes per second of all cores that encrypt
}

// TunnelRate returns the rate of tunnelled packets if the stages do nothing else and waste nothing: payload ÷
// (outer packets × forward + bytes ÷ cipher). No device with these stages is faster.
func (s Stages) TunnelRate(packet, payload, fragments int) (float64, error) {
	if !(s.Cipher > 0) {
		return 0, errors.New("the speed of the cipher is not known")
	}

	time := s.Forward*float64(max(1, fragments)) + float64(packet)/s.Cipher*1e9
	return float64(payload) * 8 / time * 1e9, nil
}
