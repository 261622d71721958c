package analysis

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// verdict names, of the fastest cell of each kind of tunnel, the resource that was busiest and the tester's
// share: what is known of the chokepoint where nothing diagnoses it.
func verdict(run *record.Run, d *Document, cells []*group) []string {
	var out []string
	for _, best := range d.fastestCells() {
		var parts []string
		if whose, share, ok := busiestCore(best, cells); ok {
			parts = append(parts, fmt.Sprintf("the busiest core %s was busy for %s of the time", whose,
				unit.Percent(share)))
		}
		if share, ok := testerShare(run, best); ok {
			parts = append(parts, fmt.Sprintf("the load generator took %s of all CPU time that was used",
				unit.Percent(share)))
		}
		if c := best.Ceiling; c.TesterRatio > 0 {
			parts = append(parts, fmt.Sprintf("the result is %s of what the tester reaches alone (%s)",
				unit.Ratio(c.TesterRatio), c.TesterKind))
		}
		if len(parts) > 0 {
			out = append(out, capital(d.with(best))+": "+strings.Join(parts, "; ")+".")
		}
	}
	return out
}

// busiestCore is that of the router, else of the host, else of the busier end, where these are the only
// machines that are known.
func busiestCore(best *Cell, cells []*group) (whose string, share float64, ok bool) {
	for _, m := range []struct{ stem, whose string }{{"router", "of the router"},
		{record.HostNode, "of the shared host"}} {
		if v, ok := best.Metrics[m.stem+"_busiest_core_ratio"]; ok {
			return m.whose, v.Median, true
		}
	}
	ends := map[string][]float64{}
	for _, g := range cells {
		if g.factors.Key() != best.Factors.Key() {
			continue
		}
		for _, j := range g.good() {
			for node, v := range j.Ends {
				ends[node] = append(ends[node], v)
			}
		}
	}
	for _, node := range slices.Sorted(maps.Keys(ends)) {
		if v := statistics.Median(ends[node]); !ok || v > share {
			whose, share, ok = "of the "+node+", an end of the path,", v, true
		}
	}
	return whose, share, ok
}

// testerShare is the load generator's part of the CPU time of a machine that also carries the router.
func testerShare(run *record.Run, c *Cell) (float64, bool) {
	own, okOwn := c.Metrics[metrics.EngineCPU]
	rate, okRate := c.Metrics[metrics.Goodput]
	per, okPer := c.Metrics[metrics.GoodputPerCPU]
	window := run.Design.Method.Duration.Seconds()
	if !okOwn || !okRate || !okPer || per.Median <= 0 || window <= 0 ||
		run.Near().CPUs != record.CPUsShared {
		return 0, false
	}
	share := own.Median / window / (rate.Median / per.Median)
	return share, share > 0 && share <= 1
}

// fastestCells are, of each kind of tunnel, the TCP cell with the highest goodput; without any, the UDP cell
// with the most packets.
func (d *Document) fastestCells() []*Cell {
	var kinds []string
	var out []*Cell
	for i := range d.Cells {
		c := &d.Cells[i]
		kind := factor.Tunnel.Of(c.Factors)
		if _, ok := c.Metrics[metrics.Goodput]; !ok || factor.Protocol.Is(c.Factors, factor.UDP) ||
			slices.Contains(kinds, kind) {
			continue
		}
		kinds = append(kinds, kind)
		best, _ := d.most(metrics.Goodput, func(f record.Factors) bool {
			return factor.Tunnel.Of(f) == kind && !factor.Protocol.Is(f, factor.UDP)
		})
		out = append(out, best)
	}
	if len(out) == 0 {
		if best, _ := d.most(metrics.PacketRate, nil); best != nil {
			out = append(out, best)
		}
	}
	return out
}

// with says what carried a cell: "through WireGuard (userspace)".
func (d *Document) with(c *Cell) string {
	kind := factor.Tunnel.Of(c.Factors)
	if kind == factor.NoTunnel || kind == "" {
		return "without a tunnel"
	}
	words := "through " + d.Catalogue.Of(string(factor.Tunnel)).Words(kind)
	if r := factor.Tunnel.Of(c.Resolved); r != "" && r != kind {
		r = strings.TrimPrefix(strings.TrimPrefix(r, kind+"-"), kind+" ")
		words += " (" + strings.Trim(r, "()") + ")"
	}
	return words
}
