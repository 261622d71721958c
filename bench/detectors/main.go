// Program detectors compares rules that raise an alarm when the rate of a cell changes from night to night:
// those of chokepoint history and upgrade, and those of other programs. The nights are drawn, with
// replacement, from recorded runs of our own, and from a model of noise. It prints Markdown: how many false
// alarms a rule raises where nothing changes, which share of planted steps it finds, and how soon.
//
// The packages apache-otava and jumpavg are asked through the Python that -python names. -record N measures
// the recording further, in lab local.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
)

func main() { os.Exit(rig.Main("detectors", run)) }

type options struct {
	runs       string // file of the recording
	python     string
	series     int
	peerSeries int
	seed       uint64
	nights     string
	record     int
	busy       int
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	var o options
	flags := flag.NewFlagSet("detectors", flag.ContinueOnError)
	flags.StringVar(&o.runs, "runs", "detectors/testdata/runs.jsonl.gz", "file of the recorded runs")
	flags.StringVar(&o.python, "python", "", "Python that has apache-otava and jumpavg; none: without them")
	flags.IntVar(&o.series, "series", 200, "histories of each kind")
	flags.IntVar(&o.peerSeries, "peer-series", 100, "how many of them the packages get, which are slow")
	flags.Uint64Var(&o.seed, "seed", 1, "of the nights that are drawn")
	flags.StringVar(&o.nights, "nights", "", "only nights of this kind, such as model")
	flags.IntVar(&o.record, "record", 0, "runs to add to the file; nothing is compared")
	flags.IntVar(&o.busy, "busy", 0, "processes that keep cores busy meanwhile")
	if err := rig.Parse(flags, args, log, func() bool {
		return o.series > 1 && o.peerSeries > 1 && o.record >= 0 && o.busy >= 0
	}); err != nil {
		return err
	}

	if o.record > 0 {
		return recordRuns(ctx, o.runs, o.record, o.busy, log)
	}

	recorded, err := readRuns(o.runs)
	if err != nil {
		return err
	}

	kinds, err := kindsOf(recorded)
	if err != nil {
		return err
	}

	fmt.Fprintf(out, "%d recorded runs. Each history has %d nights; a step comes before night %d.\n",
		len(recorded), nights, stepAt+1)
	describe(out, recorded)
	for _, k := range kinds {
		if !strings.HasPrefix(k.name, o.nights) {
			continue
		}

		rows, err := k.score(ctx, o, log)
		if err != nil {
			return err
		}

		k.table(out, rows)
	}

	return nil
}
