package diagnosis_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestLedgersBalance holds the ledgers of all recorded mechanisms against what the ends measured.
func TestLedgersBalance(t *testing.T) {
	list, stored := sourceOf(t, mechanismsList, mechanismsPacked)
	var packets, exact, delay count
	load(t, list, stored, func(r recorded) bool { return r.Planted != nil }, func(x *aRun, of []recorded) {
		for _, r := range of {
			for i := range x.trials {
				tr := &x.trials[i]
				if !slices.Contains(r.Trials, tr.ID) {
					continue
				}
				for _, j := range validity.Judge(&x.Run, []record.Trial{*tr}) {
					l := analysis.Observe(&x.Run, j).Ledger()
					if l == nil {
						continue
					}
					if l.MissedPackets != nil {
						ok := math.Abs(l.RestPackets) <= max(.01*l.MissedPackets[1], .003**l.Data[0].Out, 5)
						exact.add(ok)
						packets.add(ok || l.RestWhere != "")
						if !ok {
							text, _ := json.Marshal(l.Data)
							t.Logf("%s cpus %d: missed %.0f rest %.0f died %.0f: %s", r.ID, r.Planted.CPUs, l.MissedPackets, l.RestPackets, l.DiedPackets, text)
						}
					}
					if l.AddedNs != nil {
						gap := math.Abs(*l.AddedNs - l.WaitedNs)
						ok := gap <= max(.1**l.AddedNs, .5e6)
						delay.add(ok)
						if !ok {
							w := ""
							for _, a := range slices.Concat(l.Data, l.Acks) {
								if a.WaitedNs > 1e5 {
									w += fmt.Sprintf(" %s/%s %.1f", a.Node, a.Element, a.WaitedNs/1e6)
								}
							}
							t.Logf("DELAY %s cpus %d: added %.1f waited %.1f ms: %s (%s)", r.ID, r.Planted.CPUs, *l.AddedNs/1e6, l.WaitedNs/1e6, w, l.WaitedWhere)
						}
					}
				}
			}
		}
	})
	t.Logf("packets %s, exact %s, delay %s", packets, exact, delay)
}

func TestDumpLedger(t *testing.T) {
	list, stored := sourceOf(t, mechanismsList, mechanismsPacked)
	if *only == "slow-sender#07" {
		list, stored = source(t)
	}
	load(t, list, stored, func(r recorded) bool { return r.ID == *only || *only == "slow-sender#07" && r.ID[:min(14, len(r.ID))] == *only || r.Planted != nil && in(*only, r.Planted.Mechanism) }, func(x *aRun, of []recorded) {
		for _, r := range of {
			for i := range x.trials {
				tr := &x.trials[i]
				if !slices.Contains(r.Trials, tr.ID) {
					continue
				}
				for _, j := range validity.Judge(&x.Run, []record.Trial{*tr}) {
					l := analysis.Observe(&x.Run, j).Ledger()
					text, _ := json.Marshal(l)
					t.Logf("%s %s", r.ID, text)
					for _, e := range x.Run.Environments {
						if e.Node == "router" {
							text, _ := json.Marshal(e.Inventory)
							t.Logf("INV %s", text)
						}
					}
				}
			}
		}
	})
}

func TestDumpQueues(t *testing.T) {
	list, stored := sourceOf(t, mechanismsList, mechanismsPacked)
	load(t, list, stored, func(r recorded) bool { return r.Planted != nil && in(*only, r.Planted.Mechanism) }, func(x *aRun, of []recorded) {
		for _, r := range of {
			for i := range x.trials {
				tr := &x.trials[i]
				if !slices.Contains(r.Trials, tr.ID) {
					continue
				}
				for _, j := range validity.Judge(&x.Run, []record.Trial{*tr}) {
					o := analysis.Observe(&x.Run, j)
					cols, _ := o.Columns("router", "qdisc", "qlen_packets")
					w := ""
					for _, c := range cols {
						m, _ := c.Mean()
						l, _ := c.Largest()
						w += fmt.Sprintf(" %s mean %.2f largest %.0f;", c.Label, m, l)
					}
					t.Logf("%s %s", r.ID, w)
				}
			}
		}
	})
}
