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
	minNotMore   = .97 // time in queues that is at most the added RTT
	minExplained = .95 // added RTT, with its place, where the routers were probed
)

// ledgerFigures counts the trials whose ledger balances, for docs/diagnosis.md.
type ledgerFigures struct {
	Packets   count // by themselves
	Located   count // or with the rest at one stage
	NotMore   count // time in queues is at most the added RTT
	Queues    count // queues alone explain the added RTT
	Cores     count // or together with a busy core
	Explained count // the place of the rest is known, where the routers were probed
}

const ledgerFile = "testdata/figures-ledgers.json"

// TestLedgersBalance holds the ledgers of recorded mechanisms against what the ends measured: the packets
// that died are those that the ends miss, and packets waited in queues for no longer than the RTT grew.
func TestLedgersBalance(t *testing.T) {
	var f ledgerFigures
	places := map[string]int{}
	for _, l := range ledgers(t) {
		if l.MissedPackets != nil {
			balances := math.Abs(l.RestPackets) <= diagnosis.Tolerance(l.MissedPackets[1], *l.Data[0].Out)
			f.Packets.add(balances)
			f.Located.add(balances || l.RestWhere != "")
			if !balances {
				t.Logf("%s: the ends miss %.0f packets, %.0f died, the rest differs %s", l.of.ID,
					l.MissedPackets, l.DiedPackets, l.RestWhere)
			}
		}

		if l.AddedNs != nil {
			within := max(.1**l.AddedNs, .5e6)
			f.Queues.add(math.Abs(*l.AddedNs-l.WaitedNs) <= within)
			f.NotMore.add(l.WaitedNs <= *l.AddedNs+within)
			balances := math.Abs(*l.AddedNs-l.WaitedNs) <= within
			f.Cores.add(balances || strings.HasPrefix(l.WaitedWhere, "waiting for"))
			if l.probed {
				f.Explained.add(balances || l.WaitedWhere != "")
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
		"rest is known in %s, without a busy core: %v", f.Packets, f.Located, f.NotMore, f.Queues, f.Cores,
		f.Explained, places)
	for _, x := range []struct {
		what string
		of   count
		min  float64
	}{{"packets that died", f.Packets, minExact},
		{"packets, with those that are located", f.Located, minLocated},
		{"time in queues", f.NotMore, minNotMore}, {"added RTT", f.Cores, minCores},
		{"added RTT, with its place", f.Explained, minExplained}} {
		if float64(x.of.Right) < x.min*float64(x.of.Of) {
			t.Errorf("the ledger of %s balances in %s", x.what, x.of)
		}
	}

	if *update && *keepDir == "" {
		writeJSON(t, ledgerFile, f)
	}
}
