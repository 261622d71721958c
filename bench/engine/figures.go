package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// figures are what one run gave.
type figures struct {
	goodput      float64 // bit/s
	packets      float64 // per second, arrived
	loss         float64
	gigabytes    float64
	cpu          float64 // seconds, both ends
	memory       int64   // bytes, both ends
	kernelMemory int64
	flows        int
	stolen       float64 // share of the cores that the hypervisor took
	value        float64 // of the quantity that is compared
}

func (f figures) String() string {
	return fmt.Sprintf("%8.3f Gbit/s %9.0f pps, loss %.4f, %.3f s/GB, %d MB + %d MB of sockets, stolen "+
		"%.1f %%",
		f.goodput/1e9, f.packets, f.loss, f.cpu/f.gigabytes, f.memory>>20, f.kernelMemory>>20, 100*f.stolen)
}

// read adds up the flows of a run, and refuses one whose accounts are open.
func read(t *record.Traffic) (figures, error) {
	f := figures{flows: len(t.Flows)}
	var sent, lost int64
	for _, fl := range t.Flows {
		if fl.ReceiverNs <= 0 {
			return f, fmt.Errorf("stream %d received for %d ns", fl.Stream, fl.ReceiverNs)
		}
		f.goodput += 8e9 * float64(fl.ReceivedBytes) / float64(fl.ReceiverNs)
		f.gigabytes += float64(fl.ReceivedBytes) / 1e9
		if p := fl.Packets; p != nil {
			if p.Sent != p.Received+p.Lost {
				return f, fmt.Errorf("stream %d: sent %d, received %d, lost %d", fl.Stream, p.Sent,
					p.Received, p.Lost)
			}
			f.packets += 1e9 * float64(p.Received) / float64(fl.ReceiverNs)
			sent, lost = sent+p.Sent, lost+p.Lost
		}
	}
	if f.gigabytes == 0 {
		return f, errors.New("no byte was received")
	}
	if sent > 0 {
		f.loss = float64(lost) / float64(sent)
	}
	for _, u := range t.Ends {
		f.cpu += float64(u.UserNs+u.SystemNs) / 1e9
		f.memory += u.MemoryBytes
	}
	return f, nil
}

// quantity is what a row compares.
type quantity struct {
	name  string
	unit  string
	scale float64
	lower bool // less is better
	of    func(figures) (float64, error)
}

func goodput() quantity {
	return quantity{"goodput", "Gbit/s", 1e9, false, func(f figures) (float64, error) {
		return f.goodput,
			nil
	}}
}

func delivered() quantity {
	return quantity{"packets", "kpps", 1e3, false, func(f figures) (float64, error) {
		if f.packets == 0 {
			return 0, errors.New("no packets were counted")
		}
		return f.packets, nil
	}}
}

func cost() quantity {
	return quantity{"cost", "s/GB", 1, true, func(f figures) (float64, error) {
		if f.cpu == 0 {
			return 0, errors.New("no CPU time was counted")
		}
		return f.cpu / f.gigabytes, nil
	}}
}

// result is the runs of both sides, pair by pair.
type result struct{ runs [2][]figures }

const tableHead = `| path | ÷ | ratio, median | interval | medians | loss, median | memory per flow | target | stretch | |
|---|---|---:|---:|---:|---:|---:|---:|---:|---|`

// row is a line of the table, and whether the ratio agrees where that is judged.
func (r result) row(c comparison) (line string, agrees bool) {
	column := func(i int, of func(figures) float64) []float64 {
		var v []float64
		for _, f := range r.runs[i] {
			v = append(v, of(f))
		}
		return v
	}
	mid := func(i int, of func(figures) float64) float64 { return statistics.Median(column(i, of)) }
	value := func(f figures) float64 { return f.value / c.of.scale }
	ratio := rig.Ratio(column(0, value), column(1, value))
	loss, memory := "", ""
	if c.ours.load.Protocol == "udp" {
		lost := func(f figures) float64 { return 100 * f.loss }
		loss = fmt.Sprintf("%.3f %%, %.3f %%", mid(0, lost), mid(1, lost))
	}
	if c.ours.load.Streams > 4 {
		memory = fmt.Sprintf("%.0f kB + %.0f kB in sockets",
			mid(0, func(f figures) float64 { return float64(f.memory) / float64(f.flows) / 1e3 }),
			mid(0, func(f figures) float64 { return float64(f.kernelMemory) / float64(f.flows) / 1e3 }))
	}
	digits := short
	word, target, stretch := verdict(c, ratio.Low, ratio.Median, ratio.High), bound(c, c.target),
		bound(c, c.stretch)
	if agrees = true; c.within > 0 {
		word, target, stretch = "agrees", fmt.Sprintf("1 ± %g %%", 100*c.within), "–"
		digits = func(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }
		// Also false where there is no ratio at all: NaN.
		if agrees = ratio.Low >= 1-c.within && ratio.High <= 1+c.within; !agrees {
			word = "DISAGREES"
		}
	}
	return fmt.Sprintf("| %s | %s | %s | %s–%s | %s, %s %s | %s | %s | %s | %s | %s |", c.name, c.peer,
		digits(ratio.Median), digits(ratio.Low), digits(ratio.High), short(mid(0, value)),
		short(mid(1, value)),
		c.of.unit, loss, memory, target, stretch, word), agrees
}

func bound(c comparison, v float64) string {
	if c.of.lower {
		return "≤ " + short(v)
	}
	return "≥ " + short(v)
}

// verdict says which figure the whole interval reaches, or else the median.
func verdict(c comparison, low, m, high float64) string {
	worst := low
	if c.of.lower {
		worst = high
	}
	for _, of := range []struct {
		v    float64
		word string
	}{{worst, ""}, {m, " by the median only"}} {
		reaches := func(bound float64) bool {
			return c.of.lower && of.v <= bound || !c.of.lower && of.v >= bound
		}
		switch {
		case reaches(c.stretch):
			return "stretch" + of.word
		case reaches(c.target):
			return "target" + of.word
		}
	}
	return "missed"
}

// short is three significant digits.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 2, 64), "0")
}
