package model

import (
	"fmt"
	"math"

	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// SpeedPrediction holds the known speeds of an algorithm on one core of a device.
type SpeedPrediction struct {
	Device    string            `json:"device"`
	Algorithm string            `json:"algorithm"`
	ClockMHz  float64           `json:"clock_mhz,omitempty"` // requested clock
	Measured  []catalogue.Speed `json:"measured"`
	// Scaled holds the measured speeds scaled to the requested clock. It assumes the same number of cycles
	// per byte or operation. The error of this assumption is unknown, because no study measured a device at
	// two clocks.
	Scaled  []catalogue.Speed `json:"scaled"`
	Refused string            `json:"refused,omitempty"`
	// Uncounted describes how many of the device's own speeds were left out of Measured, and why.
	Uncounted string `json:"not_counted,omitempty"`
}

// PredictSpeed returns the speeds of an algorithm on a device. It uses only published speeds of the device
// itself, because a core with instructions for a cipher needs a small fraction of the cycles of a core
// without them.
func PredictSpeed(c *catalogue.Catalogue, device, algorithm string, mhz float64) SpeedPrediction {
	d, _ := c.Device(device)
	p := SpeedPrediction{
		Device:    device,
		Algorithm: algorithm,
		ClockMHz:  mhz,
		Measured:  []catalogue.Speed{},
		Scaled:    []catalogue.Speed{},
	}
	for _, s := range c.SpeedsOf(d.Name) {
		if s.Algorithm == algorithm && s.Value != nil {
			p.Measured = append(p.Measured, s)
		}
	}

	by := mhz / float64(d.ClockMHz) // +Inf if the published clock is unknown
	switch {
	case len(p.Measured) == 0:
		p.Refused = refusedSpeed(c, algorithm)
	case mhz == 0:
	case d.ClockMHz == 0:
		p.Refused = "the clock at which it was measured is not known"
	case by > reach || by*reach < 1:
		p.Refused = fmt.Sprintf("%g MHz is more than a factor of %d from the %d MHz of the device", mhz,
			reach, d.ClockMHz)
	default:
		for _, s := range p.Measured {
			s.Value = new(*s.Value * by)
			p.Scaled = append(p.Scaled, s)
		}
	}

	return p
}

// refusedSpeed explains why the speeds of other devices are not used.
func refusedSpeed(c *catalogue.Catalogue, algorithm string) string {
	least := math.Inf(1)
	most := 0.0
	what := "operation"
	for _, s := range c.Speeds {
		d, _ := c.Device(s.Device)
		if s.Algorithm != algorithm || s.Value == nil || d.ClockMHz == 0 {
			continue
		}

		if s.Unit == "B/s" {
			what = "byte"
		}

		cycles := float64(d.ClockMHz) * 1e6 / *s.Value
		least = min(least, cycles)
		most = max(most, cycles)
	}

	if most == 0 {
		return "no study gives a speed of " + algorithm
	}

	return fmt.Sprintf("no study has the speed of %s on this device, and on others it takes %s to %s "+
		"cycles for each %s: what a core of another design takes shows nothing", algorithm,
		unit.Significant(least, 3), unit.Significant(most, 3), what)
}
