package diagnosis

import (
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ownersRule is a rule of the packet filter that a router's owner has set, and that drops packets of the
// load.
type ownersRule struct {
	record.FilterRule
	packets float64 // by which its counter grew in the run; 0 where it has none
}

// String names the rule as nft(8) does, with what it says.
func (r ownersRule) String() string {
	return fmt.Sprintf("rule %d of %s %s %s (%s)", r.Handle, r.Family, r.Table, r.Chain, r.Text)
}

// ownersRule finds the rule of a router's owner that dropped most packets in the run, by the counters before
// and after it; where no rule that drops has a counter, the only one there is.
func (o *Observation) ownersRule(node string) (found ownersRule, ok bool) {
	i := slices.IndexFunc(o.Run.Environments, func(e record.Environment) bool { return e.Node == node })
	if i < 0 {
		return found, false
	}
	e := o.Run.Environments[i]
	if e.Inventory.Lacks("filter") != "" || e.Inventory.Filter == nil {
		return found, false
	}
	counted, without := false, []record.FilterRule{}
	for _, r := range e.Inventory.Filter.Rules {
		drops := slices.ContainsFunc(r.Kinds, func(kind string) bool {
			return slices.Contains([]string{record.RuleDrop, record.RuleReject, record.RuleQueue}, kind)
		})
		if !drops || r.Own || r.NewOnly {
			continue
		}
		if r.Packets == nil {
			without = append(without, r)
			continue
		}
		counted = true
		if n := float64(e.InventoryAfter.PacketsOf(r) - *r.Packets); n > found.packets {
			found = ownersRule{r, n}
		}
	}
	if found.packets == 0 && !counted && len(without) == 1 {
		return ownersRule{FilterRule: without[0]}, true
	}
	return found, found.packets > 0
}
