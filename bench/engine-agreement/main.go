// Program engine-agreement compares the native engine with iperf3 on one path: client, router and server of
// a local lab, real 1500-byte packets, the router's port to the server shaped by tbf to 300 Mbit/s, with 1
// and 4 streams, in interleaved pairs whose order is drawn. It prints the ratio of goodput with its
// interval and fails if the shaped ratios leave 1 ± 3 %. Ratios on the unshaped path are printed beside,
// not judged.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

const (
	shape     = "tbf rate 300M burst 512k limit 1M" // a burst of 14 ms, so that a late timer costs no rate
	tolerance = 0.03
	minPairs  = 6 // below it, an order-statistic interval of 95 % does not exist
)

func main() {
	if code, isRole := serveRole(os.Args[1:]); isRole {
		os.Exit(code)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// serveRole lives one of the lives in which a lab starts this program again.
func serveRole(args []string) (code int, isRole bool) {
	if len(args) == 0 {
		return 0, false
	}
	var err error
	switch {
	case args[0] == lab.HolderRole:
		err = lab.HolderMain(os.Stdin, os.Stdout)
	case args[0] == lab.AnchorRole && len(args) == 2:
		err = lab.AnchorMain(args[1], os.Stdin, os.Stdout, []string{agent.Role})
	case args[0] == agent.Role || args[0] == agent.ChildRole:
		err = agent.Main(context.Background(), args[0], standard{}, node.Parts())
	default:
		return 0, false
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "engine-agreement %s: %v\n", args[0], err)
		return 1, true
	}
	return 0, true
}

// standard is the connection on standard input and output.
type standard struct{}

func (standard) Read(b []byte) (int, error)  { return os.Stdin.Read(b) }
func (standard) Write(b []byte) (int, error) { return os.Stdout.Write(b) }
func (standard) Close() error {
	os.Stdout.Close()
	return os.Stdin.Close()
}

type options struct {
	pairs   int
	seconds int
	seed    uint64
	verbose bool
}

func run(args []string, out, talk io.Writer) int {
	o := options{}
	flags := flag.NewFlagSet("engine-agreement", flag.ContinueOnError)
	flags.SetOutput(talk)
	flags.IntVar(&o.pairs, "pairs", minPairs, "pairs per path and number of streams")
	flags.IntVar(&o.seconds, "seconds", 3, "measured seconds of each run")
	flags.BoolVar(&o.verbose, "v", false, "print each run")
	flags.Uint64Var(&o.seed, "seed", 1, "of the order within pairs")
	if flags.Parse(args) != nil || flags.NArg() > 0 || o.pairs < minPairs || o.seconds < 1 {
		fmt.Fprintf(talk, "usage: engine-agreement [-pairs N≥%d] [-seconds N] [-seed N] [-v]\n", minPairs)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	agrees, err := compare(ctx, o, out)
	if err != nil {
		fmt.Fprintln(talk, "engine-agreement:", err)
		return 1
	}
	if !agrees {
		return 1
	}
	return 0
}

func compare(ctx context.Context, o options, out io.Writer) (agrees bool, err error) {
	dir, err := os.MkdirTemp("", "engine-agreement-")
	if err != nil {
		return false, fmt.Errorf("create a folder for the lab: %w", err)
	}
	defer os.RemoveAll(dir)
	topology, err := lab.TopologyNamed("forward")
	if err != nil {
		return false, err
	}
	l, err := lab.Local{ID: "agreement", Topology: topology, Dir: filepath.Join(dir, "labs"),
		Parts: registry.LabParts()}.Up(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, l.Close(down))
	}()
	near, far, err := ends(ctx, l)
	if err != nil {
		return false, err
	}
	if a := (iperf3.Engine{}).Check(ctx, near, far, load(o, 1)); a.State != check.Yes {
		return false, fmt.Errorf("iperf3: %s (%s)", a.Reason, a.Hint)
	}
	fmt.Fprintf(out, "goodput, native ÷ iperf3, %d interleaved pairs of %d s, seed %d\n", o.pairs, o.seconds,
		o.seed)
	fmt.Fprintf(out, "%-34s %8s %8s %8s   %s\n", "path", "median", "low", "high",
		"medians in Mbit/s: native, iperf3")
	agrees = true
	draw := rand.New(rand.NewPCG(o.seed, 1))
	for _, queue := range []string{shape, ""} {
		if err := settle(ctx, l, queue); err != nil {
			return false, err
		}
		for _, streams := range []int{1, 4} {
			r, err := measure(ctx, o, near, far, streams, draw, out)
			if err != nil {
				return false, err
			}
			verdict := "not judged"
			if queue != "" {
				verdict = "agrees"
				if !r.agrees() {
					verdict, agrees = "DISAGREES", false
				}
			}
			fmt.Fprintf(out, "%-34s %8.4f %8.4f %8.4f   %.1f, %.1f: %s\n", name(queue, streams), r.median,
				r.low, r.high,
				r.native/1e6, r.iperf3/1e6, verdict)
		}
	}
	return agrees, nil
}

func name(queue string, streams int) string {
	path := "unshaped"
	if queue != "" {
		path = "tbf 300 Mbit/s"
	}
	return fmt.Sprintf("%s, wire, %d streams", path, streams)
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

// settle makes real packets cross all links, and the queue hold.
func settle(ctx context.Context, l *lab.Lab, queue string) error {
	var want []record.Setting
	for _, link := range l.Topology.Links {
		for _, end := range link.Ends {
			want = append(want, record.Setting{Knob: "offload", Node: end.Node, Port: end.Port,
				Value: "wire"})
		}
	}
	if queue != "" {
		want = append(want, record.Setting{Knob: "queue", Node: "router", Port: "wan", Value: queue})
	}
	return l.Settle(ctx, want)
}

func load(o options, streams int) record.Load {
	return record.Load{
		Protocol: "tcp", Direction: record.Up, Streams: streams, IP: 4, Opener: "near", Port: 5201,
		Congestion: "cubic", Warmup: time.Second, Duration: time.Duration(o.seconds) * time.Second,
		Interval: 500 * time.Millisecond, Tag: fmt.Sprintf("agreement %d", time.Now().UnixNano()),
	}
}

// ratio is the median of the pairs' ratios; low and high are the order statistics that hold the true median
// with at least 95 %.
type ratio struct{ median, low, high, native, iperf3 float64 }

// agrees is false also where there is no ratio at all: NaN.
func (r ratio) agrees() bool { return r.low >= 1-tolerance && r.high <= 1+tolerance }

func measure(ctx context.Context, o options, near, far traffic.End, streams int, draw *rand.Rand,
	out io.Writer) (ratio, error) {
	engines := [2]traffic.Engine{stream.Native{}, iperf3.Engine{}}
	var rates [2][]float64
	var ratios []float64
	for range o.pairs {
		for _, i := range draw.Perm(2) {
			l := load(o, streams)
			t, err := engines[i].Offer(ctx, near, far, l, clock{l})
			if err != nil {
				return ratio{}, fmt.Errorf("%s, %d streams: %w", engines[i].Name(), streams, err)
			}
			if o.verbose {
				show(out, t)
			}
			rate, err := goodput(t)
			if err != nil {
				return ratio{}, fmt.Errorf("%s, %d streams: %w", engines[i].Name(), streams, err)
			}
			rates[i] = append(rates[i], rate)
		}
		last := len(ratios)
		ratios = append(ratios, rates[0][last]/rates[1][last])
	}
	slices.Sort(ratios)
	k := rank(len(ratios))
	return ratio{median(ratios), ratios[k], ratios[len(ratios)-1-k], median(rates[0]), median(rates[1])}, nil
}

// show prints what explains a run's rate.
func show(out io.Writer, t *record.Traffic) {
	for _, f := range t.Flows {
		fmt.Fprintf(out, "  %-6s stream %d: %.1f Mbit/s, sent %d, received %d, %d retransmits, busy %v, "+
			"rwnd %v, sndbuf %v\n",
			t.Engine, f.Stream, 8e3*float64(f.ReceivedBytes)/float64(f.ReceiverNs), f.SentBytes,
			f.ReceivedBytes,
			f.TCP.Retransmits, time.Duration(f.TCP.BusyNs), time.Duration(f.TCP.RwndLimitedNs),
			time.Duration(f.TCP.SndbufLimitNs))
	}
}

// goodput adds up the flows, in bit/s. A run that does not say for how long it received, or received
// nothing, has none.
func goodput(t *record.Traffic) (float64, error) {
	sum := 0.0
	for _, f := range t.Flows {
		if f.ReceiverNs <= 0 {
			return 0, fmt.Errorf("goodput: stream %d received for %d ns", f.Stream, f.ReceiverNs)
		}
		sum += 8 * float64(f.ReceivedBytes) / (float64(f.ReceiverNs) / 1e9)
	}
	if sum <= 0 {
		return 0, errors.New("goodput: no byte was received")
	}
	return sum, nil
}

// rank is the largest k such that the k-th smallest (from 0) and k-th largest of n values hold the median
// with at least 95 %: the sign test's interval.
func rank(n int) int {
	tail, term := 0.0, 1.0
	for range n {
		term /= 2 // P(no value below the median)
	}
	k := -1
	for i := 0; 2*(tail+term) <= 0.05; i++ {
		tail += term
		term *= float64(n-i) / float64(i+1)
		k = i
	}
	return max(k, 0)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
