package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// FoundTitle is the heading of the list of existing queues, rules and settings that can affect packets.
const FoundTitle = "In the path of packets, as found"

// foundItems lists what limited, dropped, redirected or copied packets on each node before the run changed
// anything.
func foundItems(v *view, all bool) []Item {
	var out []Item
	for _, e := range v.Environment {
		if e.Inventory == nil {
			continue
		}

		lines, unknown := Found(e.Inventory, all)
		if all {
			for _, why := range unknown {
				lines = append(lines, "not known: "+why)
			}
		}

		out = append(out, items(e.Node, Plain, lines...)...)
	}
	return out
}

// Found describes the devices and rules of a node that limit, drop, redirect or copy packets, one per line.
// unknown lists what could not be determined, with the reasons. If all is set, Found also describes ports
// that do none of this. If all is set but the ports are unknown, Found describes all devices.
func Found(v *record.Inventory, all bool) (lines, unknown []string) {
	named := slices.ContainsFunc(v.Devices, func(d record.NetDevice) bool { return d.Port != "" })
	for _, d := range v.Devices {
		text, notable := deviceWords(d)
		if notable || all && (d.Port != "" || !named) {
			lines = append(lines, text)
		}
	}

	if v.Filter != nil {
		lines = append(lines, filterWords(v.Filter)...)
	}

	for _, t := range v.Taps {
		lines = append(lines, unit.Count(t.Sockets, "packet socket")+" ("+t.Type+", protocol "+t.Protocol+
			") copy packets of "+cmp.Or(t.Device, "all devices"))
	}

	for _, q := range v.NFQueues {
		lines = append(lines, fmt.Sprintf("a program reads packets from NFQUEUE %d, which has dropped %d",
			q.Number, q.Dropped+q.UserDropped))
	}

	bridged := slices.ContainsFunc(v.Devices, func(d record.NetDevice) bool { return d.Kind == "bridge" })
	if bridged && v.BridgeFilter != nil && *v.BridgeFilter {
		lines = append(lines, "the packet filter also sees what bridges forward (bridge-nf-call-iptables)")
	}

	for _, part := range []string{"all", "devices", "filter", "iptables", "taps", "nfqueues"} {
		unknown = once(unknown, around(part+": ", v.Missing[part], ""))
	}

	return lines, unknown
}

// deviceWords describes a device with its queues and filters. notable is set if the device is worth a line.
func deviceWords(d record.NetDevice) (text string, notable bool) {
	parts := []string{around("port of ", d.Master, "")}
	if d.MTU > 0 {
		parts = append(parts, fmt.Sprintf("MTU %d", d.MTU))
	}

	if d.SpeedMbps > 0 && d.Kind == record.DevicePhysical {
		parts = append(parts, unit.Bitrate(d.SpeedMbps*1e6).String())
	}

	for _, q := range d.Queues {
		words := q.Words()
		if q.Class {
			words = "class " + q.Handle + " " + words
		}

		parts = append(parts, words)
	}

	for _, f := range d.Filters {
		parts = append(parts, "filter "+f.Words())
	}

	parts = append(parts, around("not known in full: ", d.Missing, ""))
	notable = d.Master != "" || d.Rated() || len(d.Filters) > 0 || d.Missing != "" ||
		slices.Contains([]string{"bridge", "bond", "ifb"}, d.Kind)
	name := d.Name + bracket(strings.TrimSuffix(d.Kind, record.DeviceVirtual))
	return joined(": ", name, joined("; ", parts...)), notable
}

// maxRuleLines is the maximum number of packet filter rules that are listed individually.
const maxRuleLines = 8

// filterWords describes the rules of a packet filter that do more than accept. Rules that chokepoint added
// are omitted.
func filterWords(f *record.PacketFilter) []string {
	var chains []string
	for _, c := range f.Chains {
		if !c.Own && c.Rules > 0 {
			chains = append(chains, fmt.Sprintf("%s at %s (%s %s %s)", unit.Count(c.Rules, "rule"), c.Hook,
				c.Family, c.Table, c.Name))
		}
	}

	out := once(nil, around("packet filter: ", strings.Join(chains, ", "), ""))
	others := filter(f.Rules, func(r record.FilterRule) bool { return !r.Own })
	for i, r := range others {
		if i == maxRuleLines {
			out = append(out, fmt.Sprintf("and %d further rules that do more than accept",
				len(others)-i+f.MoreRules))
			break
		}

		text := fmt.Sprintf("rule %d of %s %s %s: %s", r.Handle, r.Family, r.Table, r.Chain, r.Text)
		if r.Packets != nil {
			text += fmt.Sprintf(" (%d packets before the run)", *r.Packets)
		}

		out = append(out, text)
	}

	for _, t := range f.Flowtables {
		if !t.Own {
			out = append(out, "flowtable "+t.Name+" of "+
				strings.Join(slices.Concat(t.Devices, t.Flags), ", "))
		}
	}

	return out
}
