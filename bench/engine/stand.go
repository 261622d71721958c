package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// stand is the lab in which the comparisons run.
type stand struct {
	lab      *lab.Lab
	paths    [peerTunnel + 1][2]traffic.End // their near and far ends
	out, log io.Writer
	disagree bool // a ratio left the tolerance of its row

	pairs, seconds int
	seed           uint64
	verbose        bool
}

// suite runs its rows and prints a table.
func (b *stand) suite(ctx context.Context, s suite) error {
	if s.rows[0].ours.path != plainPath {
		if err := b.layTunnels(ctx); err != nil {
			return err
		}
	}

	fmt.Fprintf(b.out, "\n%s\n\n%s\n", s.title, tableHead)
	for _, c := range s.rows {
		if err := rig.Settle(ctx, b.lab, c.offload, c.settings...); err != nil {
			return err
		}

		sides := [2]side{c.ours, c.theirs}
		for _, side := range sides {
			ends := b.paths[side.path]
			a := side.engine.Check(ctx, ends[0], ends[1], b.load(side))
			if a.State != check.Yes {
				return fmt.Errorf("%s, %s: %s", c.name, side.engine.Name(), a.Reason)
			}
		}

		draw := rig.Draw(b.seed + uint64(len(c.name)))
		runs, err := rig.Measure(draw, b.pairs, 2, func(_, i int) (figures, error) {
			f, err := b.once(ctx, sides[i], c.of)
			if err != nil {
				return f, fmt.Errorf("%s: %w", sides[i].engine.Name(), err)
			}

			if b.verbose {
				fmt.Fprintf(b.log, "%-32s %-7s %s\n", c.name, sides[i].engine.Name(), f)
			}

			return f, nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}

		line, agrees := c.row(runs)
		b.disagree = b.disagree || !agrees
		fmt.Fprintln(b.out, line)
	}

	return nil
}

func (b *stand) load(s side) record.Load {
	l := s.load
	l.Direction = record.Up
	l.IP = 4
	l.Opener = "near"
	l.Port = 5201
	l.Duration = time.Duration(b.seconds) * time.Second
	l.Interval = 100 * time.Millisecond
	switch {
	case l.Warmup > 0:
	case s.engine.Name() == "iperf3": // its CPU time covers its whole life
		l.Interval = time.Second
	default:
		l.Warmup = 300 * time.Millisecond
	}

	l.Tag = "engine " + strconv.FormatInt(time.Now().UnixNano(), 10)
	return l
}

// once runs one side and reads its results.
func (b *stand) once(ctx context.Context, s side, of quantity) (f figures, err error) {
	before := rig.MachineTimes()
	l := b.load(s)
	c := &clock{Clock: rig.Clock{Load: l}}
	t, err := s.engine.Offer(ctx, b.paths[s.path][0], b.paths[s.path][1], l, c)
	if err != nil {
		return f, err
	}

	if f.Sums, err = rig.Sum(t); err != nil {
		return f, err
	}

	f.kernelMemory, f.stolen, f.value = c.kernelMemory, rig.MachineTimes().StolenSince(before), of.of(f.Sums)
	if f.value == 0 {
		return f, fmt.Errorf("nothing was counted in %s", of.unit)
	}

	return f, nil
}

// clock watches the kernel's memory for sockets meanwhile.
type clock struct {
	rig.Clock
	kernelMemory int64 // maximum seen, in bytes
}

// Progress implements traffic.Conductor.
func (c *clock) Progress(traffic.Progress) { c.kernelMemory = max(c.kernelMemory, socketMemory()) }

var pagesOfSockets = regexp.MustCompile(` mem (\d+)`)

// socketMemory returns the memory of all sockets of the machine: the page counts in /proc/net/sockstat do not
// belong to a network namespace.
func socketMemory() (bytes int64) {
	text, _ := os.ReadFile("/proc/net/sockstat")
	for _, m := range pagesOfSockets.FindAllSubmatch(text, -1) {
		pages, _ := strconv.ParseInt(string(m[1]), 10, 64)
		bytes += pages * int64(os.Getpagesize())
	}
	return bytes
}
