package knob

import (
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

var errFirewall = want("off, or N with N from 0 to 20000, then any of: in a set, in a map; stateful; log")

// Firewall adds a chain of N rules that every forwarded packet passes and no packet matches. A state is "off"
// or "N", optionally followed, in this order, by
//
//	in a set   one rule looks the packet up in a set of N elements
//	in a map   one rule takes its verdict from a map of N elements
//	stateful   packets of known connections are accepted before these rules
//	log        packets that pass all rules are written to the kernel's log
//
// IPv4 and IPv6 have the same rules.
func Firewall() Knob {
	return ofTable(ofRouter(factor.Declaration{
		Policy: true,
		Name:   "firewall",
		Unit:   "off, or 0 to 20000 rules, then any of: in a set, in a map; stateful; log",
		Rank:   18,
		Doc: "number of firewall rules that each forwarded packet is checked against, and that do not " +
			"match it; in a set, in a map: one rule with as many elements instead; stateful: packets of " +
			"known connections skip the rules; log: the others are logged",
		Without: without("", "without firewall rules"),
		Long:    firewallPhrase,
		Needs:   factor.NeedsForwarding,
	}), spelling[kernel.Firewall]{parse: ParseFirewall, spell: spellFirewall}, kernel.FirewallRules)
}

// firewallPhrase returns the description of a level for use in a sentence.
func firewallPhrase(level string) string {
	number, rest, _ := strings.Cut(level, " ")
	if n, err := strconv.Atoi(number); err != nil {
		return "firewall " + level
	} else if n == 0 && rest == "" {
		return "no firewall rules"
	}
	return strings.TrimSuffix(number+" firewall rules "+rest, " ")
}

// ParseFirewall parses a state of the knob firewall.
func ParseFirewall(text string) (kernel.Firewall, error) {
	number, rest, _ := strings.Cut(strings.Join(strings.Fields(text), " "), " ")
	n, err := strconv.Atoi(number)
	switch {
	case number == "off" && rest == "":
		return kernel.Firewall{}, nil
	case err != nil || n < 0 || n > 20_000:
		return kernel.Firewall{}, errFirewall
	}

	f := kernel.Firewall{On: true, Rules: n}
	take := func(phrase string) bool {
		left, found := strings.CutPrefix(rest+" ", phrase+" ")
		if found {
			rest = strings.TrimSuffix(left, " ")
		}
		return found
	}
	switch {
	case take("in a set"):
		f.Form = kernel.FirewallSet
	case take("in a map"):
		f.Form = kernel.FirewallMap
	}

	f.Stateful = take("stateful")
	f.Log = take("log")
	if rest != "" {
		return kernel.Firewall{}, errFirewall
	}

	return f, nil
}

func spellFirewall(f kernel.Firewall) State {
	if !f.On {
		return "off"
	}

	text := strconv.Itoa(f.Rules)
	if f.Form != kernel.FirewallList {
		text += " in a " + string(f.Form)
	}

	if f.Stateful {
		text += " stateful"
	}

	if f.Log {
		text += " log"
	}

	return text
}
