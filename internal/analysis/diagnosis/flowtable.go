package diagnosis

import (
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// FlowtableFactor is the factor whose remedies let established connections bypass the packet filter.
const FlowtableFactor = "flowtable"

// FlowtableLoss describes the owner's rules that a flowtable would bypass on a node: rules that limit, drop,
// log or count forwarded packets. A packet filter that could not be read, on a machine outside the lab, may
// contain such rules. FlowtableLoss returns "" if a flowtable bypasses no such rule.
func FlowtableLoss(v *record.Inventory, n record.NodeFacts) string {
	unread := "it may take away rules of the owner of " + n.Name + ": "
	for _, part := range []string{"filter", "iptables"} {
		why := v.Lacks(part)
		if why != "" && n.OwnMachine() {
			return unread + "the packet filter could not be read: " + why
		}
	}

	if v == nil || v.Filter == nil {
		return ""
	}

	for _, t := range v.Filter.Flowtables {
		if !t.Own {
			return say("a flowtable of its owner's is on %s already: %s %s %s", n.Name, t.Family, t.Table,
				t.Name)
		}
	}

	if r, ok := v.Filter.SkippedBy(); ok {
		return say("it would take away what a rule of its owner's does on %s: %s (%s %s %s, handle %d)",
			n.Name, r.Text, r.Family, r.Table, r.Chain, r.Handle)
	}

	for _, table := range slices.Sorted(maps.Keys(v.Filter.LegacyEntries)) {
		forwards := strings.HasSuffix(table, "filter") || strings.HasSuffix(table, "mangle")
		if v.Filter.LegacyEntries[table] > 0 && forwards {
			return unread + "those of iptables-legacy (" + table + ") are not read"
		}
	}

	if n := v.Filter.MoreChains; n > 0 {
		return say("%s%d chains of the packet filter were not read", unread, n)
	}

	return ""
}
