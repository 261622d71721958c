package guest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// samePlan measures one thing twice: two cells without a difference, in twelve blocks. Holm's correction of
// forty signed-rank tests can report a difference from eleven blocks on (2/2¹¹ × 40 = 3.9 %).
const samePlan = `name: same
description: Two cells that are the same (A/A).
method: {duration: 500ms, warmup: 200ms, cooldown: 0s, idle: 400ms, runs: 12}
measure: {verify: false, latency_idle: trial, probe_interval: 1ms}
matrix:
  copy: [a, b]
  direction: both
`

// sameCounters holds what is compared beside the metrics of the document: growth in the window. They are
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

// sameLeast gives how many metrics must have data in both cells of every run.
const sameLeast = 40

// Bounds of the pooled rate of "different".
const (
	maxDifferent      = .05
	maxDifferentBound = .08
)

// tally holds what one run of two identical cells gave.
type tally struct {
	Seed               uint64
	Metrics            int
	Raw, Holm, Family  int // verdicts "different"
	Names              []string
	Goodput, Low, High float64
}

// TestSame runs the plan with seeds from 1 on and checks how often two cells that are the same were called
// different.
func TestSame(t *testing.T) {
	needsTime(t)
	if *runs < 1 {
		t.Fatalf("-runs %d: want at least one", *runs)
	}

	all := kept[tally](t, *keepFile)
	fmt.Fprintf(t.Output(), "note: %6s %8s %10s %6s %14s   %s\n", "seed", "metrics", "different", "Holm",
		"Westfall–Young", "goodput b ÷ a")
	for _, x := range all {
		x.print(t.Output())
	}

	var first []record.Factors
	for seed := uint64(len(all)) + 1; seed <= uint64(*runs); seed++ {
		c := measure(t, 10*time.Minute, *kind, samePlan, fmt.Sprint("method.seed=", seed))
		x, err := tallyOf(c)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}

		x.Seed = seed
		x.print(t.Output())
		keep(t, *keepFile, x)
		if all = append(all, x); seed == 1 {
			first = orderOf(c)
		}
	}

	if err := checkSame(t.Output(), all); err != nil {
		t.Error(err)
	}

	checkOrder(t, first)
}

func (t tally) print(out io.Writer) {
	fmt.Fprintf(out, "note: %6d %8d %10d %6d %14d   %.3f (%.3f–%.3f) %s\n", t.Seed, t.Metrics, t.Raw, t.Holm,
		t.Family, t.Goodput, t.Low, t.High, t.Names)
}

// kept returns the results of a suite that was interrupted.
func kept[T any](t *testing.T, file string) (all []T) {
	text, err := os.ReadFile(file)
	if err != nil && file != "" && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}

	for line := range bytes.Lines(text) {
		var x T
		if err := json.Unmarshal(line, &x); err != nil {
			t.Fatalf("%s: line %d: %v", file, len(all)+1, err)
		}

		all = append(all, x)
	}

	return all
}

// keep adds a result to a file, which is made if need be; without a name there is none.
func keep[T any](t *testing.T, file string, x T) {
	if file == "" {
		return
	}

	line, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}

	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}

	_, err = fmt.Fprintf(f, "%s\n", line)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// checkOrder runs the first seed again, on the lab that is soonest up, and wants the same order of the
// blocks that it has.
func checkOrder(t *testing.T, first []record.Factors) {
	order := func() []record.Factors {
		return orderOf(measure(t, 2*time.Minute, record.LabLocal, samePlan, "method.seed=1", "method.runs=4",
			"method.duration=100ms", "method.idle=100ms"))
	}
	if first == nil { // it was in an earlier part of the suite
		first = order()
	}

	again := order()
	if len(again) < 8 || len(first) < len(again) {
		t.Fatalf("order: got %d and %d trials, too few", len(first), len(again))
	}

	for i := range again {
		if again[i].Key() != first[i].Key() {
			t.Fatalf("order: trial %d of two runs of seed 1: %s and %s", i+1, first[i].Key(), again[i].Key())
		}
	}

	fmt.Fprintf(t.Output(), "note: two runs of seed 1 had the same order of %d trials\n", len(again))
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
	errs := c.faults()
	if len(errs) > 0 {
		return tally{}, errors.Join(errs...)
	}

	a := valuesOf(c, "a")
	b := valuesOf(c, "b")
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
			t.Goodput = x.Ratio
			t.Low = x.Low
			t.High = x.High
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
		if d && holm[i] <= maxDifferent {
			t.Holm++
		}

		if d && adjusted[i] <= maxDifferent {
			t.Family++
		}
	}

	if t.Metrics, t.Raw = len(p), len(t.Names); t.Metrics < sameLeast {
		return t, fmt.Errorf("only %d metrics have data in both cells, %d are wanted", t.Metrics, sameLeast)
	}

	return t, nil
}

// valuesOf are the values of one copy's metrics by block.
func valuesOf(c campaign, copy string) map[string]map[int]float64 {
	out := map[string]map[int]float64{}
	add := func(f record.Factors, name string, block int, v float64) {
		if out[name] == nil {
			out[name] = map[int]float64{}
		}

		if f["copy"] == copy {
			out[name][block] = v
		}
	}
	for _, v := range c.Document.Trials {
		for name, x := range v.Metrics {
			add(v.Factors, name, v.Block, x)
		}
	}

	for i := range c.Trials {
		t := &c.Trials[i]
		for name, x := range growth(t) {
			if slices.Contains(sameCounters[:], name) {
				add(t.Row.Factors, name, t.Row.Block, x)
			}
		}
	}

	return out
}

// varies says whether the values of two cells are not all one number.
func varies(a, b map[int]float64) bool {
	values := slices.Concat(slices.Collect(maps.Values(a)), slices.Collect(maps.Values(b)))
	return len(a) > 0 && len(b) > 0 && slices.Min(values) != slices.Max(values)
}

// checkSame pools the runs. With one run nothing may be different after Holm's correction; with twenty the
// pooled rate is held to its bounds.
func checkSame(out io.Writer, all []tally) error {
	raw, bound := pooled(all, func(t tally) int { return t.Raw })
	holm, holmBound := pooled(all, func(t tally) int { return t.Holm })
	family, familyBound := pooled(all, func(t tally) int { return t.Family })
	metrics := 0
	for _, t := range all {
		metrics += t.Metrics
	}

	fmt.Fprintf(out, "note: %d runs, %d comparisons of a thing with itself; called different, with the "+
		"upper 95 %% bound over runs:\n", len(all), metrics)
	fmt.Fprintf(out, "note: each alone %.2f %% (%.2f %%), by Holm %.2f %% (%.2f %%), by Westfall and "+
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
		if rate.got > maxDifferent || rate.bound > maxDifferentBound {
			return fmt.Errorf("of two cells that are the same %.2f %% (at most %.2f %%) are called different",
				100*rate.got, 100*rate.bound)
		}
	}

	return nil
}

// resamples gives how often the runs are drawn for the bound.
const resamples = 10000

// pooled is the share of comparisons that were called different, and the 95th percentile of that share over
// runs drawn with replacement: the metrics of a run are not independent of each other, its runs are.
func pooled(all []tally, of func(tally) int) (rate, bound float64) {
	hits, metrics := 0, 0
	for _, t := range all {
		hits = hits + of(t)
		metrics = metrics + t.Metrics
	}

	rate = float64(hits) / float64(metrics)
	rng := rand.New(rand.NewPCG(1, 2))
	drawn := make([]float64, resamples)
	for k := range drawn {
		hits, metrics := 0, 0
		for range all {
			t := all[rng.IntN(len(all))]
			hits = hits + of(t)
			metrics = metrics + t.Metrics
		}

		drawn[k] = float64(hits) / float64(metrics)
	}

	slices.Sort(drawn)
	return rate, drawn[resamples*95/100]
}

// TestSameFindsWhatDiffers: of two cells that are not the same, the difference is found even after Holm's
// correction of all metrics, and of two that are, a pooled rate has its bound above it.
func TestSameFindsWhatDiffers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	a := map[int]float64{}
	b := map[int]float64{}
	for block := range 12 {
		a[block] = 100 + rng.Float64()
		b[block] = 110 + rng.Float64()
	}

	c, _ := comparison.ComparePaired("goodput_bps", a, b)
	p := make([]float64, sameLeast)
	for i := range p {
		p[i] = 1
	}

	p[7] = c.PValue
	got := statistics.Holm(p)[7]
	if c.Verdict != "different" || got > maxDifferent {
		t.Errorf("a tenth more: got %q and p = %.3f after Holm, want different", c.Verdict, got)
	}

	var all []tally
	for seed := range uint64(20) {
		all = append(all, tally{Seed: seed, Metrics: 50, Raw: int(seed % 3)})
	}

	rate, bound := pooled(all, func(t tally) int { return t.Raw })
	if rate != .019 || bound <= rate || bound > .03 {
		t.Errorf("19 of 1000: got %v, at most %v, want .019 and a little more", rate, bound)
	}

	for _, tt := range []struct {
		raw int
		ok  bool
	}{{2, true}, {5, false}} {
		for i := range all {
			all[i].Raw = tt.raw
		}

		if err := checkSame(io.Discard, all); (err == nil) != tt.ok {
			t.Errorf("%d of 50 in each run: got %v, want ok = %v", tt.raw, err, tt.ok)
		}
	}

	if err := checkSame(io.Discard, []tally{{Metrics: 50, Holm: 1}}); err == nil {
		t.Error("one run with a difference after Holm's correction: got no error, want one")
	}
}

// TestKeptGoesOnWhereKeepEnded: runs come back as they were kept, and only those of seeds from 1 on.
func TestKeptGoesOnWhereKeepEnded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kept")
	if got := kept[tally](t, file); got != nil {
		t.Errorf("nothing was kept: got %v", got)
	}

	want := []tally{{Seed: 1, Metrics: 50, Raw: 2, Names: []string{"goodput_bps"}}, {Seed: 2, Metrics: 51}}
	for _, x := range want {
		keep(t, file, x)
	}

	if got := kept[tally](t, file); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
