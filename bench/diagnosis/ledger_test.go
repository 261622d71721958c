package diagnosis_test

import (
	"math"
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ledgers calls do with the ledger of each recorded trial that was planted by raw tools.
func ledgers(t *testing.T, do func(r recorded, l *diagnosis.Ledger)) {
	list, stored := sourceOf(t, mechanismsList, mechanismsPacked)
	load(t, list, stored, func(r recorded) bool { return r.Planted != nil }, func(x *aRun, of []recorded) {
		for _, r := range of {
			for i := range x.trials {
				if !slices.Contains(r.Trials, x.trials[i].ID) {
					continue
				}
				for _, j := range validity.Judge(&x.Run, []record.Trial{x.trials[i]}) {
					if l := analysis.Observe(&x.Run, j).Ledger(); l != nil {
						do(r, l)
					}
				}
			}
		}
	})
}

// In how many of the recorded trials a ledger must balance: by itself, and with what is located. Counters are
// read ten times a second, so that both edges of a window of a second are a guess.
const leastExact, leastBalanced = .92, .95

// TestLedgersBalance holds the ledgers of recorded mechanisms against what the ends measured: what died is
// what they miss, and packets waited in no queue for longer than the RTT grew. What died or waited elsewhere
// is located.
func TestLedgersBalance(t *testing.T) {
	var packets, located, delay, queues count
	ledgers(t, func(r recorded, l *diagnosis.Ledger) {
		if l.MissedPackets != nil {
			balances := math.Abs(l.RestPackets) <= diagnosis.Tolerance(l.MissedPackets[1], *l.Data[0].Out)
			packets.add(balances)
			located.add(balances || l.RestWhere != "")
			if !balances {
				t.Logf("%s: the ends miss %.0f packets, %.0f died, the rest differs %s", r.ID,
					l.MissedPackets, l.DiedPackets, l.RestWhere)
			}
		}
		if l.AddedNs != nil {
			within := max(.1**l.AddedNs, .5e6)
			queues.add(math.Abs(*l.AddedNs-l.WaitedNs) <= within)
			explained := l.WaitedNs <= *l.AddedNs+within &&
				(l.WaitedNs >= *l.AddedNs-within || l.WaitedWhere != "")
			delay.add(explained)
			if !explained {
				t.Logf("%s: %.1f ms were added, packets waited for %.1f ms in queues", r.ID, *l.AddedNs/1e6,
					l.WaitedNs/1e6)
			}
		}
	})
	t.Logf("packets balance in %s, or are located in %s; queues alone explain the added RTT in %s, with "+
		"what waits for cores %s", packets, located, queues, delay)
	for _, x := range []struct {
		what  string
		of    count
		least float64
	}{{"packets that died", packets, leastExact}, {"packets, with what is located", located, leastBalanced},
		{"what packets waited for", delay, leastBalanced}} {
		if float64(x.of.Right) < x.least*float64(x.of.Of) {
			t.Errorf("the ledger of %s balances in %s", x.what, x.of)
		}
	}
}
