package document

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// minSearches is the fewest values of a cell whose spread is checked.
const minSearches = 10

var (
	maxSpread = flag.Float64("spread", .03, "max spread of the values by their median; 0 = only print it")
	metrics   = flag.String("metrics", "throughput_ndr_pps,throughput_pdr_pps", "metrics to check")
)

// TestSearches checks how far apart repeated searches of a cell, or other repeated trials, lie.
func TestSearches(t *testing.T) {
	checked := 0
	for _, c := range read(t).Cells {
		for _, name := range slices.Sorted(maps.Keys(c.Metrics)) {
			if !slices.Contains(strings.Split(*metrics, ","), name) {
				continue
			}

			checked++
			v := c.Metrics[name]
			if v.N < minSearches || len(v.Values) != v.N || v.Median <= 0 {
				t.Errorf("%s of %q: %d values, want %d; median %v", name, c.Label, len(v.Values), minSearches,
					v.Median)
				continue
			}

			spread := (slices.Max(v.Values) - slices.Min(v.Values)) / v.Median
			fmt.Fprintf(t.Output(), "note: %s of %q: median %.4g, %d values within %.2f %%: %.4g\n", name,
				c.Label, v.Median, v.N, 100*spread, v.Values)
			if *maxSpread > 0 && spread > *maxSpread {
				t.Errorf("%s of %q: %d values are %.2f %% apart, max %.2f %%", name, c.Label, v.N, 100*spread,
					100**maxSpread)
			}
		}
	}

	if checked == 0 {
		t.Errorf("no cell has any of %s", *metrics)
	}
}
