// Program packets compares the xdp engine with other generators of small packets, in interleaved pairs
// whose order is drawn, on local labs of this machine: routed against iperf3 with its smallest datagrams,
// alone against xdp-trafficgen where that is given, its own ways to send against each other, and its rate
// with the one asked for. It prints tables for docs/performance.md; ratios are medians over pairs with
// their interval. It needs root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/frames"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

func main() {
	if handled, err := registry.Serve(os.Args[1:]); handled {
		if err != nil {
			fmt.Fprintf(os.Stderr, "packets %s: %v\n", os.Args[1], err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	pairs     int
	length    time.Duration
	seed      uint64
	only      string
	generator string // path of xdp-trafficgen
	sink      string // path of xdp-bench
	verbose   bool
}

func run(args []string, out, talk io.Writer) int {
	o := options{}
	flags := flag.NewFlagSet("packets", flag.ContinueOnError)
	flags.SetOutput(talk)
	flags.IntVar(&o.pairs, "pairs", 8, "pairs of each comparison, and runs of each rate")
	flags.DurationVar(&o.length, "length", 2*time.Second, "of each measured run")
	flags.Uint64Var(&o.seed, "seed", 1, "of the order within pairs")
	flags.StringVar(&o.only, "only", "routed,alone,ways,rate", "parts to run")
	flags.StringVar(&o.generator, "trafficgen", "", "xdp-trafficgen, which needs xdp-bench")
	flags.StringVar(&o.sink, "xdp-bench", "", "xdp-bench, which drops what xdp-trafficgen sends")
	flags.BoolVar(&o.verbose, "v", false, "print each run")
	if flags.Parse(args) != nil || flags.NArg() > 0 || o.pairs < minPairs ||
		(o.generator == "") != (o.sink == "") {
		fmt.Fprintf(talk, "usage: packets [-pairs N≥%d] [-length D] [-only routed,alone,ways,rate] "+
			"[-trafficgen FILE -xdp-bench FILE] [-v]\n", minPairs)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := &bench{options: o, out: out, talk: talk, draw: rand.New(rand.NewPCG(o.seed, 1))}
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(talk, "packets:", err)
		return 1
	}
	return 0
}

type bench struct {
	options
	out, talk io.Writer
	draw      *rand.Rand
}

func (b *bench) run(ctx context.Context) error {
	for _, part := range []struct {
		name, topology string
		queues         int
		do             func(context.Context, *lab.Lab) error
	}{
		{"routed", "forward", 1, func(ctx context.Context, l *lab.Lab) error { return b.routed(ctx, l, 1) }},
		{"routed", "forward", 2, func(ctx context.Context, l *lab.Lab) error { return b.routed(ctx, l, 2) }},
		{"alone", "direct", 1, b.alone},
		{"ways", "forward", 1, func(ctx context.Context, l *lab.Lab) error {
			return b.ways(ctx, l,
				"through a router")
		}},
		{"ways", "direct", 1, func(ctx context.Context, l *lab.Lab) error {
			return b.ways(ctx, l,
				"without a router")
		}},
		{"rate", "direct", 1, func(ctx context.Context, l *lab.Lab) error {
			return b.rate(ctx, l,
				"without a router", 1)
		}},
		{"rate", "forward", 1, func(ctx context.Context, l *lab.Lab) error {
			return b.rate(ctx, l,
				"through a router", 1)
		}},
		{"rate", "forward", 2, func(ctx context.Context, l *lab.Lab) error {
			return b.rate(ctx, l, "through a router, links of two queues, two flows", 2)
		}},
	} {
		if !slices.Contains(strings.Split(b.only, ","), part.name) {
			continue
		}
		if err := b.on(ctx, part.topology, part.queues, part.do); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// on does something on a lab on which real packets cross all links, each of so many queues.
func (b *bench) on(ctx context.Context, topology string, queues int, do func(context.Context,
	*lab.Lab) error) (err error) {
	dir, err := os.MkdirTemp("", "packets-")
	if err != nil {
		return fmt.Errorf("create a folder for the lab: %w", err)
	}
	defer os.RemoveAll(dir)
	shape, err := lab.TopologyNamed(topology)
	if err != nil {
		return err
	}
	l, err := lab.Local{ID: "packets", Topology: shape, Queues: queues, Dir: filepath.Join(dir, "labs"),
		Parts: registry.LabParts()}.Up(ctx)
	if err != nil {
		return err
	}
	defer func() {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, l.Close(down))
	}()
	var want []record.Setting
	for _, link := range shape.Links {
		for _, end := range link.Ends {
			want = append(want, record.Setting{Knob: "offload", Node: end.Node, Port: end.Port,
				Value: "wire"})
		}
	}
	if err := l.Settle(ctx, want); err != nil {
		return err
	}
	return do(ctx, l)
}

// load is flat out with the smallest frames: 64 bytes in IPv4, 84 in IPv6.
func (b *bench) load(ip, flows int) record.Load {
	l := record.Load{Protocol: "udp", Direction: record.Up, Streams: flows, IP: ip, PacketSize: 46,
		Opener: "near", Port: 20000,
		Warmup: 300 * time.Millisecond, Duration: b.length, Interval: 100 * time.Millisecond,
		Tag: fmt.Sprintf("packets %d", b.draw.Uint64())}
	if ip == 6 {
		l.PacketSize = 66
	}
	return l
}

// offered runs a load and returns what arrived per second, and the share that was lost.
func (b *bench) offered(ctx context.Context, l *lab.Lab, e traffic.Engine, load record.Load) (result, error) {
	near, far, err := ends(ctx, l, load.IP)
	if err != nil {
		return result{}, err
	}
	t, err := e.Offer(ctx, near, far, load, clock{load})
	if err != nil {
		return result{}, fmt.Errorf("%s: %w", e.Name(), err)
	}
	for _, c := range t.Caveats {
		if c.Kind == "engine-fell-back" {
			return result{}, errors.New(c.Text)
		}
	}
	r := result{traffic: t}
	var sent, lost int64
	for _, f := range t.Flows {
		if f.Packets == nil || f.ReceiverNs <= 0 || f.SenderNs <= 0 {
			return result{}, fmt.Errorf("%s: no count of packets", e.Name())
		}
		r.pps += float64(f.Packets.Received) / float64(f.ReceiverNs) * 1e9
		r.sentPPS += float64(f.Packets.Sent) / float64(f.SenderNs) * 1e9
		sent, lost = sent+f.Packets.Sent, lost+f.Packets.Lost
		if f.Packets.Sent != f.Packets.Received+f.Packets.Lost {
			return result{}, fmt.Errorf("%s: sent %d, received %d, lost %d", e.Name(), f.Packets.Sent,
				f.Packets.Received, f.Packets.Lost)
		}
	}
	r.loss = float64(lost) / float64(max(sent, 1))
	u := t.Ends["near"]
	r.cost = float64(u.UserNs+u.SystemNs) / float64(max(sent, 1))
	if b.verbose {
		fmt.Fprintf(b.talk, "%-7s IPv%d: %.0f pps, loss %.4f %%, %.0f ns of the sender's processor "+
			"time each\n",
			e.Name(), load.IP, r.pps, 100*r.loss, r.cost)
	}
	return r, nil
}

type result struct {
	pps, sentPPS, loss float64
	cost               float64 // ns of the sending process for each packet
	traffic            *record.Traffic
}

// routed: through the router, against iperf3, with a flow for each queue.
func (b *bench) routed(ctx context.Context, l *lab.Lab, flows int) error {
	fmt.Fprintf(b.out, "64-byte frames through a router (IPv6: 84), one way, flat out; queues of each link, "+
		"and flows of each engine: %d; %d pairs of %v\n\n", flows, b.pairs, b.length)
	fmt.Fprintln(b.out, "| IP | xdp, Mpps | loss | iperf3 -u -b 0, Mpps | loss | ratio | 95 % interval |")
	fmt.Fprintln(b.out, "|---|---|---|---|---|---|---|")
	for _, ip := range []int{4, 6} {
		engines := [2]traffic.Engine{frames.XDP{Fallback: stream.Native{}}, iperf3.Engine{}}
		var rates, losses [2][]float64
		for range b.pairs {
			for _, i := range b.draw.Perm(2) {
				r, err := b.offered(ctx, l, engines[i], b.load(ip, flows))
				if err != nil {
					return err
				}
				rates[i], losses[i] = append(rates[i], r.pps), append(losses[i], r.loss)
			}
		}
		r := ratioOf(rates[0], rates[1])
		fmt.Fprintf(b.out, "| %d | %.3f | %.3f %% | %.3f | %.2f %% | %.2f | %.2f – %.2f |\n", ip,
			median(rates[0])/1e6, 100*median(losses[0]),
			median(rates[1])/1e6, 100*median(losses[1]), r.median, r.low, r.high)
	}
	fmt.Fprintln(b.out)
	return nil
}

// alone: no router between, and the receiver drops in its driver.
func (b *bench) alone(ctx context.Context, l *lab.Lab) error {
	fmt.Fprintf(b.out, "The generator alone: one thread, no router, dropped in the receiver's driver; ours "+
		"numbered, counted in order, one in 61 with its time; %d pairs of %v\n\n", b.pairs, b.length)
	fmt.Fprintln(b.out, "| frames | xdp, Mpps | loss | xdp-trafficgen, Mpps (IPv6) | ratio | 95 % interval |")
	fmt.Fprintln(b.out, "|---|---|---|---|---|---|")
	for _, ip := range []int{4, 6} {
		var rates [2][]float64
		var losses []float64
		for range b.pairs {
			for _, i := range b.draw.Perm(2) {
				if i == 1 {
					if b.generator == "" {
						continue
					}
					pps, err := b.peer(ctx, l)
					if err != nil {
						return err
					}
					rates[1] = append(rates[1], pps)
					continue
				}
				r, err := b.offered(ctx, l, frames.XDP{Fallback: stream.Native{}}, b.load(ip, 1))
				if err != nil {
					return err
				}
				rates[0], losses = append(rates[0], r.pps), append(losses, r.loss)
			}
		}
		fmt.Fprintf(b.out, "| %d bytes, IPv%d | %.2f | %.3f %% |", map[int]int{4: 64, 6: 84}[ip], ip,
			median(rates[0])/1e6, 100*median(losses))
		if b.generator == "" {
			fmt.Fprintln(b.out, " not given | – | – |")
			continue
		}
		r := ratioOf(rates[0], rates[1])
		fmt.Fprintf(b.out, " %.2f | %.3f | %.3f – %.3f |\n", median(rates[1])/1e6, r.median, r.low, r.high)
	}
	fmt.Fprintln(b.out)
	return nil
}

// ways: how frames can be sent, against live frames; all counted in the driver.
func (b *bench) ways(ctx context.Context, l *lab.Lab, where string) error {
	fmt.Fprintf(b.out, "64-byte frames %s (IPv6: 84), one flow, one way, flat out, by what sends them; %d "+
		"runs of %v each in shuffled blocks\n\n", where, b.pairs, b.length)
	fmt.Fprintln(b.out, "| IP | sent by | received, Mpps (least – most) | loss | sender's processor time "+
		"per frame, ns | against live frames | 95 % interval |")
	fmt.Fprintln(b.out, "|---|---|---|---|---|---|---|")
	names := []string{record.FramesLive, record.FramesAFXDP, record.FramesPacket}
	for _, ip := range []int{4, 6} {
		var rates, losses, costs [3][]float64
		for range b.pairs {
			for _, i := range b.draw.Perm(len(names)) {
				load := b.load(ip, 1)
				load.Frames, load.Sink = names[i], record.SinkDriver
				r, err := b.offered(ctx, l, frames.XDP{Fallback: stream.Native{}}, load)
				if err != nil {
					return fmt.Errorf("%s: %w", names[i], err)
				}
				rates[i], losses[i], costs[i] = append(rates[i], r.pps), append(losses[i], r.loss),
					append(costs[i], r.cost)
			}
		}
		for i, name := range names {
			r := ratioOf(rates[i], rates[0])
			fmt.Fprintf(b.out, "| %d | %s | %.3f (%.3f – %.3f) | %.3f %% | %.0f | %.3f | %.3f – %.3f |\n", ip,
				name, median(rates[i])/1e6,
				slices.Min(rates[i])/1e6, slices.Max(rates[i])/1e6, 100*median(losses[i]), median(costs[i]),
				r.median, r.low, r.high)
		}
	}
	fmt.Fprintln(b.out)
	return nil
}

// rate: what was sent against what was asked for, and the delay of frames on their way. A router takes its
// part of the sender's core, which then may be too slow for the highest rate.
func (b *bench) rate(ctx context.Context, l *lab.Lab, where string, flows int) error {
	fmt.Fprintf(b.out, "Rate %s, IPv4, 64-byte frames; %d runs of %v each (safe: 0.1 %%, moonshot: 0.05 %% "+
		"and, routed, a p99 of 12 µs)\n\n", where, b.pairs, b.length)
	fmt.Fprintln(b.out, "| asked, pps | error of the rate, without its sign: median | interval | worst | "+
		"loss | one-way delay, µs: p50 ≤ | p99 ≤, interval | frames in a burst |")
	fmt.Fprintln(b.out, "|---|---|---|---|---|---|---|---|")
	rates := []float64{10e3, 100e3, 500e3, 900e3, 1e6}
	errs, losses, p50, p99 := map[float64][]float64{}, map[float64][]float64{}, map[float64][]float64{},
		map[float64][]float64{}
	burst := map[float64]string{}
	for range b.pairs {
		for _, i := range b.draw.Perm(len(rates)) {
			pps := rates[i]
			load := b.load(4, flows)
			load.RateBps = pps * 8 * 18
			r, err := b.offered(ctx, l, frames.XDP{Fallback: stream.Native{}}, load)
			if err != nil {
				return err
			}
			errs[pps] = append(errs[pps], 100*math.Abs(r.sentPPS/pps-1))
			losses[pps] = append(losses[pps], r.loss)
			p50[pps] = append(p50[pps], quantile(r.traffic.OneWay, 0.5)/1e3)
			p99[pps] = append(p99[pps], quantile(r.traffic.OneWay, 0.99)/1e3)
			burst[pps] = between(r.traffic.Details["near.mode"], "bursts of ", ",")
		}
	}
	for _, pps := range rates {
		e, late := intervalOf(errs[pps]), intervalOf(p99[pps])
		fmt.Fprintf(b.out, "| %.0f | %.3f %% | %.3f – %.3f %% | %.3f %% | %.3f %% | %.1f | %.1f, %.1f – "+
			"%.1f | %s |\n", pps, e.median, e.low, e.high,
			slices.Max(errs[pps]), 100*median(losses[pps]), median(p50[pps]), late.median, late.low,
			late.high, burst[pps])
	}
	fmt.Fprintln(b.out)
	return nil
}

func between(s, after, before string) string {
	_, s, _ = strings.Cut(s, after)
	s, _, _ = strings.Cut(s, before)
	return s
}
