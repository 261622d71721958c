package diagnosis

import (
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ownersRule is a packet filter rule that a router's owner has set and that drops packets of the load.
type ownersRule struct {
	record.FilterRule
	packets float64 // growth of its counter in the run; 0 where it has none
}

// String names the rule as nft(8) does, followed by its text.
func (r ownersRule) String() string {
	if r.Handle == 0 {
		return fmt.Sprintf("chain %s %s %s (%s)", r.Family, r.Table, r.Chain, r.Text)
	}
	return fmt.Sprintf("rule %d of %s %s %s (%s)", r.Handle, r.Family, r.Table, r.Chain, r.Text)
}

// ownersRule finds the rule of a router's owner that dropped most packets in the run, by the counters before
// and after it; where no dropping rule has a counter, the only one there is, else a chain that drops what no
// rule accepts.
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
		// Packets that match no connection may belong to one that a table has lost, or that rules kept out of
		// it.
		if !drops || r.Own || r.NewOnly && !slices.Contains(r.Kinds, record.RuleInvalid) {
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
	if found.packets == 0 && !counted && len(without) == 0 {
		for _, c := range e.Inventory.Filter.Chains {
			if c.Policy == "drop" && !c.Own {
				return ownersRule{FilterRule: record.FilterRule{Family: c.Family, Table: c.Table,
					Chain: c.Name, Text: "policy drop"}}, true
			}
		}
	}
	return found, found.packets > 0
}
