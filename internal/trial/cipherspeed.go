package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	suited "github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/ciphers"
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
	node    *lab.Node
	host    host.Host // takes commands
	watches *watches  // of the CPU's clock and heat
	watched string    // the node whose clock and heat they are
	told    bool      // the kernel tells the clock
	rounds  float64   // cycles of a round of the probe clock's loop, 0 if that is not known
	threads int
	samples map[suited.Cell][]suited.Sample
	missing map[suited.Cell]string
}

// cipherProbes are what is watched beside.
var cipherProbes = []string{"cpu", "cpufreq", "thermal", "clock", "foreign"}

// Measure measures the ciphers of one node of a lab: each repetition goes through all cells in an order of
// its own. begin is told how long it will take. A cell that cannot be measured is missing with the reason.
func (o CipherSpeed) Measure(ctx context.Context, l *lab.Lab, node string, probes []probe.Probe,
	begin func(time.Duration)) (_ *suited.Document, err error) {
	n, err := l.Node(ctx, node)
	if err != nil {
		return nil, err
	}
	r := &cipherRig{CipherSpeed: o, node: n, samples: map[suited.Cell][]suited.Sample{},
		missing: map[suited.Cell]string{}}
	switch {
	case n.HasAgent():
		r.host = agent.NewHost(node, n.Agent)
	case n.HasDriver():
		r.host = n.Host
	default:
		return nil, fmt.Errorf("measure the ciphers of node %s: %w: %s", node, host.ErrUnsupported,
			n.Describe().Unreachable)
	}
	d := &suited.Document{Format: record.Format, Node: node, Seconds: o.Seconds, Repetitions: o.Repetitions,
		Seed: o.Seed, Results: []suited.Result{}, Missing: []suited.Missing{}, Versions: map[string]string{}}
	if err := r.look(ctx, d); err != nil {
		return nil, err
	}
	if err := r.choose(ctx, d); err != nil {
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
	r.conclude(d, cells)
	return d, nil
}

// look finds out what CPU it is.
func (r *cipherRig) look(ctx context.Context, d *suited.Document) error {
	facts, err := map[string]string{}, error(nil)
	if r.node.HasAgent() {
		var e record.Environment
		e, err = probe.Environment(ctx, r.node.Agent, r.node.Name)
		facts = e.Facts
	} else if by, ok := r.node.Driver.(driver.Describing); ok {
		facts, err = by.Facts(ctx, r.host)
	}
	if err != nil {
		return err
	}
	r.threads, _ = strconv.Atoi(facts["cpu_threads"])
	r.threads = max(1, r.threads)
	// The loop of the probe is of three shifts and three exclusive ors, each of which needs the one before;
	// only x86 is known to do each in one cycle, and none together.
	if facts["agent_arch"] == "amd64" && r.node.Facts.CPUs != record.CPUsEmulated {
		r.rounds = 6
	}
	d.CPU = suited.CPU{Model: facts["cpu_model"], Threads: r.threads,
		Features: suited.Features(strings.Fields(facts["cpu_flags"]))}
	return nil
}

// choose finds the libraries that the node has.
func (r *cipherRig) choose(ctx context.Context, d *suited.Document) error {
	wanted := r.Libraries
	if len(wanted) == 0 {
		wanted = []string{suited.OpenSSL, suited.Kernel}
	}
	out, err := host.Run(ctx, r.host, host.Command{Path: "openssl", Args: []string{"version"}})
	if code, ok := host.ExitCode(err); ok && code == 127 { // what a shell says of a program that is not there
		err = fmt.Errorf("%w: %w", host.ErrUnsupported, err)
	}
	if err != nil && !errors.Is(err, host.ErrUnsupported) {
		return fmt.Errorf("ask openssl on %s for its version: %w", r.node.Name, err)
	}
	lacks := err != nil
	if lacks && len(r.Libraries) == 0 {
		wanted = []string{suited.Go, suited.Kernel}
	}
	for _, library := range wanted {
		switch {
		case library == suited.OpenSSL && lacks:
			return check.WithHint(fmt.Errorf("measure with openssl on %s: %w", r.node.Name, err),
				"install its package (openssl, on OpenWrt openssl-util), or use --library go")
		case library == suited.OpenSSL:
			version, _, _ := strings.Cut(string(out), "\n")
			d.Versions[library] = check.Plain(strings.TrimSpace(version))
		case !r.node.HasAgent() && len(r.Libraries) == 0 && !(library == suited.Go && lacks):
			continue
		case !r.node.HasAgent():
			return check.WithHint(fmt.Errorf("measure with %s on %s: %w: it needs an agent there", library,
				r.node.Name, host.ErrUnsupported), "install openssl there (on OpenWrt openssl-util)")
		default:
			d.Versions[library] = map[string]string{suited.Go: "of the agent's program",
				suited.Kernel: "AF_ALG, a system call and a copy for each block"}[library]
		}
	}
	r.Libraries = wanted
	if !r.node.HasAgent() {
		r.Libraries = []string{suited.OpenSSL}
	}
	return nil
}

// watch has the node's CPU watched: where its cores are its machine's, on that.
func (r *cipherRig) watch(ctx context.Context, l *lab.Lab, probes []probe.Probe) error {
	n, err := r.node, error(nil)
	if !n.Facts.OwnMachine() && !n.Facts.Guest() && slices.Contains(l.Nodes(), lab.HostNode) {
		if n, err = l.Node(ctx, lab.HostNode); err != nil {
			return err
		}
	}
	few := slices.DeleteFunc(slices.Clone(probes), func(p probe.Probe) bool {
		return !slices.Contains(cipherProbes, p.Name())
	})
	r.watched = n.Name
	r.watches = &watches{lab: l, watchers: map[string]watcher{}, missing: map[string]string{}}
	return r.watches.open(ctx, l, n, few)
}

// cells are all, in the order shown.
func (r *cipherRig) cells() (cells []suited.Cell) {
	var threads []int
	for _, n := range r.Threads {
		if n = cmp.Or(n, r.threads); !slices.Contains(threads, n) {
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
			rates, err := r.once(ctx, c)
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
	long := int64(len(c.Together())) * int64(r.Seconds) * int64(time.Second)
	return one.Schedule(from+int64(time.Millisecond), from+long*19/20)
}

// once measures a cell once, and what is measured with it: rates by operation.
func (r *cipherRig) once(ctx context.Context, c suited.Cell) (map[string]float64, error) {
	long := time.Duration(r.Seconds) * time.Second
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(c.Together()))*long+lab.UsualSlack)
	defer cancel()
	if c.Library == suited.OpenSSL {
		out, err := host.Run(ctx, r.host, host.Command{Path: "openssl", Args: c.Command(r.Seconds)})
		if err != nil {
			return nil, err
		}
		s, err := suited.ParseSpeed(out)
		if err != nil {
			return nil, err
		}
		return s.Of(c)
	}
	verb := map[string]string{suited.Go: ciphers.VerbGo, suited.Kernel: ciphers.VerbKernel}[c.Library]
	var d ciphers.Done
	err := r.node.Agent.Invoke(ctx, verb, ciphers.Request{Algorithm: c.Algorithm, Operation: c.Operation,
		Block: c.Block, Threads: c.Threads, Ns: int64(long)}, &d)
	if err != nil {
		return nil, err
	}
	rate := float64(d.Count) / (float64(d.Ns) / 1e9) * float64(max(1, c.Block))
	if !(rate > 0) {
		return nil, fmt.Errorf("%d operations in %d ns", d.Count, d.Ns)
	}
	return map[string]float64{c.Operation: rate}, nil
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
	most := func(probe, stem string) (most float64) {
		table, _ := metrics.SamplesOf(data, probe)
		for _, c := range metrics.ColumnsOf(table, stem) {
			if v, ok := c.Curve.Largest(from, to); ok {
				most = max(most, v)
			}
		}
		return most
	}
	frequency := most("cpufreq", "frequency_hz")
	r.told = r.told || frequency > 0
	s.ClockHz = cmp.Or(frequency, r.rounds*most("clock", "loop_rate_best_hz"))
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
				return grew / float64(to-from) / float64(r.threads)
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
	d.CPU.ClockFrom = "not known: the kernel tells none, and it is estimated on x86 alone, not emulated"
	if i := slices.IndexFunc(d.Results, func(r suited.Result) bool { return r.ClockHz > 0 }); i >= 0 {
		d.CPU.ClockFrom = "cpufreq"
		if !r.told {
			d.CPU.ClockFrom = "estimated: six cycles for each round of a loop that is timed (probe clock)"
		}
	}
	d.Advice = append(suited.AdviseHardware(d.CPU), suited.Advise(d.Results)...)
}
