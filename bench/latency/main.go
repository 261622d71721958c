// Program latency compares what measures the round trip of an idle path: our two probes, irtt and ping, on
// client, router and server of a local lab (two veth pairs), each every millisecond with packets of the
// same length, in interleaved blocks whose order is drawn. ping, whose echo is the kernel's, is the truth
// for the median. It prints Markdown, and fails if a probe of ours loses its count, not if it is slow.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
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
	blocks  int
	seconds int
	seed    uint64
	verbose bool
}

// count is how many probes a run has.
func (o options) count() int { return o.seconds * int(time.Second/interval) }

// bench is the lab with what the tools need of it.
type bench struct {
	options
	lab       *lab.Lab
	near, far traffic.End
}

// tool measures the path once.
type tool struct {
	name, what string
	run        func(context.Context, *bench) (measured, error)
}

var tools = [...]tool{
	{"echo", "kernel stamps at the client, less the echo's residence: network only", ours("echo")},
	{"icmp", "kernel stamps at the client; the far kernel's answer is in it", ours("icmp")},
	{"irtt", "process to process: both ends' wake-ups are in it", irtt},
	{"ping", "send call to kernel stamp; the far kernel's answer is in it", ping},
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
		if b.near, b.far, err = rig.Ends(ctx, l, 0, 4); err != nil {
			return err
		}
		server, err := serveIRTT(ctx, b)
		if err != nil {
			return err
		}
		defer server.Close()
		all := map[string][]measured{}
		err = rig.Blocks(rig.Draw(b.seed), b.blocks, len(tools), func(block, i int) error {
			r, err := tools[i].run(ctx, b)
			if err != nil {
				return fmt.Errorf("block %d, %s: %w", block+1, tools[i].name, err)
			}
			if b.verbose {
				fmt.Fprintf(log, "block %d %-5s %5d of %5d, p50 %.2f µs, p99 %.2f µs\n", block+1,
					tools[i].name, len(r.rtt), r.sent, r.quantile(.5)/1e3, r.quantile(.99)/1e3)
			}
			all[tools[i].name] = append(all[tools[i].name], r)
			return nil
		})
		if err == nil {
			io.WriteString(out, table(b.options, machine, all))
		}
		return err
	})
}
