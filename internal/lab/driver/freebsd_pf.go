package driver

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// pfLimits are pf's limit of states and from where on to where their timeouts shrink (pf.conf(5), adaptive).
type pfLimits struct{ states, start, end int }

// usual reports whether the timeouts are those that pfctl sets with a limit: from 60 % on, to 120 %
// (pfctl_load_options).
func (l pfLimits) usual() bool { return l.start == l.states/10*6 && l.end == l.states/10*12 }

// parsePFLimits reads "states hard limit N" of pfctl -sm, and "adaptive.start N states" of pfctl -st.
func parsePFLimits(text string) (l pfLimits, err error) {
	l.states = -1
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		to := &l.states
		switch {
		case len(words) == 4 && words[0] == "states":
			words = words[2:]
		case len(words) > 1 && words[0] == "adaptive.start":
			to = &l.start
		case len(words) > 1 && words[0] == "adaptive.end":
			to = &l.end
		default:
			continue
		}
		if *to, err = strconv.Atoi(strings.TrimSuffix(words[1], "s")); err != nil {
			break
		}
	}
	if err != nil || l.states < 0 {
		return l, fmt.Errorf("pfctl says %q, want a limit of states", told(text))
	}
	return l, nil
}

func readPFLimits(ctx context.Context, h host.Host) (pfLimits, error) {
	out, err := shell(ctx, h, `pfctl -sm && pfctl -st`)
	if err != nil {
		return pfLimits{}, lacking(err)
	}
	return parsePFLimits(out)
}

func readPFStates(ctx context.Context, h host.Host, _, _ string) (string, error) {
	l, err := readPFLimits(ctx, h)
	return strconv.Itoa(l.states), err
}

// applyPFStates merges the one option into pf's, and leaves timeouts that somebody has chosen as they are.
func applyPFStates(ctx context.Context, h host.Host, _, value string) error {
	n, err := strconv.Atoi(value)
	if err != nil {
		return err
	}
	l, err := readPFLimits(ctx, h)
	if err != nil {
		return err
	}
	options := fmt.Sprintf("set limit states %d\n", n)
	if !l.usual() {
		options += fmt.Sprintf("set timeout { adaptive.start %d, adaptive.end %d }\n", l.start, l.end)
	}
	return lacking(changeBy(ctx, h, options, `pfctl -q -m -O -f -`))
}

// pfAnchor holds our rules, where the main rule set has a place for such.
const pfAnchor = "cp/rules"

const readAnchor = `rules=$(pfctl -sr) || exit 1
case $rules in *'anchor "cp/*"'*) ;; *) echo 'the rule set of pf has no anchor "cp/*"; by hand: that line' \
'in /etc/pf.conf, and pfctl -f /etc/pf.conf; the rule set that OPNsense makes takes none' >&2; exit 69;; esac
pfctl -a ` + pfAnchor + ` -sr 2>/dev/null; true`

// parsePFRules reads our rules from what pfctl prints of the anchor, in the words of knob.Firewall: packets
// of known states pass ahead of all rules of pf.
func parsePFRules(text string) (string, error) {
	v4 := strings.Count("\n"+text, "\nblock drop quick inet from ")
	v6 := strings.Count("\n"+text, "\nblock drop quick inet6 from ")
	switch {
	case v4 != v6:
		return "", fmt.Errorf("IPv4 has %d rules, IPv6 %d, want the same", v4, v6)
	case v4 == 0:
		return "off", nil
	}
	return strconv.Itoa(v4) + " stateful", nil
}

func applyPFRules(ctx context.Context, h host.Host, _, value string) error {
	input, err := pfRules(value)
	if err != nil {
		return err
	}
	script := `pfctl -q -a ` + pfAnchor + ` -F rules`
	if input != "" { // not optimized: pfctl would make a table of the list
		script = `pfctl -q -o none -a ` + pfAnchor + ` -f -`
	}
	return lacking(changeBy(ctx, h, input, script))
}

// pfRules is the anchor's content for a state, "" for none. No packet bears its addresses.
func pfRules(value string) (string, error) {
	f, err := knob.ParseFirewall(value)
	switch {
	case err != nil || !f.On:
		return "", err
	case f.Rules == 0 || f.Log || f.Form != kernel.FirewallList:
		return "", lacks("driver freebsd makes lists of rules alone")
	case !f.Stateful:
		return "", lacks("packets of known states pass ahead of all rules of pf; write %q", value+" stateful")
	}
	rules := ""
	for _, family := range []string{"inet", "inet6"} {
		for i := range f.Rules {
			rules += fmt.Sprintf("block drop quick %s from %s to any\n", family,
				kernel.StrangeSource(family == "inet6", i))
		}
	}
	return rules, nil
}
