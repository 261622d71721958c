package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
)

// searchesCommand holds how far the rates that repeated searches of a cell found lie apart, from the least
// to the greatest, by their median; or any other metric of repeated trials.
func searchesCommand(args []string, _ io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("searches", flag.ContinueOnError)
	least := flags.Int("searches", 10, "searches of each cell, at least")
	most := flags.Float64("spread", .03, "the greatest spread that is allowed; 0 = it is only printed")
	metrics := flags.String("metrics", "throughput_ndr_pps,throughput_pdr_pps", "what is looked at")
	doc, err := readDocument(flags, args)
	if err != nil {
		return err
	}
	return checkSearches(doc, strings.Split(*metrics, ","), *least, *most, out).err()
}

func checkSearches(doc document, metrics []string, least int, most float64, out io.Writer) (f faults) {
	judged := 0
	for _, c := range doc.Cells {
		for _, name := range slices.Sorted(maps.Keys(c.Metrics)) {
			v := c.Metrics[name]
			if !slices.Contains(metrics, name) {
				continue
			}
			judged++
			if v.N < least || len(v.Values) != v.N || v.Median <= 0 {
				f.add("%s of %q: %d values where %d are wanted, median %v", name, c.Label, len(v.Values),
					least, v.Median)
				continue
			}
			spread := (slices.Max(v.Values) - slices.Min(v.Values)) / v.Median
			fmt.Fprintf(out, "note: %s of %q: median %.4g, %d values within %.2f %%, standard deviation "+
				"%.2f %%\n", name, c.Label, v.Median, v.N, 100*spread, 100*rig.Deviation(v.Values, 1))
			f.must(most == 0 || spread <= most, "%s of %q: %d values lie %.2f %% apart, %.2f %% are allowed",
				name, c.Label, v.N, 100*spread, 100*most)
		}
	}
	f.must(judged > 0, "no cell has %s", strings.Join(metrics, " or "))
	return f
}
