package knob

import (
	"context"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

const maxRules = 20_000

const firewallWords = "off, or N with N from 0 to 20000, then any of: in a set, in a map; stateful; log"

// Firewall is a chain of N rules that every forwarded packet runs through and none matches: "off" or "N",
// and behind the number, in this order,
//
//	in a set   one rule looks the packet up in a set of N
//	in a map   one rule takes its verdict from a map of N
//	stateful   packets of known connections pass ahead of that
//	log        packets that come to the end are written to the kernel's log
//
// IPv4 and IPv6 get the same rules.
func Firewall() Knob {
	return firewall{declared{&factor.Declaration{
		Name: "firewall",
		Unit: "off, or rules, 0 to 20000, and words", Rank: 18,
		Doc: "rules that each forwarded packet is compared with: in a list, set or map, stateful, " +
			"logging",
		Without: &factor.Without{Words: "of the same without firewall rules"}, Long: firewallPhrase,
		Placed: factor.Placed,
		Needs:  factor.NeedsForwarding,
	}}}
}

type firewall struct{ declared }

func (firewall) Parse(text string) (State, error) {
	f, ok := parseFirewall(text)
	if !ok {
		return "", refuse("firewall", text, firewallWords)
	}
	return spellFirewall(f), nil
}

// firewallPhrase says a level in a sentence.
func firewallPhrase(level string) string {
	number, rest, _ := strings.Cut(level, " ")
	if _, err := strconv.Atoi(number); err != nil {
		return "firewall " + level
	}
	return strings.TrimSuffix(number+" firewall rules "+rest, " ")
}

func parseFirewall(text string) (kernel.Firewall, bool) {
	words := strings.Fields(text)
	if len(words) == 1 && words[0] == "off" {
		return kernel.Firewall{}, true
	}
	if len(words) == 0 {
		return kernel.Firewall{}, false
	}
	n, err := strconv.Atoi(words[0])
	if err != nil || n < 0 || n > maxRules {
		return kernel.Firewall{}, false
	}
	f := kernel.Firewall{On: true, Rules: n}
	rest := strings.Join(words[1:], " ")
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
	return f, rest == ""
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
	return State(text)
}

func (firewall) Read(context.Context, Place) (State, error) {
	f, err := kernel.ReadFirewall()
	if err != nil {
		return "", conclude(err)
	}
	return spellFirewall(f), nil
}

func (firewall) Apply(_ context.Context, _ Place, s State) error {
	f, ok := parseFirewall(string(s))
	if !ok {
		return refuse("firewall", string(s), firewallWords)
	}
	return conclude(kernel.SetFirewall(f))
}

func (firewall) Check(_ context.Context, _ Place, s State) check.Answer {
	f, ok := parseFirewall(string(s))
	if !ok || !f.On {
		return check.OK()
	}
	return answer(kernel.ProbeFirewall(f))
}
