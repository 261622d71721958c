package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// inventoryFacts describes each part of a node's inventory in words, by the kind and name of the part. It
// leaves out counters, handles and chokepoint's own settings, because they differ from run to run. It also
// leaves out devices for which listed returns true.
func inventoryFacts(v *record.Inventory, listed func(device string) bool) map[string]map[string]string {
	out := map[string]map[string]string{}
	add := func(part, name, text string) {
		if v.Lacks(part) == "" && text != "" {
			out[part][name] = text
		}
	}
	for _, part := range inventoryParts {
		if v.Lacks(part) == "" {
			out[part] = map[string]string{}
		}
	}

	for _, d := range v.Devices {
		if listed(d.Name) {
			continue
		}

		add("devices", "kind of "+d.Name, d.Kind+prefixed(", port of ", d.Master)+prefixed(", on ", d.Lower))
		add("devices", "queues of "+d.Name, joined(d.Queues, record.QueueFacts.Words))
		add("devices", "filters of "+d.Name, joined(d.Filters, record.QueueFilter.Words))
	}

	for _, t := range v.Taps {
		add("taps", "packet sockets on "+cmp.Or(t.Device, "all devices"),
			fmt.Sprintf("%d (%s, protocol %s)", t.Sockets, t.Type, t.Protocol))
	}

	for _, q := range v.NFQueues {
		add("nfqueues", fmt.Sprintf("program behind NFQUEUE %d", q.Number), "yes")
	}

	x := v.XFRM
	if x != nil && x.States > 0 {
		add("xfrm", "IPsec associations", fmt.Sprintf("%d, smallest replay window %d", x.States, x.MinWindow))
	}

	if v.BridgeFilter != nil {
		add("bridge_filter", "packet filter sees bridged packets", fmt.Sprint(*v.BridgeFilter))
	}

	f := v.Filter
	if f != nil {
		filterFacts(f, add)
	}

	return out
}

var inventoryParts = [...]string{"devices", "filter", "iptables", "taps", "nfqueues", "xfrm", "bridge_filter"}

func prefixed(word, text string) string {
	if text == "" {
		return ""
	}
	return word + text
}

func filterFacts(f *record.PacketFilter, add func(part, name, text string)) {
	for _, c := range f.Chains {
		if !c.Own {
			add("filter", fmt.Sprintf("rules from %s %s %s", c.Family, c.Table, c.Name),
				fmt.Sprintf("%d (%s, priority %d)", c.Rules, strings.TrimSpace(c.Hook+" "+c.Policy),
					c.Priority))
		}
	}

	times := map[string]int{}
	for _, r := range f.Rules {
		if !r.Own {
			times[fmt.Sprintf("rule in %s %s %s: %s", r.Family, r.Table, r.Chain, r.Text)]++
		}
	}

	for name, n := range times {
		add("filter", name, unit.Count(n, "rule"))
	}

	for _, t := range f.Flowtables {
		if !t.Own {
			add("filter", fmt.Sprintf("flowtable %s %s %s", t.Family, t.Table, t.Name),
				strings.TrimSpace(strings.Join(t.Devices, " ")+prefixed(", ", strings.Join(t.Flags, " "))))
		}
	}

	for table, n := range f.LegacyEntries {
		add("iptables", "entries of iptables-legacy, table "+table, fmt.Sprint(n))
	}
}

func joined[T any](all []T, words func(T) string) string {
	var out []string
	for _, x := range all {
		out = append(out, words(x))
	}
	return strings.Join(out, "; ")
}

// addInventories adds the inventories of a node in two runs to left and right, the node's facts in these
// runs. If only one of the inventories contains a part, the fact of the other run is "none", or unknown if
// the other run could not read this kind of part.
func addInventories(left, right map[string]string, a, b *record.Inventory) {
	if a == nil || b == nil {
		return
	}

	has := func(v *record.Inventory, device string) bool {
		return slices.ContainsFunc(v.Devices, func(d record.NetDevice) bool { return d.Name == device })
	}
	// listed reports whether only one run has the device, and other facts already show this.
	listed := func(device string) bool {
		name := "device:" + device + ":mtu"
		return has(a, device) != has(b, device) && left[name]+right[name] != ""
	}
	one := inventoryFacts(a, listed)
	two := inventoryFacts(b, listed)
	for _, part := range inventoryParts {
		x := one[part]
		y := two[part]
		switch {
		case x != nil && y != nil:
			for _, name := range keys(x, y) {
				left[name] = cmp.Or(x[name], "none")
				right[name] = cmp.Or(y[name], "none")
			}
		case x != nil:
			left["inventory: "+part] = "read"
		case y != nil:
			right["inventory: "+part] = "read"
		}
	}
}
