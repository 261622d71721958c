package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// stand is where the comparisons run.
type stand struct {
	lab       *lab.Lab
	near, far traffic.End
	tunnels   map[int]*[2]traffic.End
	running   []host.Session // what was started on nodes
	options   options
	out, talk io.Writer
}

// close ends what was started.
func (b *stand) close() {
	for _, s := range b.running {
		s.Close()
	}
}

// ends are those of a side's way.
func (b *stand) ends(s side) (near, far traffic.End) {
	if e := b.tunnels[s.way]; e != nil {
		return e[0], e[1]
	}
	return b.near, b.far
}

// suite runs its rows and prints a table.
func (b *stand) suite(ctx context.Context, s suite) error {
	if s.rows[0].ours.way != plainWay {
		if err := b.layTunnels(ctx); err != nil {
			return err
		}
	}
	fmt.Fprintf(b.out, "\n%s\n\n%s\n", s.title, tableHead)
	for _, c := range s.rows {
		if err := settle(ctx, b.lab, c.offload); err != nil {
			return err
		}
		for _, side := range []side{c.ours, c.theirs} {
			l := b.load(side)
			near, far := b.ends(side)
			if a := side.engine.Check(ctx, near, far, l); a.State != check.Yes {
				return fmt.Errorf("%s, %s: %s", c.name, side.engine.Name(), a.Reason)
			}
		}
		r, err := b.compare(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Fprintln(b.out, r.row(c))
	}
	return nil
}

// compare runs the pairs of one row.
func (b *stand) compare(ctx context.Context, c comparison) (result, error) {
	sides := [2]side{c.ours, c.theirs}
	var r result
	draw := rand.New(rand.NewPCG(b.options.seed, uint64(len(c.name))))
	for range b.options.pairs {
		for _, i := range draw.Perm(2) {
			f, err := b.once(ctx, sides[i], c.of)
			if err != nil {
				return result{}, fmt.Errorf("%s: %w", sides[i].engine.Name(), err)
			}
			r.runs[i] = append(r.runs[i], f)
			if b.options.verbose {
				fmt.Fprintf(b.talk, "%-32s %-7s %s\n", c.name, sides[i].engine.Name(), f)
			}
		}
	}
	return r, nil
}

func (b *stand) load(s side) record.Load {
	l := s.load
	l.Direction, l.IP, l.Opener, l.Port = record.Up, 4, "near", 5201
	l.Warmup, l.Duration, l.Interval = 300*time.Millisecond, time.Duration(b.options.seconds)*time.Second,
		100*time.Millisecond
	if s.engine.Name() == "iperf3" { // whose processor time is of its whole life
		l.Warmup, l.Interval = 0, time.Second
	}
	l.Tag = "engine " + strconv.FormatInt(time.Now().UnixNano(), 10)
	return l
}

// once runs one side and reads what it did.
func (b *stand) once(ctx context.Context, s side, of quantity) (figures, error) {
	before := machineTimes()
	l := b.load(s)
	c := &clock{load: l}
	near, far := b.ends(s)
	t, err := s.engine.Offer(ctx, near, far, l, c)
	if err != nil {
		return figures{}, err
	}
	f, err := read(t)
	if err != nil {
		return figures{}, err
	}
	f.kernelMemory = c.kernelMemory
	f.stolen = machineTimes().stolenSince(before)
	f.value, err = of.of(f)
	return f, err
}

// clock conducts one engine that runs alone, and looks at the kernel's memory for sockets meanwhile.
type clock struct {
	load         record.Load
	kernelMemory int64 // bytes, the most that was seen
}

func (c *clock) Ready(context.Context) (record.Window, error) {
	w := record.Window{Begin: host.Monotonic() + int64(50*time.Millisecond)}
	w.Start = w.Begin + int64(c.load.Warmup)
	w.End = w.Start + int64(c.load.Duration)
	w.Stop = w.End + int64(500*time.Millisecond)
	return w, nil
}

func (c *clock) Progress(traffic.Progress) { c.kernelMemory = max(c.kernelMemory, socketMemory()) }

// socketMemory is what all sockets of the machine hold: the counts of pages in /proc/net/sockstat are not
// of a network namespace.
func socketMemory() int64 {
	b, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		return 0
	}
	pages := int64(0)
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		for i := 0; i+1 < len(f); i++ {
			if f[i] == "mem" {
				n, _ := strconv.ParseInt(f[i+1], 10, 64)
				pages += n
			}
		}
	}
	return pages * int64(os.Getpagesize())
}
