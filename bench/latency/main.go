// Program latency compares what measures the round trip of an idle path: our two probes, irtt and ping, on
// client, router and server of a local lab (two veth pairs), each every millisecond with packets of the
// same length, in interleaved blocks whose order is drawn. ping, whose echo is the kernel's, is the truth
// for the median. It prints Markdown, and fails if a probe of ours loses its count, not if it is slow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// What every tool sends: one IP packet of this length each millisecond.
const (
	interval   = time.Millisecond
	packetSize = 100
	headers    = 28 // IPv4 and UDP, or ICMP
)

const minBlocks = 6 // below it, an order-statistic interval of 95 % does not exist

func main() {
	if handled, err := registry.Serve(os.Args[1:]); handled {
		if err != nil {
			fmt.Fprintln(os.Stderr, "latency:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	blocks  int
	seconds int
	seed    uint64
	verbose bool
	load    string // of the machine before, of the last minute
}

func run(args []string, out, talk io.Writer) int {
	o := options{}
	flags := flag.NewFlagSet("latency", flag.ContinueOnError)
	flags.SetOutput(talk)
	flags.IntVar(&o.blocks, "blocks", 10, "blocks, each with every tool once")
	flags.IntVar(&o.seconds, "seconds", 2, "seconds of each run")
	flags.Uint64Var(&o.seed, "seed", 1, "of the order within blocks")
	flags.BoolVar(&o.verbose, "v", false, "print each run")
	if flags.Parse(args) != nil || flags.NArg() > 0 || o.blocks < minBlocks || o.seconds < 1 {
		fmt.Fprintf(talk, "usage: latency [-blocks N≥%d] [-seconds N] [-seed N] [-v]\n", minBlocks)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := compare(ctx, o, out, talk); err != nil {
		fmt.Fprintln(talk, "latency:", err)
		return 1
	}
	return 0
}

// bench is the lab with what the tools need of it.
type bench struct {
	o         options
	near, far *lab.Node
	addr      [2]netip.Addr
	offset    [2]int64
}

// tool measures the path once.
type tool struct {
	name, what string
	run        func(context.Context, *bench) (measured, error)
}

func tools() []tool {
	return []tool{
		{"echo", "kernel stamps at the client, less the echo's residence: network only", echo},
		{"icmp", "kernel stamps at the client; the far kernel's answer is in it", icmp},
		{"irtt", "process to process: both ends' wake-ups are in it", irtt},
		{"ping", "send call to kernel stamp; the far kernel's answer is in it", ping},
	}
}

func compare(ctx context.Context, o options, out, talk io.Writer) (err error) {
	o.load = "unknown"
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		o.load, _, _ = strings.Cut(string(b), " ")
	}
	dir, err := os.MkdirTemp("", "latency-")
	if err != nil {
		return fmt.Errorf("create a folder for the lab: %w", err)
	}
	defer os.RemoveAll(dir)
	topology, err := lab.TopologyNamed("forward")
	if err != nil {
		return err
	}
	l, err := lab.Local{ID: "latency", Topology: topology, Dir: filepath.Join(dir, "labs"),
		Parts: registry.LabParts()}.Up(ctx)
	if err != nil {
		return err
	}
	defer func() {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, l.Close(down))
	}()
	b, err := open(ctx, l, o)
	if err != nil {
		return err
	}
	server, err := serveIRTT(ctx, b)
	if err != nil {
		return err
	}
	defer server.Close()
	all := map[string][]measured{}
	draw := rand.New(rand.NewPCG(o.seed, 1))
	list := tools()
	for block := range o.blocks {
		for _, i := range draw.Perm(len(list)) {
			r, err := list[i].run(ctx, b)
			if err != nil {
				return fmt.Errorf("block %d, %s: %w", block+1, list[i].name, err)
			}
			if o.verbose {
				fmt.Fprintf(talk, "block %d %-5s %5d of %5d, p50 %.2f µs, p99 %.2f µs\n", block+1,
					list[i].name,
					len(r.rtt), r.sent, r.quantile(.5)/1e3, r.quantile(.99)/1e3)
			}
			all[list[i].name] = append(all[list[i].name], r)
		}
	}
	io.WriteString(out, table(o, list, all))
	return nil
}

func open(ctx context.Context, l *lab.Lab, o options) (*bench, error) {
	b := &bench{o: o}
	var want []record.Setting
	for _, n := range l.Topology.Nodes {
		want = append(want, record.Setting{Knob: "offload", Node: n.Name, Value: "wire"})
	}
	if err := l.Settle(ctx, want); err != nil {
		return nil, err
	}
	for i, name := range []string{l.Topology.Near, l.Topology.Far} {
		n, err := l.Node(ctx, name)
		if err != nil {
			return nil, err
		}
		if b.offset[i], _, err = n.Agent.Clock(ctx); err != nil {
			return nil, err
		}
		b.addr[i] = l.Address(0, i, 4)
		if i == 0 {
			b.near = n
		} else {
			b.far = n
		}
	}
	return b, nil
}

// count is how many probes a run has.
func (o options) count() int { return o.seconds * int(time.Second/interval) }
