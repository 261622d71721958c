// Program crypto compares chokepoint crypto with openssl speed -elapsed -evp, typed by hand: pairs in an
// order that is drawn anew for each, of one repetition of one second each. It prints the median ratio with
// its interval for each algorithm, and fails where it is more than 3 % from 1. Then it measures once what the
// published tables of ciphers have, and fails where a row of theirs has no figure here.
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
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

const mostOff = 0.03

func main() { os.Exit(rig.Main("crypto", run)) }

func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("crypto", flag.ContinueOnError)
	pairs := flags.Int("pairs", 6, "pairs of each algorithm, at least 6")
	block := flags.Int("block", ciphers.Published, "bytes of a block")
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
	fmt.Fprintf(out, "chokepoint crypto ÷ openssl speed -elapsed -evp, %d bytes, one thread, %d pairs\n\n",
		*block, *pairs)
	fmt.Fprintln(out, "| algorithm | chokepoint, MB/s | by hand, MB/s | ratio | 95 % interval | pairs |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|")
	var missed []string
	for name := range strings.SplitSeq(*names, ",") {
		rates, err := rig.Measure(rig.Draw(*seed), *pairs, 2, func(_, i int) (float64, error) {
			if i == 0 {
				return ours(ctx, program, name, *block)
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
		if math.Abs(ratio.Median-1) > mostOff {
			missed = append(missed, fmt.Sprintf("%s: %.4f", name, ratio.Median))
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("more than 3 %% apart: %v", missed)
	}
	if !*tables {
		return nil
	}
	return published(ctx, program, out)
}

// tableRow is a row that published tables have, whatever the device.
type tableRow struct {
	algorithm, operation string
	block                int
}

// published measures each row of the published tables once and prints it beside theirs.
func published(ctx context.Context, p rig.Program, out io.Writer) error {
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
		a, known := ciphers.Named(r.algorithm)
		operation := r.operation
		if operation == "throughput" && known {
			operation = a.Operations[0]
		}
		result, err := measured(ctx, p, r.algorithm, max(r.block, 1), func(of string) bool {
			return of == operation
		})
		here := "–"
		if err != nil {
			missing = append(missing, fmt.Sprintf("%+v: %v", r, err))
		} else {
			here = unit.ScaleOf(result.Unit, result.Rate.Median).Text(result.Rate.Median)
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

// measured is what chokepoint measures of an algorithm in an operation that is wanted, as a stream where it
// has the choice.
func measured(ctx context.Context, p rig.Program, name string, block int,
	want func(operation string) bool) (r ciphers.Result, err error) {
	var d ciphers.Document
	said, err := p.Say(ctx, "crypto", "--algorithm", name, "--library", "openssl", "--block",
		strconv.Itoa(block), "--threads", "1", "--repeat", "1", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(said), &d)
	}
	if err != nil {
		return r, err
	}
	for _, r := range d.Results {
		if r.Mode != ciphers.ModeAEAD && want(r.Operation) {
			return r, nil
		}
	}
	return r, fmt.Errorf("chokepoint measured nothing: %+v", d.Missing)
}

// ours is the rate that chokepoint measures, in bytes per second.
func ours(ctx context.Context, p rig.Program, name string, block int) (float64, error) {
	r, err := measured(ctx, p, name, block, func(of string) bool { return of != ciphers.Decrypt })
	return r.Rate.Median, err
}

// shown is the figure that openssl speed prints for people: thousands of bytes per second.
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
