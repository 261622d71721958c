package driver

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// noPF knows what pfctl says where pf is not loaded, or not to be touched.
func noPF(err error) error {
	if err != nil && strings.Contains(err.Error(), "/dev/pf") {
		return fmt.Errorf("%w: %w", host.ErrUnsupported, err)
	}
	return err
}

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
		if len(words) < 2 {
			continue
		}
		for _, known := range []struct {
			is bool
			to *int
			at int
		}{
			{len(words) == 4 && words[0] == "states" && words[1] == "hard", &l.states, 3},
			{words[0] == "adaptive.start", &l.start, 1}, {words[0] == "adaptive.end", &l.end, 1},
		} {
			if !known.is {
				continue
			}
			if *known.to, err = strconv.Atoi(strings.TrimRight(words[known.at], "s")); err != nil {
				return l, fmt.Errorf("pfctl says %q, want a number", told(line))
			}
		}
	}
	if l.states < 0 {
		return l, fmt.Errorf("pfctl says %q, want a limit of states", told(text))
	}
	return l, nil
}

func readPFLimits(ctx context.Context, h host.Host) (pfLimits, error) {
	out, err := bsd(ctx, h, `pfctl -sm && pfctl -st`)
	if err != nil {
		return pfLimits{}, noPF(err)
	}
	return parsePFLimits(out)
}

func readPFStates(ctx context.Context, h host.Host, _ string) (string, error) {
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
	return noPF(bsdChange(ctx, h, options, `pfctl -q -m -O -f -`))
}

// The rules stand in an anchor of ours, where the main rule set has a place for such.
const (
	pfAnchor = "cp/rules"
	pfTable  = "cp_sources"
)

const readAnchor = `rules=$(pfctl -sr) || exit 1
case $rules in *'anchor "cp/*"'*) ;; *) echo 'the rule set of pf has no anchor "cp/*"; by hand: that line' \
'in /etc/pf.conf, and pfctl -f /etc/pf.conf; the rule set that OPNsense makes takes none' >&2; exit 69;; esac
pfctl -a ` + pfAnchor + ` -sr 2>/dev/null
echo table; pfctl -a ` + pfAnchor + ` -t ` + pfTable + ` -T show 2>/dev/null; true`

func readPFRules(ctx context.Context, h host.Host, _ string) (string, error) {
	out, err := bsd(ctx, h, readAnchor)
	if err != nil {
		return "", noPF(err)
	}
	return parsePFRules(out)
}

// parsePFRules reads our rules from what pfctl prints of the anchor and of its table, in the words of
// knob.Firewall: packets of known states pass ahead of all rules of pf.
func parsePFRules(text string) (string, error) {
	rules, table, _ := strings.Cut("\n"+text, "\ntable\n")
	if strings.Contains(rules, "from <"+pfTable+">") {
		var v4, v6 int
		for _, word := range strings.Fields(table) {
			if strings.Contains(word, ":") {
				v6++
			} else {
				v4++
			}
		}
		return pfState(v4, v6, " in a set")
	}
	return pfState(strings.Count(rules, "\nblock drop quick inet from "),
		strings.Count(rules, "\nblock drop quick inet6 from "), "")
}

func pfState(v4, v6 int, form string) (string, error) {
	switch {
	case v4 != v6:
		return "", fmt.Errorf("IPv4 has %d rules, IPv6 %d, want the same", v4, v6)
	case v4 == 0:
		return "off", nil
	}
	state, err := knob.Firewall().Parse(strconv.Itoa(v4) + form + " stateful")
	return string(state), err
}

func applyPFRules(ctx context.Context, h host.Host, _, value string) error {
	input, err := pfRules(value)
	if err != nil {
		return err
	}
	if input == "" {
		return noPF(bsdChange(ctx, h, "", `pfctl -q -a `+pfAnchor+` -F rules && pfctl -q -a `+pfAnchor+
			` -F Tables`))
	}
	// Not optimized: pfctl would make a table of the list.
	return noPF(bsdChange(ctx, h, input, `pfctl -q -o none -a `+pfAnchor+` -f -`))
}

// pfRules is the anchor's content for a state, "" for none: addresses that no packet bears, as
// kernel.SetFirewall has them.
func pfRules(value string) (string, error) {
	f, err := knob.ParseFirewall(value)
	switch {
	case err != nil || !f.On:
		return "", err
	case !f.Stateful:
		return "", fmt.Errorf("%w: pf lets packets of known states pass ahead of all rules; write \"%s stateful\"",
			host.ErrUnsupported, value)
	case f.Rules == 0 || f.Log || f.Form == kernel.FirewallMap:
		return "", fmt.Errorf("%w: driver freebsd makes no such firewall", host.ErrUnsupported)
	}
	var b strings.Builder
	v6 := netip.MustParseAddr("2001:db8::").As16()
	set := f.Form == kernel.FirewallSet
	if set {
		b.WriteString("table <" + pfTable + "> const {\n")
	}
	for _, family := range []string{"inet", "inet6"} {
		for i := range f.Rules {
			a := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0xf000_0001+uint32(i))))
			if family == "inet6" {
				binary.BigEndian.PutUint32(v6[8:], uint32(i))
				v6[15] = 1
				a = netip.AddrFrom16(v6)
			}
			if set {
				fmt.Fprintln(&b, a)
			} else {
				fmt.Fprintf(&b, "block drop quick %s from %s to any\n", family, a)
			}
		}
	}
	if set {
		b.WriteString("}\nblock drop quick from <" + pfTable + "> to any\n")
	}
	return b.String(), nil
}
