package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
)

// figures holds the results of one run.
type figures struct {
	rig.Sums
	kernelMemory int64   // bytes
	stolen       float64 // share of the cores' time taken by the hypervisor
	value        float64 // of the compared quantity
}

func (f figures) String() string {
	return fmt.Sprintf("%8.3f Gbit/s %9.0f pps, loss %.4f, %.3f s/GB, %d MB + %d MB of sockets, stolen "+
		"%.1f %%", f.Goodput/1e9, f.PPS, f.Loss(), f.CPU/f.Gigabytes, f.Memory>>20, f.kernelMemory>>20,
		100*f.stolen)
}

// quantity is the quantity compared by a row.
type quantity struct {
	unit  string
	lower bool // less is better
	of    func(rig.Sums) float64
}

var (
	goodput   = quantity{"Gbit/s", false, func(s rig.Sums) float64 { return s.Goodput / 1e9 }}
	delivered = quantity{"kpps", false, func(s rig.Sums) float64 { return s.PPS / 1e3 }}
	cost      = quantity{"s/GB", true, func(s rig.Sums) float64 { return s.CPU / s.Gigabytes }}
)

const tableHead = `| path | ÷ | ratio, median | interval | medians | loss, median | memory per flow | target | stretch | |
|---|---|---:|---:|---:|---:|---:|---:|---:|---|`

// row returns a line of the table for the runs of both sides, and whether the ratio agrees if that is
// checked.
func (c comparison) row(runs [][]figures) (line string, agrees bool) {
	value := func(f figures) float64 { return f.value }
	ratio := rig.Ratio(rig.Column(runs[0], value), rig.Column(runs[1], value))
	loss, memory := "", ""
	if c.ours.load.Protocol == "udp" {
		lost := func(f figures) float64 { return 100 * f.Loss() }
		loss = fmt.Sprintf("%.3f %%, %.3f %%", rig.Middle(runs[0], lost), rig.Middle(runs[1], lost))
	}

	if c.ours.load.Streams > 4 {
		flows := 1e3 * float64(c.ours.load.Streams)
		memory = fmt.Sprintf("%.0f kB + %.0f kB in sockets",
			rig.Middle(runs[0], func(f figures) float64 { return float64(f.Memory) / flows }),
			rig.Middle(runs[0], func(f figures) float64 { return float64(f.kernelMemory) / flows }))
	}

	digits := short
	word := c.verdict(ratio.Low, ratio.Median, ratio.High)
	target := c.bound(c.target)
	stretch := c.bound(c.stretch)
	if agrees = true; c.within > 0 {
		word, target, stretch = "agrees", fmt.Sprintf("1 ± %g %%", 100*c.within), "–"
		digits = func(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }
		// Also false for NaN, without any ratio.
		if agrees = ratio.Low >= 1-c.within && ratio.High <= 1+c.within; !agrees {
			word = "DISAGREES"
		}
	}

	return fmt.Sprintf("| %s | %s | %s | %s–%s | %s, %s %s | %s | %s | %s | %s | %s |", c.name, c.peer,
		digits(ratio.Median), digits(ratio.Low), digits(ratio.High), short(rig.Middle(runs[0], value)),
		short(rig.Middle(runs[1], value)), c.of.unit, loss, memory, target, stretch, word), agrees
}

func (c comparison) bound(v float64) string {
	if c.of.lower {
		return "≤ " + short(v)
	}
	return "≥ " + short(v)
}

// verdict returns the figure that the whole interval reaches, or else the one that the median reaches.
func (c comparison) verdict(low, m, high float64) string {
	reaches := func(v, bound float64) bool { return v >= bound }
	if c.of.lower {
		low, reaches = high, func(v, bound float64) bool { return v <= bound }
	}

	switch {
	case reaches(low, c.stretch):
		return "stretch"
	case reaches(low, c.target):
		return "target"
	case reaches(m, c.stretch):
		return "stretch by the median only"
	case reaches(m, c.target):
		return "target by the median only"
	}

	return "missed"
}

// short formats three significant digits.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 2, 64), "0")
}
