package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
)

// measured is what one tool saw once, in nanoseconds.
type measured struct {
	tool string
	rtt  []float64 // sorted
	sent int
}

// quantile is the smallest value with at least the share q at or below it.
func (m measured) quantile(q float64) float64 {
	if len(m.rtt) == 0 {
		return math.NaN()
	}
	i := int(math.Ceil(q*float64(len(m.rtt))-1e-9)) - 1
	return m.rtt[min(max(i, 0), len(m.rtt)-1)]
}

// of gives a quantile of each run.
func of(runs []measured, q float64) []float64 {
	out := make([]float64, len(runs))
	for i, r := range runs {
		out[i] = r.quantile(q)
	}
	return out
}

func ratio(a, b float64) float64 { return a / b }

func minus(a, b float64) float64 { return a - b }

// claim is one line of the comparison.
type claim struct {
	text   string
	ours   string
	peer   string
	level  float64
	join   func(a, b float64) float64
	format string
	scale  float64
}

var claims = []claim{
	{"p99, echo ÷ irtt", "echo", "irtt", .99, ratio, "%.3f ×", 1},
	{"p50, echo ÷ irtt", "echo", "irtt", .50, ratio, "%.3f ×", 1},
	{"p99, icmp ÷ irtt", "icmp", "irtt", .99, ratio, "%.3f ×", 1},
	{"p50, echo − ping", "echo", "ping", .50, minus, "%+.2f µs", 1e3},
	{"p50, icmp − ping", "icmp", "ping", .50, minus, "%+.2f µs", 1e3},
}

// table is the result in Markdown: each tool by itself, then the ratios of the blocks with their intervals.
func table(o options, machine string, all map[string][]measured) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Client, router and server of a local lab, %d-byte IP packets every %v; %d interleaved "+
		"blocks of %d s, order drawn with seed %d. Medians of the blocks. %s.\n\n", packetSize, interval,
		o.blocks, o.seconds, o.seed, machine)
	b.WriteString("| tool | what a round trip is | answered | p50 µs | p99 µs | p99.9 of all µs " +
		"|\n|---|---|---|---|---|---|\n")
	for _, t := range tools {
		var pool measured
		for _, r := range all[t.name] {
			pool.rtt, pool.sent = append(pool.rtt, r.rtt...), pool.sent+r.sent
		}
		slices.Sort(pool.rtt)
		tail := "–"
		if statistics.Carries(len(pool.rtt), .999) {
			tail = fmt.Sprintf("%.1f", pool.quantile(.999)/1e3)
		}
		fmt.Fprintf(&b, "| %s | %s | %d of %d | %.2f | %.2f | %s |\n", t.name, t.what, len(pool.rtt),
			pool.sent,
			statistics.Median(of(all[t.name], .5))/1e3, statistics.Median(of(all[t.name], .99))/1e3, tail)
	}
	b.WriteString("\n| measure | median | interval | n |\n|---|---|---|---|\n")
	for _, c := range claims {
		v := statistics.Summarise(rig.Each(of(all[c.ours], c.level), of(all[c.peer], c.level), c.join))
		fmt.Fprintf(&b, "| %s | "+c.format+" | "+c.format+" to "+c.format+" (%.1f %%) | %d |\n", c.text,
			v.Median/c.scale, v.Low/c.scale, v.High/c.scale, 100*v.Level, v.N)
	}
	return b.String()
}
