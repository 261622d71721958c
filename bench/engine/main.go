// Program engine compares the native engine with iperf3, and with itself at one stream, on the path client,
// router and server of a local lab. Each comparison runs its two sides in interleaved pairs whose order is
// drawn, and is told as the median of the pairs' ratios with its order-statistic interval of 95 %. It
// prints Markdown. "wire" is real 1500-byte packets on all links, "super" packets of up to 64 KiB. The
// suite agreement, behind a queue of 300 Mbit/s, fails if a ratio leaves 1 ± 3 %; of the others only the
// accounts are judged: a pair in which sent is not received + lost ends the program.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

func main() { os.Exit(rig.Main("engine", run)) }

type options struct {
	suites  []string
	pairs   int
	seconds int
	seed    uint64
	verbose bool
	newest  string // path of an iperf3, or none
	only    string // part of the names of the rows to measure
}

func (o options) measures(c comparison) bool { return strings.Contains(c.name, o.only) }

func run(ctx context.Context, args []string, out, log io.Writer) error {
	o, list, names := options{}, "", suiteNames()
	flags := flag.NewFlagSet("engine", flag.ContinueOnError)
	flags.StringVar(&list, "suite", strings.Join(names, ","), "suites to run")
	flags.IntVar(&o.pairs, "pairs", 8, "pairs per comparison, at least 6")
	flags.IntVar(&o.seconds, "seconds", 2, "measured seconds of each run")
	flags.BoolVar(&o.verbose, "v", false, "print each run")
	flags.Uint64Var(&o.seed, "seed", 1, "of the order within pairs")
	flags.StringVar(&o.newest, "newest", "",
		"a newest iperf3, built from source, to compare four streams with")
	flags.StringVar(&o.only, "only", "", "measure just rows with this in their name")
	if err := rig.Parse(flags, args, log, func() bool {
		o.suites = strings.Split(list, ",")
		return o.pairs >= rig.MinPairs && o.seconds >= 1 &&
			!slices.ContainsFunc(o.suites, func(s string) bool { return !slices.Contains(names, s) }) &&
			slices.ContainsFunc(suites(), func(s suite) bool {
				return slices.Contains(o.suites, s.name) && slices.ContainsFunc(s.rows, o.measures)
			})
	}); err != nil {
		return err
	}
	return rig.OnLab(ctx, "forward", lab.Local{}, func(l *lab.Lab) (err error) {
		b := &stand{lab: l, options: o, out: out, log: log,
			tunnels: map[int]*[2]traffic.End{ourTunnel: {}, peerTunnel: {}}}
		defer b.close()
		if b.near, b.far, err = rig.Ends(ctx, l, 0, 4); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s; %d pairs of %d s, seed %d.\n", rig.Machine(), o.pairs, o.seconds, o.seed)
		for _, s := range suites() {
			if s.name == "tcp-super" && o.newest != "" {
				s.rows = append(s.rows, b.againstNewest())
			}
			s.rows = slices.DeleteFunc(s.rows, func(c comparison) bool { return !o.measures(c) })
			if slices.Contains(o.suites, s.name) && len(s.rows) > 0 {
				if err := b.suite(ctx, s); err != nil {
					return fmt.Errorf("suite %s: %w", s.name, err)
				}
			}
		}
		if b.disagree {
			return rig.ErrFailed
		}
		return nil
	})
}
