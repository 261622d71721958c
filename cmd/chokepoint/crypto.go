package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// cryptoOptions select the ciphers to measure, and where.
type cryptoOptions struct {
	algorithms  []string
	libraries   []string
	blocks      []int
	threads     []int // 0: one for each CPU
	seconds     int   // of a trial
	repetitions int
	seed        uint64 // of the order
	full        bool
	asked       bool // for certain ciphers, so decrypting and verifying are measured too

	app.RunOptions
	machines record.Machines // the router alone
	node     string
}

// Bounds of a request to openssl.
const (
	maxCryptoSeconds = 60
	maxRepetitions   = 1000
)

// firstAnswer names the ciphers that a VPN may choose from, which take a minute to measure.
var firstAnswer = [...]string{"aes-128-gcm", "aes-256-gcm", "chacha20-poly1305"}

func newCryptoCommand(p *program) *cobra.Command {
	var o cryptoOptions
	cmd := &cobra.Command{
		Use:   "crypto",
		Short: "Measure a CPU's ciphers, and recommend a cipher and a VPN",
		Long: `Measure how fast a machine's ciphers are, with the installed openssl and with Go's
libraries, and recommend a cipher and a VPN for the CPU. Within a minute it measures
the ciphers that a VPN can choose from, six times each, in VPN-sized packets. --full
measures all ciphers, hashes and keys, in blocks of three sizes, with one thread and
with one per CPU, in about 15 minutes. --algorithm, --library, --block, --threads,
--seconds and --repeat make your own selection. The result is a stored run, for show,
report, compare and catalog add.`,
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
	f.StringVar(&o.Attach, "attach", "", "measure in this `LAB`, started by lab up")
	f.StringVar(&o.node, "node", "router", "`NODE` of that lab")
	f.BoolVar(&o.full, "full", false, "measure everything, in about 15 minutes")
	f.StringSliceVar(&o.algorithms, "algorithm", firstAnswer[:], "`NAME` of an algorithm")
	f.StringSliceVar(&o.libraries, "library", []string{cipher.OpenSSL, cipher.Go},
		"`NAME` of a library: openssl, go or kernel")
	f.IntSliceVar(&o.blocks, "block", []int{cipher.Packet}, "size of a block in `BYTES`")
	f.IntSliceVar(&o.threads, "threads", []int{1}, "`N` threads; 0: one per CPU")
	f.IntVar(&o.seconds, "seconds", 1, "length of a repetition, `N` seconds")
	f.IntVar(&o.repetitions, "repeat", 6, "`N` repetitions; an interval needs 6")
	f.Uint64Var(&o.seed, "seed", 0, "order the cells by this number `N` (default: random)")
	f.StringVar(&o.machines.Router.Driver, "driver", "", "measure through its shell, with `DRIVER`, such "+
		"as linux")
	addSSHFlags(f, &o.machines)
	addRunOutput(cmd, &o.Report)
	cmd.MarkFlagsMutuallyExclusive("on", "attach")
	for _, chosen := range []string{"algorithm", "library", "block", "threads"} {
		cmd.MarkFlagsMutuallyExclusive("full", chosen)
	}

	completeOne(cmd, "algorithm", cipher.Names())
	completeOne(cmd, "library", cipher.Libraries())
	return cmd
}

func (o *cryptoOptions) check(cmd *cobra.Command) error {
	if err := app.CheckPlace(o.machines.Router.At); err != nil {
		return app.Usage(check.HintOf(err), "--on: %v", err)
	}

	if !cmd.Flags().Changed("seed") {
		o.seed = uint64(rand.Uint32()) // short enough to be typed again
	}

	o.asked = cmd.Flags().Changed("algorithm")
	if o.full {
		o.algorithms = cipher.Names()
		o.libraries = []string{cipher.OpenSSL}
		o.asked = true
		o.blocks = []int{cipher.Published, cipher.Packet, cipher.Small}
		o.threads = []int{1, 0}
	}

	if cmd.Flags().Changed("node") && o.Attach == "" {
		return app.Usage("a machine is named by --on", "--node without --attach")
	}

	for _, w := range []struct {
		flag       string
		given, all []string
	}{{"algorithm", o.algorithms, cipher.Names()}, {"library", o.libraries, cipher.Libraries()}} {
		if len(w.given) == 0 {
			return app.Usage("one of: "+list(w.all), "--%s names none", w.flag)
		}

		for _, name := range w.given {
			if err := known("--"+w.flag+" %q is not known", name, "one of", w.all...); err != nil {
				return err
			}
		}
	}

	for _, b := range []struct {
		flag     string
		given    []int
		min, max int
		what     string
	}{
		{"block", o.blocks, 1, cipher.MaxBlock, "bytes of a block"},
		{"threads", o.threads, 0, cipher.MaxThreads, "threads at once; 0 is one for each CPU"},
		{"seconds", []int{o.seconds}, 1, maxCryptoSeconds, "length of a repetition in seconds"},
		{"repeat", []int{o.repetitions}, 1, maxRepetitions, "repetitions; an interval needs 6"},
	} {
		if len(b.given) == 0 {
			return app.Usage(b.what, "--%s is empty", b.flag)
		}

		for _, n := range b.given {
			if err := between(b.what, b.flag, n, b.min, b.max); err != nil {
				return err
			}
		}
	}

	o.algorithms, o.libraries, o.blocks = distinct(o.algorithms), distinct(o.libraries), distinct(o.blocks)
	if _, err := app.WrongMachines(o.machines, flagOf); err != nil {
		return err
	}

	return htmlFile(o.Report)
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

func runCrypto(ctx context.Context, o cryptoOptions, p *program) error {
	pl, err := app.ReadPlan("crypto", o.planText(), app.Peer{})
	if err != nil {
		return err
	}

	if err := app.Absolute(app.PathsOf(&o.machines)...); err != nil {
		return err
	}

	on := labOptions{kind: record.LabLocal}
	if o.Attach == "" {
		on.machines = o.machines
	}

	head := p.NewRun(pl)
	on.describe(&head)
	return p.result(p.Run(ctx, pl, head, o.RunOptions))
}

// planText returns the plan for the options: ciphers first, then hashes and keys.
func (o cryptoOptions) planText() string {
	var b builder
	b.printf("name: crypto\ndescription: How fast the ciphers of a CPU are.\n"+
		"method: {duration: %ds, warmup: 0, cooldown: 0, runs: %d, seed: %d}\n"+
		"measure: {latency_idle: off, latency_loaded: false, verify: false}\ninclude:\n", o.seconds,
		o.repetitions, o.seed)
	entry := func(libraries, algorithms []string, rest string) {
		b.printf("- {engine: cipher, node: %s, library: [%s], algorithm: [%s]%s}\n", o.node,
			list(libraries), list(algorithms), rest)
	}
	var groups [3][]string // with two directions, of blocks in one, of none
	var signing []string
	for _, name := range o.algorithms {
		a, _ := cipher.Named(name) // check has read it
		switch {
		case slices.Contains(a.Operations, cipher.Decrypt):
			groups[0] = append(groups[0], name)
		case a.Blocks():
			groups[1] = append(groups[1], name)
		default:
			groups[2] = append(groups[2], name)
		}

		if slices.Contains(a.Operations, cipher.Verify) {
			signing = append(signing, name)
		}
	}

	threads := ", threads: [" + list(each(o.threads, threadsLevel)) + "]"
	blocks := ", block_size: [" + list(each(o.blocks, strconv.Itoa)) + "]"
	operations := ", operation: encrypt"
	if o.asked {
		operations = ", operation: [encrypt, decrypt]"
	}

	for i, rest := range []string{operations + blocks + threads, blocks + threads, threads} {
		if len(groups[i]) > 0 {
			entry(o.libraries, groups[i], rest)
		}
	}

	if len(signing) > 0 {
		entry(o.libraries, signing, ", operation: verify"+threads)
	}

	if o.full { // Go's library is what WireGuard in userspace uses; the kernel's crypto is what IPsec uses
		entry([]string{cipher.Go, cipher.Kernel}, []string{"aes-128-gcm", "chacha20-poly1305"}, "")
	}

	return b.String()
}

func threadsLevel(n int) string {
	if n == 0 {
		return cipher.AllThreads
	}
	return strconv.Itoa(n)
}

// trimmed returns text without trailing blanks on its lines.
func trimmed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// chartWidth is the length of the longest bar, in characters.
const chartWidth = 40

// bar draws a bar as long as its share of the longest.
func bar(share float64) string { return strings.Repeat("█", max(1, int(chartWidth*share+0.5))) }
