// Program engine compares the native engine with iperf3, and with itself at one stream, on the path client,
// router and server of a local lab. Each comparison runs its two sides in interleaved pairs in random order,
// and reports the median of the pairs' ratios with its order-statistic interval of 95 %. It prints Markdown.
// "wire" is real 1500-byte packets on all links, "super" packets of up to 64 KiB. The suite agreement, behind
// a queue of 300 Mbit/s, fails if a ratio leaves 1 ± 3 %; for the other suites only the accounts are checked:
// a pair in which sent differs from received + lost ends the program.
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
)

func main() { os.Exit(rig.Main("engine", run)) }

func run(ctx context.Context, args []string, out, log io.Writer) error {
	b := &stand{out: out, log: log}
	all := suites()
	names := []string{}
	for _, s := range all {
		names = append(names, s.name)
	}

	flags := flag.NewFlagSet("engine", flag.ContinueOnError)
	list := flags.String("suite", strings.Join(names, ","), "suites to run")
	flags.IntVar(&b.pairs, "pairs", 8, "pairs per comparison, at least 6")
	flags.IntVar(&b.seconds, "seconds", 2, "measured seconds of each run")
	flags.BoolVar(&b.verbose, "v", false, "print each run")
	flags.Uint64Var(&b.seed, "seed", 1, "of the order within pairs")
	file := flags.String("newest", "", "a newest iperf3, built from source, to compare four streams with")
	only := flags.String("only", "", "measure just rows with this in their name")
	if err := rig.Parse(flags, args, log, func() bool {
		wanted := strings.Split(*list, ",")
		for i, s := range all {
			if s.name == "tcp-super" && *file != "" {
				s.rows = append(s.rows, b.against(*file))
			}

			all[i].rows = slices.DeleteFunc(s.rows, func(c comparison) bool {
				return !slices.Contains(wanted, s.name) || !strings.Contains(c.name, *only)
			})
		}

		all = slices.DeleteFunc(all, func(s suite) bool { return len(s.rows) == 0 })
		return b.pairs >= rig.MinPairs && b.seconds >= 1 && len(all) > 0 &&
			!slices.ContainsFunc(wanted, func(name string) bool { return !slices.Contains(names, name) })
	}); err != nil {
		return err
	}

	return rig.OnLab(ctx, "forward", lab.Local{}, func(l *lab.Lab) (err error) {
		b.lab = l
		if b.paths[plainPath], err = rig.Ends(ctx, l, 4); err != nil {
			return err
		}

		fmt.Fprintf(out, "%s; %d pairs of %d s, seed %d.\n", rig.Machine(), b.pairs, b.seconds, b.seed)
		for _, s := range all {
			if err := b.suite(ctx, s); err != nil {
				return fmt.Errorf("suite %s: %w", s.name, err)
			}
		}

		if b.disagree {
			return rig.ErrFailed
		}

		return nil
	})
}
