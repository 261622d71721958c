// Program guest measures virtual routers and asserts on what an emulator cannot distort: ratios and
// counters, never rates. It starts the chokepoint that it is given and judges the runs that this stores.
//
//	guest ratios   what rules, flow tables, queues, tunnels and limits do
//	guest plans    the built-in plans after published tables, with short windows
//	guest same     how often two cells that are the same are called different
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// suites are what the program can do, by name.
var suites = map[string]func(context.Context, bench) error{
	"ratios": ratios,
	"plans":  plans,
	"same":   same,
}

func run(args []string, out, talk io.Writer) int {
	flags := flag.NewFlagSet("guest", flag.ContinueOnError)
	flags.SetOutput(talk)
	b := bench{out: out, talk: talk}
	flags.StringVar(&b.binary, "binary", "", "the chokepoint to run")
	flags.StringVar(&b.lab, "lab", "vm", "kind of lab")
	flags.IntVar(&b.runs, "runs", 1, "runs of the suite same, with seeds from 1 on")
	flags.StringVar(&b.keepFile, "keep", "",
		"a file to which the suite same adds each run, to go on from there")
	counts := flags.String("counts", "", "a file to which a line is added if something could not be judged: "+
		"0 passed, 0 failed, how many skipped")
	if flags.Parse(args) != nil {
		return 2
	}
	suite := suites[strings.Join(flags.Args(), " ")]
	if suite == nil || b.binary == "" || b.runs < 1 {
		fmt.Fprintln(talk, "usage: guest -binary FILE [FLAGS] ratios|plans|same")
		flags.PrintDefaults()
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	skipped := 0
	b.skipped = func(n int) { skipped += n }
	began := time.Now()
	err := suite(ctx, b)
	fmt.Fprintf(out, "note: %s took %s\n", flags.Arg(0), time.Since(began).Round(time.Second))
	if err != nil {
		fmt.Fprintln(talk, "guest:", err)
		return 1
	}
	if err := addSkipped(*counts, skipped); err != nil {
		fmt.Fprintln(talk, "guest:", err)
		return 1
	}
	return 0
}

// addSkipped adds a line to the file of counts that a stage of CI keeps.
func addSkipped(file string, n int) error {
	if file == "" || n == 0 {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "0 0 %d\n", n)
	return errors.Join(err, f.Close())
}
