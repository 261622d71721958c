package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/rest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

type cryptoOptions struct {
	speed    trial.CipherSpeed
	machines record.Machines // the router alone
	attach   string
	node     string
}

// Bounds of what is asked for of openssl.
const (
	maxCryptoSeconds = 60
	maxRepetitions   = 1000
)

func newCryptoCommand(p *program) *cobra.Command {
	var o cryptoOptions
	cmd := &cobra.Command{
		Use:   "crypto [--on MACHINE | --attach LAB --node NODE] [--json]",
		Short: "Measure a CPU's ciphers, and say which cipher and which VPN suit it",
		Long: "Measure how fast a machine's ciphers, hashes and keys are, through the openssl that\n" +
			"is installed there, Go's libraries where none is, and the kernel's own crypto; with\n" +
			"the clock and heat beside it. Each repetition goes through all of them in an order\n" +
			"of its own. It says which cipher and which VPN suit the CPU. All of it takes some\n" +
			"13 minutes; --algorithm, --block and --repeat make it shorter. Nothing is stored:\n" +
			"that does chokepoint run crypto, for a report and for comparisons.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			return runCrypto(cmd.Context(), o, p)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.machines.Router.At, "on", record.LocalMachine,
		"measure on `MACHINE`: local, or ssh://[USER@]HOST[:PORT]")
	f.StringVar(&o.attach, "attach", "", "measure in the `LAB` that lab up has made")
	f.StringVar(&o.node, "node", "router", "`NODE` of that lab")
	f.StringSliceVar(&o.speed.Algorithms, "algorithm", ciphers.Names(), "`NAME` of an algorithm")
	f.StringSliceVar(&o.speed.Libraries, "library", nil,
		"`NAME` of what does the work: openssl, go or kernel (default openssl, or go without it; kernel)")
	f.IntSliceVar(&o.speed.Blocks, "block", []int{ciphers.Published, ciphers.Packet, ciphers.Small},
		"size of a block in `BYTES`")
	f.IntSliceVar(&o.speed.Threads, "threads", []int{1, 0}, "`N` at once; 0: one for each CPU")
	f.IntVar(&o.speed.Seconds, "seconds", 1, "length of a repetition, `N` seconds")
	f.IntVar(&o.speed.Repetitions, "repeat", 6, "`N` repetitions; an interval needs 6")
	f.Uint64Var(&o.speed.Seed, "seed", 0, "`N` decides the order (default: drawn)")
	f.StringVar(&o.machines.Router.Driver, "driver", "", "by commands of its shell, through `DRIVER`, such "+
		"as linux")
	addSSHFlags(f, &o.machines)
	cmd.MarkFlagsMutuallyExclusive("on", "attach")
	completeOne(cmd, "algorithm", ciphers.Names())
	completeOne(cmd, "library", ciphers.Libraries())
	return addJSON(cmd, "print one JSON document")
}

func (o *cryptoOptions) check(cmd *cobra.Command) error {
	if err := judgeMachine(o.machines.Router.At); err != nil {
		return &usageError{"--on: " + err.Error(), check.HintOf(err)}
	}
	if rest.Addressed(o.machines.Router.At) {
		return &usageError{"--on: a router that is reached by https runs no program of ours", ""}
	}
	s := &o.speed
	if !cmd.Flags().Changed("seed") {
		s.Seed = rand.Uint64() >> 11 // that JSON's numbers hold
	}
	for flag, list := range map[string][2][]string{"algorithm": {s.Algorithms, ciphers.Names()},
		"library": {s.Libraries, ciphers.Libraries()}} {
		for _, name := range list[0] {
			if !slices.Contains(list[1], name) {
				return &usageError{fmt.Sprintf("--%s %q is not known", flag, name), "one of: " +
					strings.Join(list[1], ", ")}
			}
		}
	}
	switch {
	case cmd.Flags().Changed("node") && o.attach == "":
		return &usageError{"--node without --attach", "a machine is named by --on"}
	case len(s.Algorithms) == 0:
		return &usageError{"--algorithm names none", "one of: " + strings.Join(ciphers.Names(), ", ")}
	}
	for _, b := range []struct {
		flag        string
		given       []int
		least, most int
		what        string
	}{
		{"block", s.Blocks, 1, ciphers.MaxBlock, "bytes of a block"},
		{"threads", s.Threads, 0, ciphers.MaxThreads, "threads at once; 0 is one for each CPU"},
		{"seconds", []int{s.Seconds}, 1, maxCryptoSeconds, "length of a repetition in seconds"},
		{"repeat", []int{s.Repetitions}, 1, maxRepetitions, "repetitions; an interval needs 6"},
	} {
		if len(b.given) == 0 {
			return &usageError{fmt.Sprintf("--%s is empty", b.flag), b.what}
		}
		for _, n := range b.given {
			if n < b.least || n > b.most {
				return &usageError{fmt.Sprintf("--%s %d is not from %d to %d", b.flag, n, b.least, b.most),
					b.what}
			}
		}
	}
	s.Algorithms, s.Libraries, s.Blocks = distinct(s.Algorithms), distinct(s.Libraries), distinct(s.Blocks)
	_, err := wrongMachines(o.machines, flagOf)
	return err
}

// distinct keeps the first of each.
func distinct[T comparable](list []T) (out []T) {
	for _, v := range list {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

func runCrypto(ctx context.Context, o cryptoOptions, p *program) (err error) {
	if err := prepare(p.dirs.Runtime); err != nil {
		return err
	}
	defer clearRuntime(p.dirs)
	var l *lab.Lab
	if o.attach != "" {
		l, err = lab.Attach(labsDir(p.dirs), o.attach, registry.LabParts(), nil)
	} else {
		l, err = p.reach(ctx, "crypto", &o.machines)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close(context.WithoutCancel(ctx))) }()
	of := o.node
	if o.attach == "" {
		of = l.Topology.Routers[0]
	} else if !slices.Contains(l.Nodes(), of) {
		return &usageError{fmt.Sprintf("--node %q: lab %s has none of that name", of, o.attach),
			"nodes: " + strings.Join(l.Nodes(), ", ")}
	}
	d, err := o.speed.Measure(ctx, l, of, node.Probes(), func(long time.Duration) {
		p.note("this takes up to %s", unit.Seconds(long))
	})
	if err != nil {
		return err
	}
	if o.attach == "" {
		d.Node = o.machines.Router.At
	}
	if err := p.document(d, cryptoText(d)); err != nil || len(d.Results) > 0 {
		return err
	}
	return &exitError{codeFailed, errors.New("nothing was measured")}
}

// cryptoText is the document for people: a table of each library, which are never beside each other, a chart
// of what a packet costs, and the advice.
func cryptoText(d *ciphers.Document) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s\n", d.Node, cmp.Or(d.CPU.Model, "a CPU that is not named"),
		unit.Count(d.CPU.Threads, "thread"))
	for _, f := range d.CPU.Features {
		fmt.Fprintf(&b, "  %s: %s\n", f.Name, cmp.Or(strings.Join(f.Flags, " "),
			"none that the kernel tells"))
	}
	fmt.Fprintf(&b, "  clock: %s\n", d.CPU.ClockFrom)
	for _, library := range ciphers.Libraries() {
		b.WriteString(cryptoTable(d, library))
		b.WriteString(cryptoChart(d, library))
	}
	missing := reasonsMissing(d.Missing)
	for _, why := range slices.Sorted(maps.Keys(missing)) {
		fmt.Fprintf(&b, "\nnot measured: %s: %s\n", strings.Join(missing[why], ", "), why)
	}
	if len(d.Advice) > 0 {
		b.WriteString("\nadvice\n")
	}
	for _, a := range d.Advice {
		fmt.Fprintf(&b, "  %s: %s\n", strings.TrimSpace(a.Kind+" "+bracketed(a.Library)), a.Text)
	}
	return b.String()
}

func bracketed(text string) string {
	if text == "" {
		return ""
	}
	return "(" + text + ")"
}

func cryptoTable(d *ciphers.Document, library string) string {
	rows := [][]string{{"algorithm", "operation", "block", "threads", "median", "interval", "cycles", "clock",
		"heat", "doubts"}}
	for _, r := range d.Results {
		if r.Library != library {
			continue
		}
		cycles, block, clock, heat := "–", "–", "–", "–"
		switch {
		case r.CyclesPerByte > 0:
			cycles = unit.Grouped(r.CyclesPerByte) + "/B"
		case r.CyclesPerOp > 0:
			cycles = unit.Grouped(r.CyclesPerOp) + "/op"
		}
		if r.Block > 0 {
			block = fmt.Sprint(r.Block)
		}
		if r.ClockHz > 0 {
			clock = unit.ScaleOf("Hz", r.ClockHz).Text(r.ClockHz)
		}
		if r.TemperatureC > 0 {
			heat = unit.Significant(r.TemperatureC, 3) + " °C"
		}
		base, times := shownIn(r)
		scale := unit.ScaleOf(base, times*r.Rate.Median)
		var doubts []string
		for _, doubt := range r.Doubts {
			if doubt.Kind != ciphers.DoubtFew { // which the head says of all
				doubts = append(doubts, doubt.Kind)
			}
		}
		rows = append(rows, []string{r.Algorithm, strings.TrimSpace(r.Operation + " " + bracketed(r.Mode)),
			block, fmt.Sprint(r.Threads), scale.Text(times * r.Rate.Median), scale.Number(times*r.Rate.Low) +
				" – " + scale.Number(times*r.Rate.High), cycles, clock, heat, strings.Join(doubts, ", ")})
	}
	if len(rows) == 1 {
		return ""
	}
	few := ""
	if d.Repetitions < statistics.MinInterval {
		few = ", too few for an interval"
	}
	return fmt.Sprintf("\n%s: %s; %s of %d s%s\n%s", library, d.Versions[library],
		unit.Count(d.Repetitions, "repetition"), d.Seconds, few, trimmed(table(rows, 0)))
}

// shownIn is the unit that rates are shown in, as reports and the advice have them, and how many of it make
// one of the result's own.
func shownIn(r ciphers.Result) (base string, times float64) {
	if r.Block > 0 {
		return "bit/s", 8
	}
	return r.Unit, 1
}

// trimmed is a text without blanks at the ends of its lines.
func trimmed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// chartWidth is that of the longest bar.
const chartWidth = 40

// bar is one of a chart, of a share of the longest.
func bar(share float64) string { return strings.Repeat("█", max(1, int(chartWidth*share+0.5))) }

// cryptoChart has a bar for each way of encrypting a packet with one thread.
func cryptoChart(d *ciphers.Document, library string) string {
	var shown []ciphers.Result
	most := 0.0
	for _, r := range d.Results {
		if r.Library == library && r.Threads == 1 && r.Operation == ciphers.Encrypt &&
			r.Block == ciphers.Packet {
			shown, most = append(shown, r), max(most, r.Rate.Median)
		}
	}
	if len(shown) < 2 {
		return ""
	}
	rows := each(shown, func(r ciphers.Result) []string {
		return []string{"  " + r.Algorithm, r.Mode, bar(r.Rate.Median / most),
			unit.Bitrate(8 * r.Rate.Median).String()}
	})
	return fmt.Sprintf("\n%s, encrypting blocks of %d bytes with one thread\n%s", library, ciphers.Packet,
		table(rows, 0))
}

// reasonsMissing names by reason what could not be measured.
func reasonsMissing(missing []ciphers.Missing) map[string][]string {
	names := map[string][]string{}
	for _, m := range missing {
		if name := m.Library + " " + m.Algorithm; !slices.Contains(names[m.Why], name) {
			names[m.Why] = append(names[m.Why], name)
		}
	}
	return names
}
