package knob

import (
	"context"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

const maxRules = 20_000

// Firewall is a chain of N rules that every forwarded packet runs through and
// none matches: "off", "N" or "N stateful"; stateful lets packets of known
// connections pass ahead of the N.
func Firewall() Knob { return firewall{} }

type firewall struct{}

func (firewall) Name() string { return "firewall" }

func (firewall) Parse(text string) (State, error) {
	f, ok := parseFirewall(text)
	if !ok {
		return "", refuse("firewall", text, "off, N or N stateful, with N from 0 to "+strconv.Itoa(maxRules))
	}
	return spellFirewall(f), nil
}

func parseFirewall(text string) (kernel.Firewall, bool) {
	words := strings.Fields(text)
	if len(words) == 1 && words[0] == "off" {
		return kernel.Firewall{}, true
	}
	if len(words) == 0 || len(words) > 2 || len(words) == 2 && words[1] != "stateful" {
		return kernel.Firewall{}, false
	}
	n, err := strconv.Atoi(words[0])
	if err != nil || n < 0 || n > maxRules {
		return kernel.Firewall{}, false
	}
	return kernel.Firewall{On: true, Rules: n, Stateful: len(words) == 2}, true
}

func spellFirewall(f kernel.Firewall) State {
	switch {
	case !f.On:
		return "off"
	case f.Stateful:
		return State(strconv.Itoa(f.Rules) + " stateful")
	}
	return State(strconv.Itoa(f.Rules))
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
		return refuse("firewall", string(s), "off, N or N stateful")
	}
	return conclude(kernel.SetFirewall(f))
}

func (firewall) Check(_ context.Context, _ Place, s State) check.Answer {
	f, ok := parseFirewall(string(s))
	if !ok || !f.On {
		return check.OK()
	}
	return answer(kernel.ProbeFirewall(f.Stateful))
}
