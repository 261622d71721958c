// Program search compares the search for the no-loss rate (RFC 9971) with the binary search usually read into
// RFC 2544, with 60-second trials, on simulated devices: how long each takes in simulated seconds, and how
// far results for the same device differ. Both searches of a seed get the same device and width. It fails if
// the median ratio of times is below 10 anywhere, or the spread above 0.3 % on a device without loss bursts
// whose capacity varies by 0.3 % or less.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// A software router of 3.3 Mpps on a port of 10 Gbit/s.
const (
	capacity    = 3.3e6
	least       = 9001
	greatest    = 14.88e6
	minRatio    = 10
	maxSpread   = 0.003
	steadyUpTo  = 0.003 // maximum jitter of a device whose spread is checked
	binaryTrial = time.Minute
)

var devices = [...]struct {
	name   string
	device device
}{
	{"deterministic", device{capacity: capacity}},
	{"0.3 % jitter", device{capacity: capacity, jitter: 0.003}},
	{"1 % jitter, 0.1 % loss in 5 % of seconds", device{
		capacity: capacity,
		jitter:   0.01,
		bursts:   0.05,
		burst:    0.001,
	}},
	{"0.01 % loss in 2 % of seconds", device{capacity: capacity, bursts: 0.02, burst: 1e-4}},
}

func main() { os.Exit(rig.Main("search", run)) }

func run(_ context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("search", flag.ContinueOnError)
	seeds := flags.Int("seeds", 100, "searches of each device, at least 6")
	pause := flags.Duration("pause", 500*time.Millisecond, "between trials")
	if err := rig.Parse(flags, args, log, func() bool { return *seeds >= rig.MinPairs }); err != nil {
		return err
	}

	fmt.Fprintf(out, "%d seeds, %s between trials; times are simulated. Ratio: binary search for each goal "+
		"÷ the search for all.\n\n", *seeds, *pause)
	fmt.Fprintln(out, "| device | preset | trials | seconds (most) | rate, Mpps (spread) | binary: seconds "+
		"| rate (spread) | ratio, 95 % interval |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|")
	var failed []string
	for _, d := range devices {
		for _, name := range []string{"smoke", "quick", "csit"} {
			p, _ := method.PresetNamed(name)
			m, err := measure(d.device, p, *seeds, *pause)
			if err != nil {
				return err
			}

			ratio := statistics.Summarise(m.ratios)
			fmt.Fprintf(out, "| %s | %s | %.0f | %.1f (%.1f) | %s | %.0f | %s | %.1f, %.1f–%.1f |\n", d.name,
				name, statistics.Median(m.trials), statistics.Median(m.seconds), slices.Max(m.seconds),
				rateWords(m.rates), statistics.Median(m.binarySeconds), rateWords(m.binaryRates),
				ratio.Median, ratio.Low, ratio.High)
			if ratio.Median < minRatio {
				failed = append(failed, fmt.Sprintf("%s, %s: %.1f times as fast", d.name, name, ratio.Median))
			}

			spread := rig.Deviation(m.rates)
			if name == "csit" && d.device.jitter <= steadyUpTo && spread > maxSpread {
				failed = append(failed, fmt.Sprintf("%s, %s: spread %s", d.name, name, unit.Percent(spread)))
			}
		}
	}

	if len(failed) > 0 {
		return fmt.Errorf("missed: %v", failed)
	}

	return nil
}

// measured holds the figures of one device and preset, one per seed; rates are those of the preset's first
// goal.
type measured struct {
	trials, seconds, rates             []float64
	binarySeconds, binaryRates, ratios []float64
}

func measure(d device, p method.Preset, seeds int, pause time.Duration) (*measured, error) {
	m := &measured{}
	c := method.Config{Goals: p.Goals, Min: least, Max: greatest, Warmup: p.Warmup}
	for seed := range uint64(seeds) {
		trials, took, err := simulate(c, d, rand.New(rand.NewPCG(seed, 1)), pause, p.Overhead)
		if err != nil {
			return nil, err
		}

		first := c.Outcome(trials).Results[0]
		if first.Irregular != "" {
			return nil, fmt.Errorf("seed %d: goal %s: %s", seed, first.Goal, first.Irregular)
		}

		m.trials, m.seconds = append(m.trials, float64(len(trials))), append(m.seconds, took.Seconds())
		m.rates = append(m.rates, *first.Throughput)
		all := 0.0
		for i, g := range p.Goals {
			rate, seconds := binary(d, g, rand.New(rand.NewPCG(seed, uint64(2+i))), pause)
			all += seconds
			if i == 0 {
				m.binaryRates = append(m.binaryRates, rate)
				m.binarySeconds = append(m.binarySeconds, seconds)
			}
		}

		m.ratios = append(m.ratios, all/took.Seconds())
	}

	return m, nil
}

// binary runs the binary search: one trial of 60 s at the middle of the interval, which becomes a bound,
// until the interval is narrow enough.
func binary(d device, g record.Goal, r *rand.Rand, pause time.Duration) (rate, seconds float64) {
	low := 0.0
	high := float64(greatest)
	for high-low > g.Width*high && high > least {
		load := (low + high) / 2
		t := d.measure(record.TrialInput{Load: load, Duration: binaryTrial}, r)
		seconds += (binaryTrial + pause).Seconds()
		if t.Loss > g.LossRatio {
			high = load
		} else {
			low = load
		}
	}

	return low, seconds
}

func rateWords(rates []float64) string {
	return fmt.Sprintf("%.4f (%.2f %%)", statistics.Median(rates)/1e6, 100*rig.Deviation(rates))
}
