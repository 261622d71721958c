package diagnosis_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
)

// ledger holds that of a recorded trial that was planted by raw tools.
type ledger struct {
	*diagnosis.Ledger
	of     recorded
	probed bool // its routers were probed
}

// ledgers reads those of a recording.
func ledgers(t *testing.T) []ledger {
	if known.ledgers == nil {
		readKnown(t)
	}
	return known.ledgers
}

// ledgersOf returns the ledgers of some trials of a run.
func ledgersOf(x *aRun, of []recorded) (all []ledger) {
	for _, r := range of {
		for i := range x.Trials {
			if !slices.Contains(r.Trials, x.Trials[i].ID) {
				continue
			}

			j := validity.GradeTrial(&x.Run, &x.Trials[i])
			l := analysis.Observe(&x.Run, j).Ledger()
			if l != nil {
				all = append(all, ledger{l, r, len(x.Trials[i].Hops) > 0})
			}
		}
	}

	return all
}

// Shares of the recorded trials in which a ledger must balance. Counters are read ten times a second, so that
// both edges of a window of a second are estimated.
const (
	minExact     = .92 // packets, by themselves
	minLocated   = .95 // packets, where the rest may vanish at one stage
	minCores     = .40 // added RTT that queues hold, or that a busy core explains
	minNotMore   = .95 // time in queues that is at most the added RTT
	minExplained = .88 // added RTT, with its place, where the routers were probed
)

// TestLedgersBalance holds the ledgers of recorded mechanisms against what the ends measured: the packets
// that died are those that the ends miss, and packets waited in queues for no longer than the RTT grew.
func TestLedgersBalance(t *testing.T) {
	var packets, located, queues, cores, notMore, explained count
	places := map[string]int{}
	for _, l := range ledgers(t) {
		if l.MissedPackets != nil {
			balances := math.Abs(l.RestPackets) <= diagnosis.Tolerance(l.MissedPackets[1], *l.Data[0].Out)
			packets.add(balances)
			located.add(balances || l.RestWhere != "")
			if !balances {
				t.Logf("%s: the ends miss %.0f packets, %.0f died, the rest differs %s", l.of.ID,
					l.MissedPackets, l.DiedPackets, l.RestWhere)
			}
		}

		if l.AddedNs != nil {
			within := max(.1**l.AddedNs, .5e6)
			queues.add(math.Abs(*l.AddedNs-l.WaitedNs) <= within)
			notMore.add(l.WaitedNs <= *l.AddedNs+within)
			balances := math.Abs(*l.AddedNs-l.WaitedNs) <= within
			cores.add(balances || strings.HasPrefix(l.WaitedWhere, "waiting for"))
			if l.probed {
				explained.add(balances || l.WaitedWhere != "")
				if !balances && !strings.HasPrefix(l.WaitedWhere, "waiting for") {
					places[l.WaitedWhere]++
				}
			}

			if l.WaitedNs > *l.AddedNs+within {
				t.Logf("%s: %.1f ms were added, packets waited for %.1f ms in queues", l.of.ID,
					*l.AddedNs/1e6, l.WaitedNs/1e6)
			}
		}
	}

	t.Logf("packets balance in %s, or are located in %s; the time in queues is at most the added RTT in %s; "+
		"queues alone explain that in %s, with busy cores in %s; where routers were probed, the place of the "+
		"rest is known in %s, without a busy core: %v", packets, located, notMore, queues, cores, explained, places)
	for _, x := range []struct {
		what string
		of   count
		min  float64
	}{{"packets that died", packets, minExact}, {"packets, with those that are located", located, minLocated},
		{"time in queues", notMore, minNotMore}, {"added RTT", cores, minCores},
		{"added RTT, with its place", explained, minExplained}} {
		if float64(x.of.Right) < x.min*float64(x.of.Of) {
			t.Errorf("the ledger of %s balances in %s", x.what, x.of)
		}
	}
}
