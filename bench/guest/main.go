// Program guest measures virtual routers and asserts on what an emulator cannot distort: ratios and
// counters, never rates. It starts the chokepoint that it is given and judges the runs that this stores.
//
//	guest -suite ratios   what rules, flow tables, queues, tunnels and limits do
//	guest -suite plans    the built-in plans after published tables, with short windows
//	guest -suite same     how often two cells that are the same are called different
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
)

func main() { os.Exit(rig.Main("guest", run)) }

// suites are what the program can do, by name.
var suites = map[string]func(context.Context, bench) error{"ratios": ratios, "plans": plans, "same": same}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	b := bench{out: out, log: log}
	flags := flag.NewFlagSet("guest", flag.ContinueOnError)
	flags.StringVar(&b.binary, "binary", "", "the chokepoint to run")
	flags.StringVar(&b.lab, "lab", "vm", "kind of lab")
	flags.IntVar(&b.runs, "runs", 1, "runs of the suite same, with seeds from 1 on")
	flags.StringVar(&b.keepFile, "keep", "",
		"a file to which the suite same adds each run, to go on from there")
	name := flags.String("suite", "", "ratios, plans or same")
	counts := flags.String("counts", "", "a file to which a line is added if something could not be judged: "+
		"0 passed, 0 failed, how many skipped")
	if err := rig.Parse(flags, args, log, func() bool {
		return suites[*name] != nil && b.binary != "" && b.runs >= 1
	}); err != nil {
		return err
	}
	skipped := 0
	b.skipped = func(n int) { skipped += n }
	began := time.Now()
	err := suites[*name](ctx, b)
	fmt.Fprintf(out, "note: %s took %s\n", *name, time.Since(began).Round(time.Second))
	if err == nil && skipped > 0 {
		err = rig.Append(*counts, fmt.Sprintf("0 0 %d\n", skipped))
	}
	return err
}
