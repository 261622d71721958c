package diagnosis

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ownersRule describes a packet filter rule of the router's owner that drops packets of the load.
type ownersRule struct {
	record.FilterRule
	packets float64 // growth of the rule's counter in the run; 0 if it has none
}

// String returns the rule's location as nft(8) writes it, and its text.
func (r ownersRule) String() string {
	if r.Handle == 0 {
		return say("chain %s %s %s (%s)", r.Family, r.Table, r.Chain, r.Text)
	}
	return say("rule %d of %s %s %s (%s)", r.Handle, r.Family, r.Table, r.Chain, r.Text)
}

// element returns the rule's name as an element of its node.
func (r ownersRule) element() string { return say("rule %d", r.Handle) }

// ownersRule returns the owner's rule that dropped the most packets in the run, according to the rules'
// counters before and after the run. If no dropping rule has a counter, it returns the only dropping rule or,
// failing that, a chain whose policy drops.
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
		// Packets that match no connection may belong to a connection that the table has lost, or that rules
		// keep untracked.
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

// environment returns the first recorded environment of a node. It has no inventory if the node was not read.
func (o *Observation) environment(node string) (found record.Environment) {
	for _, e := range slices.Backward(o.Run.Environments) {
		if e.Node == node {
			found = e
		}
	}
	return found
}

// filterAt returns a node's packet filter, or nil if it was not read.
func (o *Observation) filterAt(node string) *record.PacketFilter {
	v := o.environment(node).Inventory
	if v.Lacks("filter") != "" || v.Lacks("iptables") != "" {
		return nil
	}
	return v.Filter
}

// noRule reports whether the node's packet filter was read and contains no rule and no policy of the router's
// owner that may drop packets.
func (o *Observation) noRule(node string) bool {
	f := o.filterAt(node)
	if f == nil || f.MoreChains+f.MoreRules+len(f.LegacyEntries) > 0 {
		return false
	}

	harmless := []string{record.RuleLog, record.RuleCount, record.RuleTCPOption, record.RuleOffload,
		record.RuleNoTrack}
	return !slices.ContainsFunc(f.Chains, func(c record.FilterChain) bool {
		return !c.Own && c.Policy == "drop"
	}) && !slices.ContainsFunc(f.Rules, func(r record.FilterRule) bool {
		return !r.Own && slices.ContainsFunc(r.Kinds, func(kind string) bool {
			return !slices.Contains(harmless, kind)
		})
	})
}
