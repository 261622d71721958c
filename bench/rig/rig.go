// Package rig contains what the programs of bench share: how they start and end, the lab on which they
// measure, the order of comparisons, the program under test in its own directories, and a description of this
// machine.
package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// MinPairs is the minimum number of pairs, or blocks, for an order-statistic interval of 95 %.
const MinPairs = 6

// ErrUsage and ErrFailed are returned by a program that has already reported what is wrong: with its flags,
// or with what it checked.
var (
	ErrUsage  = errors.New("wrong flags")
	ErrFailed = errors.New("failed")
)

// Func is a program. It reads its flags, prints its results on out, and its progress on log.
type Func func(ctx context.Context, args []string, out, log io.Writer) error

// Main runs a program, or the role for which a lab has started it again, and returns the exit status.
func Main(name string, f Func) int {
	return orRole(func() int {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		switch err := f(ctx, os.Args[1:], os.Stdout, os.Stderr); {
		case err == nil:
			return 0
		case errors.Is(err, ErrUsage):
			return 2
		case !errors.Is(err, ErrFailed):
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		}

		return 1
	})
}

// Tests runs the tests of a package that makes labs, or the role for which a lab has started the test program
// again, and returns the exit status.
func Tests(m interface{ Run() int }) int { return orRole(m.Run) }

func orRole(otherwise func() int) int {
	args := os.Args[1:]
	handled, err := registry.Serve(args)
	switch {
	case !handled:
		return otherwise()
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s %s: %v\n", os.Args[0], args[0], err)
		return 1
	}

	return 0
}

// Parse reads the flags. Additional words, and values that ok refuses, are answered with the usage.
func Parse(flags *flag.FlagSet, args []string, log io.Writer, ok func() bool) error {
	flags.SetOutput(log)
	if flags.Parse(args) != nil {
		return ErrUsage
	}

	if flags.NArg() > 0 || !ok() {
		fmt.Fprintf(log, "%s: a value that cannot be, or a word too many: %q\n", flags.Name(), args)
		flags.Usage()
		return ErrUsage
	}

	return nil
}

// Measure does each of n things once per block, in a new random order each time, and returns the results
// block by block.
func Measure[T any](draw *rand.Rand, blocks, n int, once func(block, i int) (T, error)) ([][]T, error) {
	results := make([][]T, n)
	for block := range blocks {
		for _, i := range draw.Perm(n) {
			r, err := once(block, i)
			if err != nil {
				return nil, err
			}

			results[i] = append(results[i], r)
		}
	}
	return results, nil
}

// Column returns one figure of each result.
func Column[T any](results []T, of func(T) float64) []float64 {
	out := make([]float64, len(results))
	for i, r := range results {
		out[i] = of(r)
	}
	return out
}

// Middle returns the median of one figure.
func Middle[T any](results []T, of func(T) float64) float64 {
	return statistics.Median(Column(results, of))
}

// Draw returns the random source for the orders of a seed.
func Draw(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// Each joins two lists block by block.
func Each(a, b []float64, join func(a, b float64) float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = join(a[i], b[i])
	}
	return out
}

// Ratio returns the median of the pairs' ratios a ÷ b, with its interval.
func Ratio(a, b []float64) statistics.Value {
	return statistics.Summarise(Each(a, b, func(a, b float64) float64 { return a / b }))
}

// Interval formats a median with its interval as cells of a table, each divided by a scale.
func Interval(v statistics.Value, format string, scale float64) string {
	return fmt.Sprintf(format+" | "+format+" to "+format+" (%.1f %%) | %d", v.Median/scale, v.Low/scale,
		v.High/scale, 100*v.Level, v.N)
}

// Deviation returns the standard deviation of the values, divided by their mean.
func Deviation(values []float64) float64 {
	mean := statistics.Total(values) / float64(len(values))
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}

	return math.Sqrt(squares/float64(len(values))) / mean
}
