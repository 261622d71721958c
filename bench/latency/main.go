// Program latency compares tools that measure the round trip of an idle path: our two probes, irtt and ping,
// on client, router and server of a local lab (two veth pairs), each every millisecond with packets of the
// same length, in interleaved blocks in random order. ping, whose echo is the kernel's, is the reference for
// the median. It prints Markdown, and fails if one of our probes miscounts, not if it is slow.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// What every tool sends: one IP packet of this length each millisecond.
const (
	interval   = time.Millisecond
	packetSize = 100
	headers    = 28 // IPv4 and UDP, or ICMP
)

func main() { os.Exit(rig.Main("latency", run)) }

type options struct {
	blocks, seconds int
	seed            uint64
	verbose         bool
}

// count returns how many probes a run has.
func (o options) count() int { return o.seconds * int(time.Second/interval) }

// bench is the lab, with the tools' settings.
type bench struct {
	options
	lab  *lab.Lab
	ends [2]traffic.End
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	b := &bench{}
	flags := flag.NewFlagSet("latency", flag.ContinueOnError)
	flags.IntVar(&b.blocks, "blocks", 10, "blocks, each with every tool once, at least 6")
	flags.IntVar(&b.seconds, "seconds", 2, "seconds of each run")
	flags.Uint64Var(&b.seed, "seed", 1, "of the order within blocks")
	flags.BoolVar(&b.verbose, "v", false, "print each run")
	if err := rig.Parse(flags, args, log, func() bool {
		return b.blocks >= rig.MinPairs && b.seconds >= 1
	}); err != nil {
		return err
	}

	machine := rig.Machine()
	return rig.OnLab(ctx, "forward", lab.Local{}, func(l *lab.Lab) (err error) {
		b.lab = l
		if b.ends, err = rig.Ends(ctx, l, 4); err != nil {
			return err
		}

		if _, err = rig.Start(ctx, l, b.ends[1].Node, "irtt", "server", "-i", "0", "-b", b.at()); err != nil {
			return err
		}

		time.Sleep(300 * time.Millisecond) // until it listens; a client that is too early fails
		all, err := rig.Measure(rig.Draw(b.seed), b.blocks, len(tools), func(block, i int) (measured, error) {
			r, err := tools[i].run(ctx, b)
			if err != nil {
				return r, fmt.Errorf("block %d, %s: %w", block+1, tools[i].name, err)
			}

			if b.verbose {
				fmt.Fprintf(log, "block %d %-5s %5d of %5d, p50 %.2f µs, p99 %.2f µs\n", block+1,
					tools[i].name, len(r.rtt), r.sent, at(.5)(r)/1e3, at(.99)(r)/1e3)
			}

			return r, nil
		})
		if err == nil {
			io.WriteString(out, table(b.options, machine, all))
		}

		return err
	})
}

// at returns a quantile of a run.
func at(q float64) func(measured) float64 {
	return func(m measured) float64 { return statistics.QuantileSorted(m.rtt, q) }
}

func ratio(a, b float64) float64 { return a / b }

func minus(a, b float64) float64 { return a - b }

// claims are the lines of the comparison.
var claims = []struct {
	text       string
	ours, peer int // indexes of tools
	level      float64
	join       func(a, b float64) float64
	format     string
	scale      float64
}{
	{"p99, echo ÷ irtt", 0, 2, .99, ratio, "%.3f ×", 1},
	{"p50, echo ÷ irtt", 0, 2, .50, ratio, "%.3f ×", 1},
	{"p99, icmp ÷ irtt", 1, 2, .99, ratio, "%.3f ×", 1},
	{"p50, echo − ping", 0, 3, .50, minus, "%+.2f µs", 1e3},
	{"p50, icmp − ping", 1, 3, .50, minus, "%+.2f µs", 1e3},
}

// table formats the result in Markdown: each tool by itself, then the ratios of the blocks with their
// intervals.
func table(o options, machine string, all [][]measured) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Client, router and server of a local lab, %d-byte IP packets every %v; %d interleaved "+
		"blocks of %d s, order drawn with seed %d. Medians of the blocks. %s.\n\n", packetSize, interval,
		o.blocks, o.seconds, o.seed, machine)
	b.WriteString("| tool | what a round trip is | answered | p50 µs | p99 µs | p99.9 of all µs " +
		"|\n|---|---|---|---|---|---|\n")
	for i, t := range tools {
		var pool measured
		for _, r := range all[i] {
			pool.rtt, pool.sent = append(pool.rtt, r.rtt...), pool.sent+r.sent
		}

		slices.Sort(pool.rtt)
		tail := "–"
		if statistics.Carries(len(pool.rtt), .999) {
			tail = fmt.Sprintf("%.1f", at(.999)(pool)/1e3)
		}

		fmt.Fprintf(&b, "| %s | %s | %d of %d | %.2f | %.2f | %s |\n", t.name, t.what, len(pool.rtt),
			pool.sent, rig.Middle(all[i], at(.5))/1e3, rig.Middle(all[i], at(.99))/1e3, tail)
	}

	b.WriteString("\n| measure | median | interval | n |\n|---|---|---|---|\n")
	for _, c := range claims {
		v := statistics.Summarise(rig.Each(rig.Column(all[c.ours], at(c.level)),
			rig.Column(all[c.peer], at(c.level)), c.join))
		fmt.Fprintf(&b, "| %s | %s |\n", c.text, rig.Interval(v, c.format, c.scale))
	}

	return b.String()
}
