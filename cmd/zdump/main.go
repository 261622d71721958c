// Command zdump is scratch.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"math"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

func main() {
	ctx := context.Background()
	s, err := store.OpenReadOnly(ctx, os.Args[1])
	if err != nil {
		panic(err)
	}
	mode := os.Args[2]
	run, err := s.Find(ctx, os.Args[3])
	if err != nil {
		panic(err)
	}
	trials, err := s.Trials(ctx, run.ID)
	if err != nil {
		panic(err)
	}
	for _, t := range trials {
		if t.Row.Kind != record.RowLoad || t.Traffic == nil {
			continue
		}
		var lv []string
		for k, v := range t.Row.Factors {
			switch k {
			case "topology", "ip", "offload", "congestion", "engine", "protocol":
			default:
				if v != "none" && v != "off" { lv = append(lv, k+"="+v) }
			}
		}
		slices.Sort(lv)
		fmt.Println("=====", t.ID, t.Status, strings.Join(lv, " "))
		if t.Status != "ok" { fmt.Println(t.Failure) ; continue }
		j := validity.Judge(&run, []record.Trial{t})[0]
		o := analysis.Observe(&run, j)
		switch mode {
		case "m":
			for _, k := range slices.Sorted(maps.Keys(j.Metrics.Values)) {
				fmt.Printf("  %s=%.4g", k, j.Metrics.Values[k])
			}
			fmt.Println()
			for node, n := range t.Nodes {
				for _, c := range o.Cores(node) {
					fmt.Printf("  %s %s busy %.2f user %.2f sys %.2f irq %.2f si %.2f steal %.2f\n", node, c.Name, c.Busy, c.User, c.System, c.IRQ, c.Softirq, c.Steal)
				}
				for _, p := range []string{"guests", "foreign", "softnet", "clock", "kernellog", "conntrack","kthreads","firewall"} {
					tb, why := metrics.SamplesOf(n, p)
					if tb == nil { fmt.Printf("  %s %s: %s\n", node, p, why); continue }
					for i, name := range tb.Names {
						c := tb.V[i]
						stem := name[strings.LastIndexByte(name, '/')+1:]
						cols, _ := o.Columns(node, p, stem)
						for _, col := range cols {
							if name == stem && col.Label == "" || name == col.Label+"/"+stem {
								g, _ := col.Grew(); m, _ := col.Mean()
								if g != 0 || m != 0 { fmt.Printf("  %s/%s/%s grew %.4g mean %.4g n=%d\n", node, p, name, g, m, len(c)) }
							}
						}
					}
				}
			}
			for _, r := range j.Reasons { fmt.Println("  reason", r.Kind, r.Text) }
		case "g":
			g := metrics.Growth(&t)
			for _, k := range slices.Sorted(maps.Keys(g)) {
				if g[k] != 0 { fmt.Printf("  %s=%.5g\n", k, g[k]) }
			}
		case "d":
			gp := j.Metrics.Values[metrics.Goodput]
			fmt.Printf("  goodput %.4g M\n", gp/1e6)
			all := diagnosis.Examine(o)
			slices.SortStableFunc(all, func(a, b diagnosis.Judgement) int {
				if math.IsNaN(a.Score) { a.Score = -99 }
				if math.IsNaN(b.Score) { b.Score = -99 }
				if a.Score > b.Score { return -1 }
				if a.Score < b.Score { return 1 }
				return 0
			})
			for _, x := range all {
				if x.NotExamined != "" { if len(os.Args) > 4 { fmt.Printf("   n/e %-20s %s\n", x.Class, x.NotExamined)}; continue }
				if x.Score < -3 && len(os.Args) <= 4 { continue }
				fmt.Printf("  %6.2f %-20s %s/%s gain %.2f: %s\n", x.Score, x.Class, x.Node, x.Element, x.GainAtMost, x.Text)
				for _, f := range x.Facts { fmt.Printf("            %s %s %s %v: %s\n", f.Metric, f.Node, f.Element, *f.Value, f.Text) }
			}
			d := diagnosis.Conclude([][]diagnosis.Judgement{all})
			fmt.Printf("  => %s %.2f %s\n", d.Class, d.Confidence, d.Text)
		}
	}
}
