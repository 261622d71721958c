package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// samePlan measures one thing twice: two cells that differ in nothing, in twelve blocks, the fewest on
// which Holm's correction of forty signed-rank tests can still find anything (2/2¹² × 40 < 5 %).
const samePlan = `name: same
description: Two cells that are the same (A/A).
method: {duration: 500ms, warmup: 200ms, cooldown: 0s, idle: 400ms, runs: 12}
measure: {verify: false, latency_idle: trial, probe_interval: 1ms}
matrix:
  copy: [a, b]
  direction: both
`

// sameCounters are what is compared beside the metrics of the document: growth in the window. They are
// fixed beforehand, not chosen by what they show.
var sameCounters = [...]string{
	"router/netdev/wan/rx_bytes", "router/netdev/wan/tx_bytes", "router/netdev/wan/rx_packets",
	"router/netdev/wan/tx_packets",
	"router/softirq/cpu/net_rx", "router/softirq/cpu/timer", "router/softirq/cpu/rcu",
	"router/softirq/cpu/sched",
	"router/cpu/interrupts", "router/cpu/context_switches", "router/cpu/cpu/system_ns",
	"router/cpu/cpu/user_ns",
	"router/softnet/cpu/time_squeeze",
	"host/cpu/interrupts", "host/cpu/context_switches", "host/cpu/processes", "host/cpu/cpu/user_ns",
	"host/cpu/cpu/system_ns",
	"host/softirq/cpu/timer", "host/softirq/cpu/sched", "host/softirq/cpu/rcu", "host/pressure/cpu/some_ns",
	"client/snmp/TcpInSegs", "client/snmp/TcpExtTCPPureAcks", "client/snmp/TcpExtTCPBacklogCoalesce",
	"server/snmp/TcpInSegs", "server/snmp/TcpExtTCPPureAcks", "server/snmp/TcpExtTCPBacklogCoalesce",
}

// sameLeast is how many metrics must have data in both cells of every run.
const sameLeast = 40

// Bounds of the pooled rate of "different".
const (
	mostDifferent      = .05
	mostDifferentBound = .08
)

// tally is what one run of two identical cells gave.
type tally struct {
	Seed               uint64
	Metrics            int
	Raw, Holm, Family  int // verdicts "different"
	Names              []string
	Goodput, Low, High float64
}

// same runs the plan with seeds from 1 on and judges how often two cells that are the same were called
// different.
func same(ctx context.Context, b bench) error {
	all, err := b.kept()
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "%6s %8s %10s %6s %14s   %s\n", "seed", "metrics", "different", "Holm",
		"Westfall–Young", "goodput b ÷ a")
	for _, t := range all {
		t.print(b.out)
	}
	var first []record.Factors
	for seed := uint64(len(all)) + 1; seed <= uint64(b.runs); seed++ {
		c, err := b.measure(ctx, 10*time.Minute, samePlan, "--seed", fmt.Sprint(seed))
		if err != nil {
			return err
		}
		t, err := tallyOf(c)
		if err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		t.Seed = seed
		t.print(b.out)
		if err := b.keep(t); err != nil {
			return err
		}
		if all = append(all, t); seed == 1 {
			first = orderOf(c)
		}
	}
	return errors.Join(b.sameOrder(ctx, first), b.judgeSame(all))
}

func (t tally) print(out io.Writer) {
	fmt.Fprintf(out, "%6d %8d %10d %6d %14d   %.3f (%.3f–%.3f) %s\n", t.Seed, t.Metrics, t.Raw, t.Holm,
		t.Family, t.Goodput, t.Low, t.High, t.Names)
}

// kept are the runs of a suite that was interrupted, from seed 1 on.
func (b bench) kept() (all []tally, err error) {
	if b.keepFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(b.keepFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for line := range bytes.Lines(text) {
		var t tally
		if err := json.Unmarshal(line, &t); err != nil || t.Seed != uint64(len(all))+1 {
			return nil, fmt.Errorf("%s: line %d is not the run of that seed (%v)", b.keepFile, len(all)+1,
				err)
		}
		all = append(all, t)
	}
	return all, err
}

func (b bench) keep(t tally) error {
	line, err := json.Marshal(t)
	return errors.Join(err, rig.Append(b.keepFile, string(line)+"\n"))
}

// sameOrder runs the first seed again, on the lab that is soonest up, and wants the same order of the
// blocks that it has.
func (b bench) sameOrder(ctx context.Context, first []record.Factors) error {
	b.lab = "local"
	brief := []string{"--seed", "1", "--set", "method.runs=4", "--set", "method.duration=100ms", "--set",
		"method.idle=100ms"}
	if first == nil { // it was in an earlier part of the suite
		c, err := b.measure(ctx, 2*time.Minute, samePlan, brief...)
		if err != nil {
			return err
		}
		first = orderOf(c)
	}
	c, err := b.measure(ctx, 2*time.Minute, samePlan, brief...)
	if err != nil {
		return err
	}
	again := orderOf(c)
	if len(again) < 8 || len(first) < len(again) {
		return fmt.Errorf("order: got %d and %d trials, too few", len(first), len(again))
	}
	for i := range again {
		if again[i].Key() != first[i].Key() {
			return fmt.Errorf("order: trial %d of two runs of seed 1: %s and %s", i+1, first[i].Key(),
				again[i].Key())
		}
	}
	fmt.Fprintf(b.out, "note: two runs of seed 1 had the same order of %d trials\n", len(again))
	return nil
}

// orderOf are the cells of a run in the order in which they were measured.
func orderOf(c campaign) []record.Factors {
	trials := slices.Clone(c.Trials)
	sort.SliceStable(trials, func(i, j int) bool { return trials[i].Started.Before(trials[j].Started) })
	out := make([]record.Factors, len(trials))
	for i := range trials {
		out[i] = trials[i].Row.Factors
	}
	return out
}

// tallyOf compares the two cells of a run on every metric that both have and that is not one and the same
// number throughout.
func tallyOf(c campaign) (tally, error) {
	for i := range c.Trials {
		if t := &c.Trials[i]; t.Failure != nil {
			return tally{}, fmt.Errorf("trial %s failed in %s: %s", t.ID, t.Failure.Phase, t.Failure.Error)
		}
	}
	a, b := valuesOf(c, "a"), valuesOf(c, "b")
	var t tally
	var p []float64
	var different []bool
	var family []map[int]float64
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if !varies(a[name], b[name]) {
			continue
		}
		x, by := comparison.ComparePaired(name, a[name], b[name])
		if x.N < statistics.MinInterval {
			continue
		}
		if name == "goodput_bps" {
			t.Goodput, t.Low, t.High = x.Ratio, x.Low, x.High
		}
		p, different, family = append(p, x.PValue), append(different, x.Verdict == "different"),
			append(family, by)
		if x.Verdict == "different" {
			t.Names = append(t.Names, name)
		}
	}
	holm := statistics.Holm(p)
	adjusted, _ := statistics.FamilyTest(family)
	for i, d := range different {
		t.Raw += count(d)
		t.Holm += count(d && holm[i] <= mostDifferent)
		t.Family += count(d && adjusted[i] <= mostDifferent)
	}
	if t.Metrics = len(p); t.Metrics < sameLeast {
		return t, fmt.Errorf("only %d metrics have data in both cells, %d are wanted", t.Metrics, sameLeast)
	}
	return t, nil
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// valuesOf are the values of one copy's metrics by block.
func valuesOf(c campaign, copy string) map[string]map[int]float64 {
	out := map[string]map[int]float64{}
	add := func(name string, block int, v float64) {
		if out[name] == nil {
			out[name] = map[int]float64{}
		}
		out[name][block] = v
	}
	for _, v := range c.Doc.Trials {
		if v.Factors["copy"] == copy {
			for name, x := range v.Metrics {
				add(name, v.Block, x)
			}
		}
	}
	for i := range c.Trials {
		t := &c.Trials[i]
		if t.Row.Factors["copy"] != copy {
			continue
		}
		grown := metrics.Growth(t)
		for _, name := range sameCounters {
			if x, ok := grown[name]; ok {
				add(name, t.Row.Block, x)
			}
		}
	}
	return out
}

// varies says whether the values of two cells are not all one number.
func varies(a, b map[int]float64) bool {
	var first float64
	seen := false
	for _, cell := range []map[int]float64{a, b} {
		for _, v := range cell {
			if seen && v != first {
				return len(a) > 0 && len(b) > 0
			}
			first, seen = v, true
		}
	}
	return false
}

// judgeSame pools the runs. With one run nothing may be different after Holm's correction; with twenty the
// pooled rate is held to its bounds.
func (b bench) judgeSame(all []tally) error {
	raw, bound := pooled(all, func(t tally) int { return t.Raw })
	holm, holmBound := pooled(all, func(t tally) int { return t.Holm })
	family, familyBound := pooled(all, func(t tally) int { return t.Family })
	metrics := 0
	for _, t := range all {
		metrics += t.Metrics
	}
	fmt.Fprintf(b.out, "note: %d runs, %d comparisons of a thing with itself; called different, with the "+
		"upper 95 %% bound over runs:\n", len(all), metrics)
	fmt.Fprintf(b.out, "note: each alone %.2f %% (%.2f %%), by Holm %.2f %% (%.2f %%), by Westfall and "+
		"Young %.2f %% (%.2f %%)\n",
		100*raw, 100*bound, 100*holm, 100*holmBound, 100*family, 100*familyBound)
	if len(all) < 20 {
		if holm > 0 {
			return fmt.Errorf("of two cells that are the same Holm's correction calls something "+
				"different: %v", all)
		}
		return nil
	}
	for _, rate := range []struct{ got, bound float64 }{{raw, bound}, {holm, holmBound},
		{family, familyBound}} {
		if rate.got > mostDifferent || rate.bound > mostDifferentBound {
			return fmt.Errorf("of two cells that are the same %.2f %% (at most %.2f %%) are called different",
				100*rate.got, 100*rate.bound)
		}
	}
	return nil
}

// resamples is how often the runs are drawn for the bound.
const resamples = 10000

// pooled is the share of comparisons that were called different, and the 95th percentile of that share over
// runs drawn with replacement: the metrics of a run are not independent of each other, its runs are.
func pooled(all []tally, of func(tally) int) (rate, bound float64) {
	hits, metrics := 0, 0
	for _, t := range all {
		hits, metrics = hits+of(t), metrics+t.Metrics
	}
	rate = float64(hits) / float64(metrics)
	rng := rand.New(rand.NewPCG(1, 2))
	drawn := make([]float64, resamples)
	for k := range drawn {
		hits, metrics := 0, 0
		for range all {
			t := all[rng.IntN(len(all))]
			hits, metrics = hits+of(t), metrics+t.Metrics
		}
		drawn[k] = float64(hits) / float64(metrics)
	}
	slices.Sort(drawn)
	return rate, drawn[resamples*95/100]
}
