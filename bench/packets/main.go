// Program packets compares the xdp engine with other generators of small packets, in interleaved pairs in
// random order, on local labs of this machine: routed against iperf3 with its smallest datagrams, alone
// against xdp-trafficgen if given, its transmit modes against each other, and its rate with the requested
// one. It prints tables for docs/measured; ratios are medians over pairs with their interval. It needs root.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func main() { os.Exit(rig.Main("packets", run)) }

type bench struct {
	pairs     int
	length    time.Duration
	only      string
	generator string // path of xdp-trafficgen
	sink      string // path of xdp-bench
	verbose   bool
	out, log  io.Writer
	draw      *rand.Rand
	lab       *lab.Lab
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	b := &bench{out: out, log: log}
	flags := flag.NewFlagSet("packets", flag.ContinueOnError)
	flags.IntVar(&b.pairs, "pairs", 8, "pairs of each comparison, and runs of each rate, at least 6")
	flags.DurationVar(&b.length, "length", 2*time.Second, "of each measured run")
	seed := flags.Uint64("seed", 1, "of the order within pairs")
	flags.StringVar(&b.only, "only", "routed,alone,modes,rate", "parts to run")
	flags.StringVar(&b.generator, "trafficgen", "", "xdp-trafficgen, which needs xdp-bench")
	flags.StringVar(&b.sink, "xdp-bench", "", "xdp-bench, which drops what xdp-trafficgen sends")
	flags.BoolVar(&b.verbose, "v", false, "print each run")
	if err := rig.Parse(flags, args, log, func() bool {
		return b.pairs >= rig.MinPairs && (b.generator == "") == (b.sink == "")
	}); err != nil {
		return err
	}

	b.draw = rig.Draw(*seed)
	const through, without = "through a router", "without a router"
	for _, part := range []struct {
		name, topology string
		queues         int
		do             func(ctx context.Context, where string, flows int) error
		where          string
	}{
		{"routed", "forward", 1, b.routed, ""}, {"routed", "forward", 2, b.routed, ""},
		{"alone", "direct", 1, b.alone, ""},
		{"modes", "forward", 1, b.modes, through}, {"modes", "direct", 1, b.modes, without},
		{"rate", "direct", 1, b.rate, without}, {"rate", "forward", 1, b.rate, through},
		{"rate", "forward", 2, b.rate, through + ", links of two queues, two flows"},
	} {
		if !slices.Contains(strings.Split(b.only, ","), part.name) {
			continue
		}

		err := rig.OnLab(ctx, part.topology, lab.Local{Queues: part.queues}, func(l *lab.Lab) error {
			b.lab = l
			return part.do(ctx, part.where, part.queues)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}

		fmt.Fprintln(out)
	}

	return nil
}

// load returns full rate with the smallest frames: 64 bytes in IPv4, 84 in IPv6.
func (b *bench) load(ip, flows int) record.Load {
	return record.Load{
		Protocol:   "udp",
		Direction:  record.Up,
		Streams:    flows,
		IP:         ip,
		PacketSize: map[int]int{4: 46, 6: 66}[ip],
		Opener:     "near",
		Port:       20000,
		Warmup:     300 * time.Millisecond,
		Duration:   b.length,
		Interval:   100 * time.Millisecond,
		Tag:        fmt.Sprintf("packets %d", b.draw.Uint64()),
	}
}

// result holds the result of a load.
type result struct {
	rig.Sums
	cost    float64 // ns of the sending process per packet
	traffic *record.Traffic
}

func arrived(r result) float64 { return r.PPS / 1e6 }
func lost(r result) float64    { return 100 * r.Loss() }

// offered runs a load.
func (b *bench) offered(ctx context.Context, engine string, load record.Load) (result, error) {
	t, sums, err := rig.Packets(ctx, b.lab, rig.Engine(engine), load)
	if err != nil {
		return result{}, err
	}

	u := t.Ends["near"]
	r := result{sums, float64(u.UserNs+u.SystemNs) / float64(max(sums.Sent, 1)), t}
	if b.verbose {
		fmt.Fprintf(b.log, "%-7s IPv%d: %.0f pps, loss %.4f %%, %.0f ns of the sender's CPU "+
			"time each\n", engine, load.IP, r.PPS, lost(r), r.cost)
	}

	return r, nil
}

// against measures xdp and another generator in pairs.
func (b *bench) against(ctx context.Context, ip, flows int,
	other func() (result, error)) (runs [][]result, ratio statistics.Value, err error) {
	runs, err = rig.Measure(b.draw, b.pairs, 2, func(_, i int) (result, error) {
		if i == 1 {
			return other()
		}
		return b.offered(ctx, "xdp", b.load(ip, flows))
	})
	if err == nil {
		ratio = rig.Ratio(rig.Column(runs[0], arrived), rig.Column(runs[1], arrived))
	}
	return runs, ratio, err
}

// routed: through the router, against iperf3, with a flow for each queue.
func (b *bench) routed(ctx context.Context, _ string, flows int) error {
	fmt.Fprintf(b.out, "64-byte frames through a router (IPv6: 84), one way, flat out; queues of each link, "+
		"and flows of each engine: %d; %d pairs of %v\n\n| IP | xdp, Mpps | loss | iperf3 -u -b 0, Mpps | "+
		"loss | ratio | 95 %% interval |\n|---|---|---|---|---|---|---|\n", flows, b.pairs, b.length)
	for _, ip := range []int{4, 6} {
		runs, r, err := b.against(ctx, ip, flows, func() (result, error) {
			return b.offered(ctx, "iperf3", b.load(ip, flows))
		})
		if err != nil {
			return err
		}

		fmt.Fprintf(b.out, "| %d | %.3f | %.3f %% | %.3f | %.2f %% | %.2f | %.2f – %.2f |\n", ip,
			rig.Middle(runs[0], arrived), rig.Middle(runs[0], lost), rig.Middle(runs[1], arrived),
			rig.Middle(runs[1], lost), r.Median, r.Low, r.High)
	}
	return nil
}

// alone: no router in between, and the receiver drops in its driver.
func (b *bench) alone(ctx context.Context, _ string, flows int) error {
	fmt.Fprintf(b.out, "The generator alone: one thread, no router, dropped in the receiver's driver; ours "+
		"numbered, counted in order, one in 61 with its time; %d pairs of %v\n\n| frames | xdp, Mpps | loss "+
		"| xdp-trafficgen, Mpps (IPv6) | ratio | 95 %% interval |\n|---|---|---|---|---|---|\n", b.pairs,
		b.length)
	for _, ip := range []int{4, 6} {
		runs, r, err := b.against(ctx, ip, flows, func() (r result, err error) {
			if b.generator != "" {
				r.PPS, err = b.peer(ctx)
			}
			return r, err
		})
		if err != nil {
			return err
		}

		theirs := " not given | – | –"
		if b.generator != "" {
			theirs = fmt.Sprintf(" %.2f | %.3f | %.3f – %.3f", rig.Middle(runs[1], arrived), r.Median, r.Low,
				r.High)
		}

		fmt.Fprintf(b.out, "| %d bytes, IPv%d | %.2f | %.3f %% |%s |\n", map[int]int{4: 64, 6: 84}[ip], ip,
			rig.Middle(runs[0], arrived), rig.Middle(runs[0], lost), theirs)
	}
	return nil
}

// modes: the ways of sending frames, compared with BPF test-run frames; all counted in the driver.
func (b *bench) modes(ctx context.Context, where string, flows int) error {
	fmt.Fprintf(b.out, "64-byte frames %s (IPv6: 84), one flow, one way, flat out, by what sends them; %d "+
		"runs of %v each in shuffled blocks\n\n| IP | sent by | received, Mpps (least – most) | loss | "+
		"sender's CPU time per frame, ns | against test-run frames | 95 %% interval |\n"+
		"|---|---|---|---|---|---|---|\n", where, b.pairs, b.length)
	names := []string{record.FramesLive, record.FramesPacket}
	for _, ip := range []int{4, 6} {
		runs, err := rig.Measure(b.draw, b.pairs, len(names), func(_, i int) (result, error) {
			load := b.load(ip, flows)
			load.Frames = names[i]
			load.Sink = record.SinkDriver
			r, err := b.offered(ctx, "xdp", load)
			if err != nil {
				err = fmt.Errorf("%s: %w", names[i], err)
			}

			return r, err
		})
		if err != nil {
			return err
		}

		for i, name := range names {
			rates := rig.Column(runs[i], arrived)
			r := rig.Ratio(rates, rig.Column(runs[0], arrived))
			fmt.Fprintf(b.out, "| %d | %s | %.3f (%.3f – %.3f) | %.3f %% | %.0f | %.3f | %.3f – %.3f |\n", ip,
				name, statistics.Median(rates), slices.Min(rates), slices.Max(rates),
				rig.Middle(runs[i], lost), rig.Middle(runs[i], func(r result) float64 { return r.cost }),
				r.Median, r.Low, r.High)
		}
	}

	return nil
}

// rate: sent compared with requested, and the delay of frames in transit. A router takes its part of the
// sender's core, which may then be too slow for the highest rate.
func (b *bench) rate(ctx context.Context, where string, flows int) error {
	fmt.Fprintf(b.out, "Rate %s, IPv4, 64-byte frames; %d runs of %v each (target: 0.1 %%, stretch: 0.05 %% "+
		"and, routed, a p99 of 12 µs)\n\n| asked, pps | error of the rate, without its sign: median | "+
		"interval | worst | loss | one-way delay, µs: p50 ≤ | p99 ≤, interval | frames in a burst |\n"+
		"|---|---|---|---|---|---|---|---|\n", where, b.pairs, b.length)
	rates := []float64{10e3, 100e3, 500e3, 900e3, 1e6}
	runs, err := rig.Measure(b.draw, b.pairs, len(rates), func(_, i int) (result, error) {
		load := b.load(4, flows)
		load.RateBps = rates[i] * 8 * 18
		return b.offered(ctx, "xdp", load)
	})
	if err != nil {
		return err
	}

	for i, pps := range rates {
		errs := rig.Column(runs[i], func(r result) float64 { return 100 * math.Abs(r.SentPPS/pps-1) })
		delay := func(q float64) func(result) float64 {
			return func(r result) float64 { return quantile(r.traffic.OneWay, q) / 1e3 }
		}
		e := statistics.Summarise(errs)
		late := statistics.Summarise(rig.Column(runs[i], delay(.99)))
		_, burst, _ := strings.Cut(runs[i][len(runs[i])-1].traffic.Details["near.mode"], "bursts of ")
		burst, _, _ = strings.Cut(burst, ",")
		fmt.Fprintf(b.out, "| %.0f | %.3f %% | %.3f – %.3f %% | %.3f %% | %.3f %% | %.1f | %.1f, %.1f – "+
			"%.1f | %s |\n", pps, e.Median, e.Low, e.High, slices.Max(errs), rig.Middle(runs[i], lost),
			rig.Middle(runs[i], delay(.5)), late.Median, late.Low, late.High, burst)
	}

	return nil
}

// quantile returns a quantile of all directions' delays, in ns: the upper edge of the bucket that contains
// it; NaN if there are none.
func quantile(delays []record.OneWay, q float64) float64 {
	for _, d := range delays {
		total := int64(0)
		for _, c := range d.Counts {
			total += c.Packets
		}

		rank := int64(math.Ceil(q * float64(total)))
		seen := int64(0)
		for _, c := range d.Counts {
			if seen += c.Packets; seen >= rank {
				return float64(c.FromNs) * 33 / 32 // the maximum width of a bucket
			}
		}
	}
	return math.NaN()
}
