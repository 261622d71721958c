package diagnosis

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ownersRule describes a packet filter rule that a router's owner has set and that drops packets of the load.
type ownersRule struct {
	record.FilterRule
	packets float64 // growth of its counter in the run; 0 where it has none
}

// String names the rule as nft(8) does, followed by its text.
func (r ownersRule) String() string {
	if r.Handle == 0 {
		return say("chain %s %s %s (%s)", r.Family, r.Table, r.Chain, r.Text)
	}
	return say("rule %d of %s %s %s (%s)", r.Handle, r.Family, r.Table, r.Chain, r.Text)
}

// element names the rule as a part of its node.
func (r ownersRule) element() string { return say("rule %d", r.Handle) }

// ownersRule finds the rule of a router's owner that dropped most packets in the run, by the counters before
// and after it; if no dropping rule has a counter, the only dropping rule, else a chain that drops what no
// rule accepts.
func (o *Observation) ownersRule(node string) (found ownersRule, ok bool) {
	e := o.environment(node)
	if e.Inventory.Lacks("filter") != "" || e.Inventory.Filter == nil {
		return found, false
	}

	counted := false
	without := []record.FilterRule{}
	for _, r := range e.Inventory.Filter.Rules {
		drops := func(kind string) bool {
			return slices.Contains([]string{record.RuleDrop, record.RuleReject, record.RuleQueue}, kind)
		}
		// Packets that match no connection may belong to one that a table has lost, or that rules kept out of
		// it.
		news := r.NewOnly && !slices.Contains(r.Kinds, record.RuleInvalid)
		switch {
		case r.Own || news || !slices.ContainsFunc(r.Kinds, drops):
		case r.Packets == nil:
			without = append(without, r)
		default:
			counted = true
			n := float64(e.InventoryAfter.PacketsOf(r) - *r.Packets)
			if n > found.packets {
				found = ownersRule{r, n}
			}
		}
	}

	if counted {
		return found, found.packets > 0
	}

	for _, c := range e.Inventory.Filter.Chains {
		if len(without) == 0 && c.Policy == "drop" && !c.Own {
			without = []record.FilterRule{{
				Family: c.Family,
				Table:  c.Table,
				Chain:  c.Name,
				Text:   "policy drop",
			}}
		}
	}

	if len(without) == 1 {
		return ownersRule{FilterRule: without[0]}, true
	}

	return found, false
}

// environment returns a node as it was found, or one without an inventory if it was not read.
func (o *Observation) environment(node string) (found record.Environment) {
	for _, e := range slices.Backward(o.Run.Environments) {
		if e.Node == node {
			found = e
		}
	}
	return found
}

// filterAt returns a node's packet filter, nil if it was not read.
func (o *Observation) filterAt(node string) *record.PacketFilter {
	v := o.environment(node).Inventory
	if v.Lacks("filter") != "" || v.Lacks("iptables") != "" {
		return nil
	}
	return v.Filter
}

// noRule reports whether the packet filter of a node was read and has no rule of its owner.
func (o *Observation) noRule(node string) bool {
	f := o.filterAt(node)
	return f != nil && !slices.ContainsFunc(f.Chains, func(c record.FilterChain) bool { return !c.Own })
}

// rulesOnWay counts the rules through which a forwarded packet may pass; known is false if they were not
// read.
func (o *Observation) rulesOnWay(node string) (rules float64, known bool) {
	f := o.filterAt(node)
	if f == nil || f.MoreChains > 0 {
		return 0, false
	}

	for _, c := range f.Chains {
		if c.Hook != "input" && c.Hook != "output" {
			rules += float64(c.Rules)
		}
	}

	return rules, true
}
