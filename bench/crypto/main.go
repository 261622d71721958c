// Program crypto compares engine cipher with openssl speed -elapsed -evp, run by hand: in pairs, each in
// random order, of one repetition of one second each. It prints the median ratio with its interval for each
// algorithm, and fails if it is more than 3 % from 1. Then it measures once each row of the published tables
// of ciphers, and fails if a row has no figure here.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

const maxOff = 0.03

func main() { os.Exit(rig.Main("crypto", run)) }

func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("crypto", flag.ContinueOnError)
	pairs := flags.Int("pairs", 6, "pairs of each algorithm, at least 6")
	block := flags.Int("block", cipher.Published, "bytes of a block")
	seed := flags.Uint64("seed", 1, "of the order")
	names := flags.String("algorithms", "aes-128-gcm,aes-256-cbc,chacha20-poly1305,sha256",
		"which, with commas")
	tables := flags.Bool("tables", true, "measure the rows of the published tables as well")
	binary := flags.String("binary", "", "the built chokepoint; left out, it is built")
	ok := func() bool { return *pairs >= rig.MinPairs && *block > 0 }
	if err := rig.Parse(flags, args, log, ok); err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "crypto-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := rig.NewProgram(dir, *binary, os.Geteuid())
	if err != nil {
		return err
	}

	t := trials{program, dir}
	fmt.Fprintf(out, "chokepoint ÷ openssl speed -elapsed -evp, %d bytes, one thread, %d pairs\n\n",
		*block, *pairs)
	fmt.Fprintln(out, "| algorithm | chokepoint, MB/s | by hand, MB/s | ratio | 95 % interval | pairs |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|")
	var missed []string
	for name := range strings.SplitSeq(*names, ",") {
		rates, err := rig.Measure(rig.Draw(*seed), *pairs, 2, func(_, i int) (float64, error) {
			if i == 0 {
				return t.measured(ctx, name, "", *block)
			}
			return byHand(ctx, name, *block)
		})
		if err != nil {
			return err
		}

		ratio := rig.Ratio(rates[0], rates[1])
		same := func(v float64) float64 { return v / 1e6 }
		fmt.Fprintf(out, "| %s | %.1f | %.1f | %s |\n", name, rig.Middle(rates[0], same),
			rig.Middle(rates[1], same), rig.Interval(ratio, "%.4f", 1))
		if math.Abs(ratio.Median-1) > maxOff {
			missed = append(missed, fmt.Sprintf("%s: %.4f", name, ratio.Median))
		}
	}

	if len(missed) > 0 {
		return fmt.Errorf("more than 3 %% apart: %v", missed)
	}

	if !*tables {
		return nil
	}

	return t.published(ctx, out)
}

// Trials are made by a program, with plans in a directory.
type trials struct {
	program rig.Program
	dir     string
}

// tableRow is a row of published tables, whatever the device.
type tableRow struct {
	algorithm, operation string
	block                int
}

// published measures each row of the published tables once and prints both figures.
func (t trials) published(ctx context.Context, out io.Writer) error {
	c, err := catalogue.Published()
	if err != nil {
		return err
	}

	var rows []tableRow
	var devices []string
	theirs := map[string]map[tableRow]string{}
	for _, s := range c.Speeds {
		r := tableRow{s.Algorithm, s.Operation, s.Block}
		if !slices.Contains(rows, r) {
			rows = append(rows, r)
		}

		if theirs[s.Device] == nil {
			theirs[s.Device], devices = map[tableRow]string{}, append(devices, s.Device)
		}

		if s.Value != nil {
			theirs[s.Device][r] = unit.ScaleOf(s.Unit, *s.Value).Text(*s.Value)
		}
	}

	fmt.Fprintf(out, "\nThe %d rows that published tables have, here once, beside theirs\n\n", len(rows))
	fmt.Fprintf(out, "| algorithm | operation | block | here | %s |\n|---|---|---|---%s|\n",
		strings.Join(devices, " | "), strings.Repeat("|---", len(devices)))
	var missing []string
	for _, r := range rows {
		operation := r.operation
		if operation == "throughput" {
			operation = ""
		}

		rate, err := t.measured(ctx, r.algorithm, operation, max(r.block, 1))
		here := "–"
		if err != nil {
			missing = append(missing, fmt.Sprintf("%+v: %v", r, err))
		} else {
			base := "op/s"
			if r.block > 0 {
				base = "B/s"
			}

			here = unit.ScaleOf(base, rate).Text(rate)
		}

		cells := []string{r.algorithm, r.operation, strconv.Itoa(r.block), here}
		for _, d := range devices {
			cells = append(cells, cmp.Or(theirs[d][r], "–"))
		}

		fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
	}

	if len(missing) > 0 {
		return fmt.Errorf("not measured: %v", missing)
	}

	return nil
}

// measured times an algorithm in an operation by chokepoint, once, as a stream if that is possible; in bytes
// or operations per second. Without an operation it uses the algorithm's own.
func (t trials) measured(ctx context.Context, name, operation string, block int) (float64, error) {
	a, known := cipher.Named(name)
	if !known {
		return 0, fmt.Errorf("algorithm %q is not known", name)
	}

	cell := cipher.Cell{
		Library:   cipher.OpenSSL,
		Algorithm: name,
		Operation: cmp.Or(operation, a.Operations[0]),
		Threads:   1,
	}
	text := "{engine: cipher, algorithm: " + name + ", operation: " + cell.Operation
	metric := metrics.CipherOps
	scale := 1.0
	if a.Blocks() {
		text += fmt.Sprintf(", block_size: %d", block)
		metric = metrics.CipherRate
		scale = 8
	}

	if a.AEAD {
		text += ", cipher_mode: " + cipher.ModeEVP
	}

	plan := "name: crypto\nmethod: {runs: 1, duration: 1s, warmup: 0, cooldown: 0}\n" +
		"measure: {latency_idle: off, latency_loaded: false, verify: false}\ninclude:\n- " + text + "}\n"
	file := filepath.Join(t.dir, "plan.yaml")
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		return 0, err
	}

	said, err := t.program.Say(ctx, "run", file, "--json")
	if err != nil {
		return 0, err
	}

	lines := strings.Split(strings.TrimSpace(said), "\n")
	var d struct {
		Cells []struct {
			Metrics map[string]statistics.Value
		}
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &d); err != nil {
		return 0, err
	}

	if len(d.Cells) != 1 || d.Cells[0].Metrics[metric].N != 1 {
		return 0, fmt.Errorf("chokepoint measured no %s of %s", metric, name)
	}

	return d.Cells[0].Metrics[metric].Median / scale, nil
}

// shown matches the figure that openssl speed prints for people: thousands of bytes per second.
var shown = regexp.MustCompile(`(?m)\s([0-9.]+)k\s*$`)

func byHand(ctx context.Context, name string, block int) (float64, error) {
	said, err := exec.CommandContext(ctx, "openssl", "speed", "-elapsed", "-seconds", "1", "-bytes",
		strconv.Itoa(block), "-evp", name).Output()
	if err != nil {
		return 0, fmt.Errorf("openssl speed -evp %s: %w", name, err)
	}

	m := shown.FindSubmatch(said)
	if m == nil {
		return 0, errors.New("openssl speed prints no figure")
	}

	v, err := strconv.ParseFloat(string(m[1]), 64)
	return v * 1000, err
}
