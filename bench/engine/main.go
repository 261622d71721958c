// Program engine compares the native engine with iperf3, and with itself at one stream, on the path client,
// router and server of a local lab. Each comparison runs its two sides in interleaved pairs whose order is
// drawn, and is told as the median of the pairs' ratios with its order-statistic interval of 95 %. It
// prints Markdown. "wire" is real 1500-byte packets on all links, "super" packets of up to 64 KiB. Nothing
// is judged but the accounts: a pair in which sent is not received + lost ends the program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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
)

// minPairs is the fewest for which an interval of 95 % exists.
const minPairs = 6

func main() {
	if handled, err := registry.Serve(os.Args[1:]); handled {
		if err != nil {
			fmt.Fprintf(os.Stderr, "engine %s: %v\n", os.Args[1], err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

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

func run(args []string, out, talk io.Writer) int {
	o, list := options{}, ""
	flags := flag.NewFlagSet("engine", flag.ContinueOnError)
	flags.SetOutput(talk)
	flags.StringVar(&list, "suite", strings.Join(suiteNames(), ","), "suites to run")
	flags.IntVar(&o.pairs, "pairs", 8, "pairs per comparison")
	flags.IntVar(&o.seconds, "seconds", 2, "measured seconds of each run")
	flags.BoolVar(&o.verbose, "v", false, "print each run")
	flags.Uint64Var(&o.seed, "seed", 1, "of the order within pairs")
	flags.StringVar(&o.newest, "newest", "",
		"a newest iperf3, built from source, to compare four streams with")
	flags.StringVar(&o.only, "only", "", "measure just rows with this in their name")
	err := flags.Parse(args)
	o.suites = strings.Split(list, ",")
	unknown := slices.ContainsFunc(o.suites, func(s string) bool { return !slices.Contains(suiteNames(), s) })
	none := !slices.ContainsFunc(suites(), func(s suite) bool {
		return slices.Contains(o.suites, s.name) && slices.ContainsFunc(s.rows, o.measures)
	})
	if err != nil || none || flags.NArg() > 0 || o.pairs < minPairs || o.seconds < 1 || unknown {
		fmt.Fprintf(talk, "usage: engine [-suite %s] [-pairs N≥%d] [-seconds N] [-seed N] [-newest FILE] "+
			"[-only TEXT] [-v]\n", strings.Join(suiteNames(), ","), minPairs)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bench(ctx, o, out, talk); err != nil {
		fmt.Fprintln(talk, "engine:", err)
		return 1
	}
	return 0
}

func bench(ctx context.Context, o options, out, talk io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "engine-")
	if err != nil {
		return fmt.Errorf("create a folder for the lab: %w", err)
	}
	defer os.RemoveAll(dir)
	topology, err := lab.TopologyNamed("forward")
	if err != nil {
		return err
	}
	l, err := lab.Local{ID: "engine", Topology: topology, Dir: filepath.Join(dir, "labs"),
		Parts: registry.LabParts()}.Up(ctx)
	if err != nil {
		return err
	}
	defer func() {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, l.Close(down))
	}()
	b := &stand{lab: l, options: o, out: out, talk: talk,
		tunnels: map[int]*[2]traffic.End{ourTunnel: {}, peerTunnel: {}}}
	defer b.close()
	if b.near, b.far, err = ends(ctx, l); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s; %d pairs of %d s, seed %d.\n", machine(), o.pairs, o.seconds, o.seed)
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
	return nil
}

func ends(ctx context.Context, l *lab.Lab) (near, far traffic.End, err error) {
	var e [2]traffic.End
	for i, name := range []string{l.Topology.Near, l.Topology.Far} {
		n, err := l.Node(ctx, name)
		if err != nil {
			return near, far, err
		}
		a := l.Address(0, i, 4)
		e[i] = traffic.End{Node: name, Agent: n.Agent, Addr: a, Target: a}
		if e[i].Offset, _, err = n.Agent.Clock(ctx); err != nil {
			return near, far, err
		}
	}
	return e[0], e[1], nil
}

// settle gives all links an offload level.
func settle(ctx context.Context, l *lab.Lab, offload string) error {
	var want []record.Setting
	for _, link := range l.Topology.Links {
		for _, end := range link.Ends {
			want = append(want, record.Setting{Knob: "offload", Node: end.Node, Port: end.Port,
				Value: offload})
		}
	}
	return l.Settle(ctx, want)
}
