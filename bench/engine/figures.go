package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

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
			return 0, errors.New("no processor time was counted")
		}
		return f.cpu / f.gigabytes, nil
	}}
}

// result is the runs of both sides, pair by pair.
type result struct{ runs [2][]figures }

// ratios are those of the pairs, sorted.
func (r result) ratios() []float64 {
	var out []float64
	for i := range r.runs[0] {
		out = append(out, r.runs[0][i].value/r.runs[1][i].value)
	}
	slices.Sort(out)
	return out
}

const tableHead = `| path | ÷ | ratio, median | interval | medians | loss, median | memory per flow | safe | moonshot | |
|---|---|---:|---:|---:|---:|---:|---:|---:|---|`

// row is a line of the table.
func (r result) row(c comparison) string {
	all := r.ratios()
	m, k := median(all), rank(len(all))
	column := func(i int, of func(figures) float64) float64 {
		var v []float64
		for _, f := range r.runs[i] {
			v = append(v, of(f))
		}
		return median(v)
	}
	value := func(f figures) float64 { return f.value / c.of.scale }
	loss, memory := "", ""
	if c.ours.load.Protocol == "udp" {
		loss = fmt.Sprintf("%.3f %%, %.3f %%", 100*column(0, func(f figures) float64 { return f.loss }),
			100*column(1, func(f figures) float64 { return f.loss }))
	}
	if c.ours.load.Streams > 4 {
		memory = fmt.Sprintf("%.0f kB + %.0f kB in sockets",
			column(0, func(f figures) float64 { return float64(f.memory) / float64(f.flows) / 1e3 }),
			column(0, func(f figures) float64 { return float64(f.kernelMemory) / float64(f.flows) / 1e3 }))
	}
	return fmt.Sprintf("| %s | %s | %s | %s–%s | %s, %s %s | %s | %s | %s | %s | %s |", c.name, c.peer,
		short(m), short(all[k]), short(all[len(all)-1-k]),
		short(column(0, value)), short(column(1, value)), c.of.unit, loss, memory, bound(c, c.safe),
		bound(c, c.moon), verdict(c, all[k], m, all[len(all)-1-k]))
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
			return c.of.lower && of.v <= bound || !c.of.lower &&
				of.v >= bound
		}
		switch {
		case reaches(c.moon):
			return "moonshot" + of.word
		case reaches(c.safe):
			return "safe" + of.word
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

// rank is the largest k such that the k-th smallest (from 0) and k-th largest of n values hold the median
// with at least 95 %: the sign test's interval.
func rank(n int) int {
	tail, term := 0.0, math.Pow(.5, float64(n)) // P(no value below the median)
	k := -1
	for i := 0; 2*(tail+term) <= 0.05; i++ {
		tail += term
		term *= float64(n-i) / float64(i+1)
		k = i
	}
	return max(k, 0)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
