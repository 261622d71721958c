// Program oldnew runs built-in plans with two builds of chokepoint in turn, an old one and a new one, and
// prints the ratios new ÷ old of what they measure, with intervals: goodput, packets, round trips, and CPU
// time per gigabyte. It fails if a quantity, over all cells of a plan, is worse by more than a tolerance
// with its whole interval; and before that, if any built-in plan has other cells or another order than it
// had.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func main() { os.Exit(rig.Main("oldnew", run)) }

// quantities are compared where both builds have them. A bound of 2 % more is one of 2 % less for those of
// which less is better; the rate per CPU second is told as its inverse.
var quantities = [...]struct {
	metric, name, unit string
	scale              float64
	inverse, lower     bool
}{
	{"goodput_bps", "goodput", "Mbit/s", 1e6, false, false},
	{"packet_rate_pps", "packets", "kpps", 1e3, false, false},
	{"rtt_idle_p50_ns", "round trip, idle, median", "µs", 1e3, false, true},
	{"rtt_loaded_p50_ns", "round trip, loaded, median", "µs", 1e3, false, true},
	{"goodput_per_cpu_second_bps", "CPU time per GB", "s", 1. / 8e9, true, true},
}

// side is one of the two builds.
type side struct {
	rig.Program
	name string
}

type bench struct {
	sides     [2]side
	sets      []string
	blocks    int
	lab       string
	tolerance float64
	renamed   map[string]string // factors: an old name, its new one
	out       io.Writer
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	b := bench{out: out, renamed: map[string]string{}}
	flags := flag.NewFlagSet("oldnew", flag.ContinueOnError)
	old := flags.String("old", "", "the old chokepoint")
	now := flags.String("new", "", "the new one (default: built from the source here)")
	plans := flags.String("plans", "quick", "built-in plans to run, by commas")
	flags.IntVar(&b.blocks, "n", 8, "blocks, each with both builds once per plan, at least 6")
	flags.StringVar(&b.lab, "lab", "local", "kind of lab")
	flags.Float64Var(&b.tolerance, "tolerance", .02, "by which nothing may be worse")
	seed := flags.Uint64("seed", 1, "of the order within blocks; the plans take those from 1 on")
	flags.Func("set", "a setting of the plans, PATH=VALUE; may be repeated (default method.runs=1)",
		func(s string) error {
			b.sets = append(b.sets, "--set", s)
			return nil
		})
	flags.Func("renamed", "a factor that has another name now, OLD=NEW; may be repeated",
		func(s string) error {
			before, after, ok := strings.Cut(s, "=")
			if b.renamed[before] = after; !ok {
				return errors.New("want OLD=NEW")
			}
			return nil
		})
	if err := rig.Parse(flags, args, log, func() bool {
		return *old != "" && b.blocks >= rig.MinPairs && b.tolerance > 0
	}); err != nil {
		return err
	}
	if b.sets == nil {
		b.sets = []string{"--set", "method.runs=1"}
	}
	dir, err := os.MkdirTemp("", "chokepoint-oldnew-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i, path := range []string{*old, *now} {
		b.sides[i].name = []string{"old", "new"}[i]
		if b.sides[i].Program, err = rig.NewProgram(filepath.Join(dir, b.sides[i].name), path,
			os.Geteuid()); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%s; %d blocks, order drawn with seed %d; %s.\n", rig.Machine(), b.blocks, *seed,
		strings.Join(b.sets, " "))
	if err := b.samePlans(ctx); err != nil {
		return err
	}
	draw, worse := rig.Draw(*seed), false
	for _, plan := range strings.Split(*plans, ",") {
		runs, err := rig.Measure(draw, b.blocks, 2, func(block, i int) (cells, error) {
			cells, err := b.measure(ctx, b.sides[i], plan, block+1)
			if err != nil {
				return nil, fmt.Errorf("%s, block %d, %s: %w", plan, block+1, b.sides[i].name, err)
			}
			fmt.Fprintf(log, "%s, block %d, %s: %d cells\n", plan, block+1, b.sides[i].name, len(cells))
			return cells, nil
		})
		if err != nil {
			return err
		}
		worse = b.table(plan, runs) || worse
	}
	if worse {
		return rig.ErrFailed
	}
	return nil
}

// samePlans holds each built-in plan of the old build to the same cells, and trials in the same order.
func (b *bench) samePlans(ctx context.Context) error {
	list, err := b.sides[0].Say(ctx, "plan", "list", "--json")
	if err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(list) {
		var head struct{ Name string }
		if err := json.Unmarshal([]byte(line), &head); err != nil {
			return fmt.Errorf("plan list: %w", err)
		}
		var cells, rows [2][]string
		for i, s := range b.sides {
			said, err := s.Say(ctx, "plan", "expand", head.Name, "--seed", "7", "--json")
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			var e struct {
				Cells []record.Factors
				Rows  []struct {
					ID, Kind string
					Factors  record.Factors
				}
			}
			if err := json.Unmarshal([]byte(said), &e); err != nil {
				return fmt.Errorf("plan expand %s: %w", head.Name, err)
			}
			for _, c := range e.Cells {
				cells[i] = append(cells[i], b.today(c).Key())
			}
			for _, r := range e.Rows {
				rows[i] = append(rows[i], r.ID+" "+r.Kind+" "+b.today(r.Factors).Key())
			}
		}
		if !slices.Equal(cells[0], cells[1]) {
			return fmt.Errorf("plan %s has other cells: old %q, new %q", head.Name, cells[0], cells[1])
		}
		if !slices.Equal(rows[0], rows[1]) {
			return fmt.Errorf("plan %s has other rows: old %q, new %q", head.Name, rows[0], rows[1])
		}
		n++
	}
	fmt.Fprintf(b.out, "\n%d built-in plans have the same cells and the same order of trials.\n", n)
	return nil
}

// today gives the factors of the old build their present names.
func (b *bench) today(factors record.Factors) record.Factors {
	out := record.Factors{}
	for name, level := range factors {
		out[cmp.Or(b.renamed[name], name)] = level
	}
	return out
}

// cells are what the cells of a run came to, metric by metric.
type cells map[string]map[string]float64

// measure runs a plan with one build.
func (b *bench) measure(ctx context.Context, s side, plan string, seed int) (cells, error) {
	args := slices.Concat([]string{"run", plan, "--lab", b.lab, "--seed", fmt.Sprint(seed)}, b.sets)
	_, err := s.Say(ctx, args...)
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == exitFailedTrials) {
		return nil, err
	}
	said, err := s.Say(ctx, "show", "--json", "latest")
	if err != nil {
		return nil, err
	}
	var doc struct {
		Cells []struct {
			Factors record.Factors
			Metrics map[string]struct{ Median float64 }
		}
	}
	if err := json.Unmarshal([]byte(said), &doc); err != nil {
		return nil, fmt.Errorf("show --json: %w", err)
	}
	all := cells{}
	for _, c := range doc.Cells {
		key := b.today(c.Factors).Key()
		all[key] = map[string]float64{}
		for name, v := range c.Metrics {
			all[key][name] = v.Median
		}
	}
	return all, nil
}

// exitFailedTrials is chokepoint's exit code where trials failed, which then have no numbers.
const exitFailedTrials = 3

// table prints the ratios of a plan, of each cell and over all, and says whether one of the latter is
// worse.
func (b *bench) table(plan string, runs [][]cells) (worse bool) {
	all := cells{}
	for _, run := range slices.Concat(runs...) {
		maps.Copy(all, run)
	}
	names := slices.Sorted(maps.Keys(all))
	common := commonWords(names)
	fmt.Fprintf(b.out, "\nPlan %s; in every cell: %s.\n\n| cell | quantity | old | new | new ÷ old | "+
		"interval | n | |\n"+
		"|---|---|---:|---:|---:|---:|---:|---|\n", plan, strings.Join(common, " "))
	for _, q := range quantities {
		logs := make([][]float64, b.blocks) // per block, of all cells
		for _, cell := range names {
			var old, now []float64
			for block := range b.blocks {
				o, n := runs[0][block][cell][q.metric], runs[1][block][cell][q.metric]
				if !(o > 0 && n > 0) {
					continue // a trial failed, or this cell has no such number
				}
				if q.inverse {
					o, n = 1/o, 1/n
				}
				old, now = append(old, o), append(now, n)
				logs[block] = append(logs[block], math.Log(n/o))
			}
			if len(old) > 0 {
				own := slices.DeleteFunc(strings.Fields(cell),
					func(w string) bool { return slices.Contains(common, w) })
				b.row(strings.Join(own, " "), q.name, rig.Ratio(now, old), q.lower,
					fmt.Sprintf("%.4g %s", statistics.Median(old)/q.scale, q.unit),
					fmt.Sprintf("%.4g %s", statistics.Median(now)/q.scale, q.unit))
			}
		}
		logs = slices.DeleteFunc(logs, func(l []float64) bool { return len(l) == 0 })
		if len(logs) > 0 {
			means := rig.Column(logs, func(l []float64) float64 {
				return math.Exp(statistics.Total(l) / float64(len(l)))
			})
			worse = b.row("**all**", q.name, statistics.Summarise(means), q.lower, "", "") || worse
		}
	}
	return worse
}

// row prints a ratio, and says whether its whole interval is worse than the tolerance admits.
func (b *bench) row(cell, quantity string, v statistics.Value, lower bool, old, now string) (worse bool) {
	word := b.verdict(v, lower)
	fmt.Fprintf(b.out, "| %s | %s | %s | %s | %.3f | %.3f–%.3f | %d | %s |\n", cell, quantity, old, now,
		v.Median, v.Low, v.High, v.N, word)
	return word == "worse"
}

func (b *bench) verdict(v statistics.Value, lower bool) string {
	best, worst := v.High, v.Low
	if lower {
		best, worst = 1/v.Low, 1/v.High
	}
	switch least := 1 - b.tolerance; {
	case best < least:
		return "worse"
	case worst >= least:
		return "no worse"
	}
	return "cannot tell"
}

// commonWords are those that all cells have.
func commonWords(cells []string) []string {
	if len(cells) < 2 {
		return nil
	}
	return slices.DeleteFunc(strings.Fields(cells[0]), func(w string) bool {
		has := func(cell string) bool { return slices.Contains(strings.Fields(cell), w) }
		return slices.ContainsFunc(cells, func(cell string) bool { return !has(cell) })
	})
}
