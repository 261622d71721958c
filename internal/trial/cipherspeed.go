package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	suited "github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe"
)

// CipherSpeed is what to measure of a node's ciphers.
type CipherSpeed struct {
	Algorithms  []string
	Libraries   []string // none: openssl, or Go's where there is none, and the kernel
	Blocks      []int
	Threads     []int // 0: one for each CPU
	Seconds     int   // of a repetition
	Repetitions int
	Seed        uint64 // of the order
}

// cipherRig measures on one node.
type cipherRig struct {
	CipherSpeed
	*cipherNode
	watches *watches // of the CPU's clock and heat
	samples map[suited.Cell][]suited.Sample
	missing map[suited.Cell]string
}

// cipherProbes are what is watched beside.
var cipherProbes = []string{"cpu", "cpufreq", "thermal", "clock", "foreign"}

// Measure measures the ciphers of one node of a lab: each repetition goes through all cells in an order of
// its own. begin is told how long it will take. A cell that cannot be measured is missing with the reason.
func (o CipherSpeed) Measure(ctx context.Context, l *lab.Lab, node string, probes []probe.Probe,
	begin func(time.Duration)) (_ *suited.Document, err error) {
	n, err := cipherNodeOf(ctx, l, node)
	if err != nil {
		return nil, err
	}
	r := &cipherRig{CipherSpeed: o, cipherNode: n, samples: map[suited.Cell][]suited.Sample{},
		missing: map[suited.Cell]string{}}
	if err := r.choose(ctx); err != nil {
		return nil, err
	}
	if err := r.watch(ctx, l, probes); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.watches.Close()) }()
	cells := r.cells()
	begin(time.Duration(len(cells)*o.Repetitions*o.Seconds) * time.Second)
	if err := r.measure(ctx, cells); err != nil {
		return nil, err
	}
	d := &suited.Document{Format: record.Format, Node: node, CPU: r.cpu, Seconds: o.Seconds,
		Repetitions: o.Repetitions, Seed: o.Seed, Results: []suited.Result{}, Missing: []suited.Missing{},
		Versions: r.versions}
	r.conclude(d, cells)
	return d, nil
}

// choose finds the libraries that the node has: those that were named, which it must have, or openssl, else
// Go's, and the kernel's.
func (r *cipherRig) choose(ctx context.Context) error {
	if len(r.Libraries) > 0 {
		for _, library := range r.Libraries {
			if _, err := r.version(ctx, library); err != nil {
				return err
			}
		}
		return nil
	}
	for _, library := range suited.Libraries() {
		if library == suited.Go && r.versions[suited.OpenSSL] != "" {
			continue
		}
		_, err := r.version(ctx, library)
		switch {
		case err == nil:
			r.Libraries = append(r.Libraries, library)
		case !errors.Is(err, host.ErrUnsupported), !r.node.HasAgent() && library == suited.Go:
			return err
		}
	}
	return nil
}

// watch has the node's CPU watched: where its cores are its machine's, on that.
func (r *cipherRig) watch(ctx context.Context, l *lab.Lab, probes []probe.Probe) error {
	n, err := l.Node(ctx, r.watched)
	if err != nil {
		return err
	}
	few := slices.DeleteFunc(slices.Clone(probes), func(p probe.Probe) bool {
		return !slices.Contains(cipherProbes, p.Name())
	})
	r.watches = &watches{lab: l, watchers: map[string]watcher{}, missing: map[string]string{}}
	return r.watches.open(ctx, l, n, few)
}

// cells are all, in the order shown.
func (r *cipherRig) cells() (cells []suited.Cell) {
	var threads []int
	for _, n := range r.Threads {
		if n = cmp.Or(n, r.cpu.Threads); !slices.Contains(threads, n) {
			threads = append(threads, n)
		}
	}
	for _, library := range r.Libraries {
		for _, name := range r.Algorithms {
			a, _ := suited.Named(name)
			cells = append(cells, a.Cells(library, r.Blocks, threads)...)
		}
	}
	return cells
}

// commands are the cells without those that are measured together with another.
func (r *cipherRig) commands(cells []suited.Cell) []suited.Cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c suited.Cell) bool {
		return c.Library == suited.OpenSSL && c.Together()[0] != c.Operation
	})
}

func (r *cipherRig) measure(ctx context.Context, cells []suited.Cell) error {
	draw := rand.New(rand.NewPCG(r.Seed, 1))
	commands := r.commands(cells)
	for range r.Repetitions {
		for _, i := range draw.Perm(len(commands)) {
			c := commands[i]
			if r.missing[c] != "" {
				continue
			}
			from := host.Monotonic()
			if err := r.mark(from, c); err != nil {
				return err
			}
			rates, err := r.once(ctx, c, time.Duration(r.Seconds)*time.Second)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case errors.Is(err, host.ErrUnreachable):
				return fmt.Errorf("measure %s on %s: %w", c.Algorithm, r.node.Name, err)
			case err != nil:
				r.missing[c] = check.Plain(err.Error())
				continue
			}
			seen, err := r.seen(ctx, from, host.Monotonic())
			if err != nil {
				return err
			}
			for operation, rate := range rates {
				of := c
				of.Operation, seen.Rate = operation, rate
				r.samples[of] = append(r.samples[of], seen)
			}
		}
	}
	return nil
}

// mark has sources that are read rarely read near both ends of a measurement that begins now.
func (r *cipherRig) mark(from int64, c suited.Cell) error {
	one := r.watches.watchers[r.watched]
	if one == nil {
		return nil
	}
	long := int64(c.Parts()) * int64(r.Seconds) * int64(time.Second)
	return one.Schedule(from+int64(time.Millisecond), from+long*19/20)
}

// seen is what was seen of the CPU between two times.
func (r *cipherRig) seen(ctx context.Context, from, to int64) (s suited.Sample, err error) {
	one := r.watches.watchers[r.watched]
	if one == nil {
		return s, nil
	}
	data, err := one.Collect(ctx, from, to)
	if err != nil {
		return s, err
	}
	most := func(probe, stem string) float64 { return metrics.MostOf(data, probe, stem, from, to) }
	hz, source := metrics.ClockOf(data, from, to, r.rounds)
	if s.ClockHz = hz; hz > 0 || r.cpu.ClockFrom == suited.ClockUnwatched {
		r.cpu.ClockFrom = source
	}
	s.TemperatureC = most("thermal", "temperature_c")
	table, _ := metrics.SamplesOf(data, "thermal")
	for _, stem := range []string{"core_throttles", "package_throttles"} {
		for _, c := range metrics.ColumnsOf(table, stem) {
			grew, ok := c.Curve.Moved(from, to)
			s.Throttled = s.Throttled || ok && grew > 0
		}
	}
	limit, hardware := most("cpufreq", "limit_hz"), most("cpufreq", "hardware_limit_hz")
	s.Throttled = s.Throttled || limit > 0 && limit < hardware
	share := func(probe, stem, label string) float64 {
		table, _ := metrics.SamplesOf(data, probe)
		for _, c := range metrics.ColumnsOf(table, stem) {
			if grew, ok := c.Curve.Moved(from, to); ok && c.Label == label {
				return grew / float64(to-from) / float64(r.cpu.Threads)
			}
		}
		return 0
	}
	s.Stolen, s.Foreign = share("cpu", "steal_ns", "cpu"), share("foreign", "foreign_cpu_ns", "")
	return s, nil
}

func (r *cipherRig) conclude(d *suited.Document, cells []suited.Cell) {
	for _, c := range cells {
		if samples := r.samples[c]; len(samples) > 0 {
			result := suited.Judge(c, samples)
			if r.node.Facts.CPUs == record.CPUsEmulated {
				result.Doubts = append(result.Doubts, suited.Doubt{Kind: suited.DoubtEmulated,
					Text: "the CPU is emulated: the figure is the emulator's"})
			}
			d.Results = append(d.Results, result)
			continue
		}
		by := c
		if c.Library == suited.OpenSSL {
			by.Operation = c.Together()[0]
		}
		d.Missing = append(d.Missing, suited.Missing{Cell: c, Why: r.missing[by]})
	}
	d.Advice = append(suited.AdviseHardware(d.CPU), suited.Advise(d.Results)...)
}
