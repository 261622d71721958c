package diagnosis

import (
	"cmp"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// logFlood returns the rule for a kernel that writes so much to its log that packets wait for it.
func logFlood() Rule {
	return Rule{Class: LogFlood, Wasteful: true, Label: "the kernel log is flooded",
		Means: "the router's kernel logs at least 50 lines per second, and a core is saturated",
		Judge: given((*Observation).systemOf, func(o *Observation, s system) Judgement {
			lines, ok := o.Sum(s.Node, "kernellog", "lines", nil)
			if !ok {
				_, why := o.Columns(s.Node, "kernellog", "lines")
				return missing(cmp.Or(why, "the kernel log was not read"))
			}
			rate := o.perSecond(lines)
			facts := factList{fact("lines", s.Node, "kernel log", lines,
				fmt.Sprintf("the kernel logged %s lines per second", unit.Significant(rate, 3))),
				s.coreFact()}
			return Judgement{Node: s.Node, Element: "kernel log", Facts: facts,
				Terms: []Term{requires("many-lines", degree(rate, 5, 50)).by(facts[0]),
					requires("busy-core", degree(s.Full.Busy, .5, .9)).by(facts[1])},
				Text: fmt.Sprintf("the %s's kernel logs %s lines per second: logging takes the CPU time",
					s.Node, unit.Significant(rate, 2))}
		}),
		Experiments: cpuDoses,
		Remedies: []Remedy{
			{System: "linux", Do: "rate-limit the packet filter's logging", Commands: []string{
				"nft add rule inet filter forward limit rate 5/second log"}, Risk: "log lines are lost"},
			{System: "linux", Do: "keep the log off the serial console", Commands: []string{"dmesg -n 4"}},
			{System: "openwrt", Do: "rate-limit the zone's logging", Commands: []string{
				"uci set firewall.@zone[1].log_limit='5/second'", "uci commit firewall",
				"service firewall restart"}},
			{System: "routeros", Do: "remove log=yes from rules on the fast path", Commands: []string{
				"/ip firewall filter set [find log=yes] log=no"}, Risk: "those log entries are gone"},
			{System: "freebsd", Do: "remove log from pf rules that match a lot of traffic"},
		}}
}
