// Program telemetry compares the costs of watching a machine: our five fast sources at 10 and at 100 Hz, as
// an agent reads them, and mpstat once a second, in interleaved blocks in random order. The cost is the CPU
// time of the whole process, by the kernel's own clock, after it has started. It prints Markdown, and fails
// if one of our sources was read too seldom, not if it was expensive.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
)

const (
	watchRole = "watch"
	settle    = 500 * time.Millisecond // from a watcher's start to the first reading of its CPU time
)

func main() { os.Exit(rig.Main("telemetry", run)) }

type options struct {
	blocks, seconds int
	seed            uint64
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	if len(args) == 2 && args[0] == watchRole {
		return sample(ctx, args[1], os.Stdin, out)
	}

	o := options{}
	flags := flag.NewFlagSet("telemetry", flag.ContinueOnError)
	flags.IntVar(&o.blocks, "blocks", 8, "blocks, each with every watcher once, at least 6")
	flags.IntVar(&o.seconds, "seconds", 5, "seconds of each")
	flags.Uint64Var(&o.seed, "seed", 1, "of the order within blocks")
	if err := rig.Parse(flags, args, log, func() bool {
		return o.blocks >= rig.MinPairs && o.seconds >= 1
	}); err != nil {
		return err
	}

	machine := rig.Machine()
	costs, err := rig.Measure(rig.Draw(o.seed), o.blocks, len(watchers), func(block, i int) (float64, error) {
		share, err := cost(ctx, watchers[i], time.Duration(o.seconds)*time.Second)
		if err != nil {
			err = fmt.Errorf("block %d, %s: %w", block+1, watchers[i].name, err)
		}
		return share, err
	})
	if err == nil {
		io.WriteString(out, table(o, machine, costs))
	}

	return err
}

// fast lists the sources that are read at the fast pace.
var fast = [...]string{"cpu", "softirq", "softnet", "netdev", "qdisc"}

// sample reads the fast sources at a rate, through an agent of its own as a lab does, until its input ends.
// Then it reports how often each was read.
func sample(ctx context.Context, rate string, in io.Reader, out io.Writer) (err error) {
	hz, err := strconv.Atoi(rate)
	if err != nil || hz < 1 || hz > 1000 {
		return fmt.Errorf("rate %q: want 1 to 1000 a second", rate)
	}

	a := host.Inside(ctx, watch.Handlers(probe.Root{}))
	defer a.Close()
	w, err := watch.Start(ctx, a, "host", fast[:], watch.Options{Fast: time.Second / time.Duration(hz)})
	if err != nil {
		return err
	}
	defer w.Close()
	from := host.Monotonic()
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}

	data, err := w.Collect(ctx, from, host.Monotonic())
	if err != nil {
		return err
	}

	for _, s := range data.Samples {
		reads := 0
		if s.Table != nil {
			reads = len(s.Table.T)
		}

		fmt.Fprintf(out, "%s %d\n", s.Probe, reads)
	}

	return nil
}

// watcher is a program that watches; hz = 0 means that it is not ours.
type watcher struct {
	name string
	hz   int
	args []string
}

var watchers = [...]watcher{
	{"five fast sources, 10 Hz", 10, []string{"/proc/self/exe", watchRole, "10"}},
	{"five fast sources, 100 Hz", 100, []string{"/proc/self/exe", watchRole, "100"}},
	{"mpstat -P ALL 1", 0, []string{"mpstat", "-P", "ALL", "1"}},
}

// cost returns the share of one core that a watcher takes.
func cost(ctx context.Context, w watcher, length time.Duration) (share float64, err error) {
	c := exec.CommandContext(ctx, w.args[0], w.args[1:]...)
	var said strings.Builder
	c.Stdout = &said
	in, err := c.StdinPipe()
	if err != nil {
		return 0, err
	}

	if err := c.Start(); err != nil {
		return 0, err
	}

	time.Sleep(settle)
	before, err := processTime(c.Process.Pid)
	start := time.Now()
	time.Sleep(length)
	over := time.Since(start)
	after, err2 := processTime(c.Process.Pid)
	in.Close() // ours reports the number of reads, and ends
	if w.hz == 0 {
		c.Process.Signal(syscall.SIGINT)
	}

	ended := c.Wait()
	if w.hz > 0 {
		err = errors.Join(err, ended, enough(said.String(), w.hz, length))
	}

	return float64(after-before) / float64(over), errors.Join(err, err2, ctx.Err())
}

// processTime returns the CPU time of all threads of a process, in nanoseconds, by the kernel's clock for the
// process (see clock_getcpuclockid(3)).
func processTime(pid int) (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|2, &ts); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return ts.Nano(), nil
}

// enough compares the lines "source reads" of a watcher of ours with the requested number: nine tenths,
// because a busy machine wakes it late.
func enough(said string, hz int, length time.Duration) error {
	want := int(.9 * float64(hz) * length.Seconds())
	sources := 0
	for line := range strings.Lines(said) {
		name, text, ok := strings.Cut(strings.TrimSpace(line), " ")
		reads, err := strconv.Atoi(text)
		if !ok || err != nil {
			return fmt.Errorf("read what the watcher said: %q", line)
		}

		if sources++; reads < want {
			return fmt.Errorf("source %s was read %d times, want %d", name, reads, want)
		}
	}

	if sources != len(fast) {
		return fmt.Errorf("%d sources were read, want %d", sources, len(fast))
	}

	return nil
}

// table formats the result in Markdown.
func table(o options, machine string, costs [][]float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d interleaved blocks of %d s each, order drawn with seed %d; CPU time of the whole "+
		"process. %s.\n\n", o.blocks, o.seconds, o.seed, machine)
	b.WriteString("| watcher | % of one core, median | interval | n |\n|---|---|---|---|\n")
	for i, c := range costs {
		fmt.Fprintf(&b, "| %s | %s |\n", watchers[i].name, rig.Interval(statistics.Summarise(c), "%.3f", .01))
	}

	return b.String()
}
