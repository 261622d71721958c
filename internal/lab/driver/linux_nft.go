package driver

import (
	"cmp"
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

// The tables are those of kernel.SetFirewall, SetNAT and SetMSSClamp, so that either finds the other's.
const (
	firewallTable = kernel.TablePrefix + "firewall"
	natTable      = kernel.TablePrefix + "nat"
	mssTable      = kernel.TablePrefix + "mss"
)

// listTable prints a table, or nothing if there is none; another failure of nft is one.
const listTable = `command -v nft >/dev/null || { echo "it has no nft" >&2; exit 69; }
out=$(nft -n list table "$1" "$2" 2>&1) && printf '%s\n' "$out" && exit 0
case $out in *"No such file"*) exit 0;; esac; printf '%s\n' "$out" >&2; exit 1`

func readFirewall(ctx context.Context, h host.Host, _ string) (string, error) {
	return ofFamilies(ctx, h, firewallTable, parseFirewall)
}

// ofFamilies reads a state from a table that IPv4 and IPv6 both have.
func ofFamilies(ctx context.Context, h host.Host, table string, parse func(string) (string, error)) (string,
	error) {
	var found [2]string
	for i, family := range []string{"ip", "ip6"} {
		out, err := shell(ctx, h, "", listTable, family, table)
		if err == nil {
			found[i], err = parse(out)
		}
		if err != nil {
			return "", err
		}
	}
	if found[0] != found[1] {
		return "", fmt.Errorf("IPv4 has %q, IPv6 %q, want the same", found[0], found[1])
	}
	return found[0], nil
}

// parseFirewall reads our rules from what nft prints of their table, in the words of knob.Firewall.
func parseFirewall(text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "off", nil
	}
	rules, form := 0, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasSuffix(line, "saddr vmap @sources"):
			form = " in a map"
		case strings.HasSuffix(line, "saddr @sources drop"):
			form = " in a set"
		case strings.Contains(line, "saddr ") && strings.HasSuffix(line, " drop"):
			rules++
		}
	}
	if _, elements, ok := strings.Cut(text, "elements = {"); form != "" && ok {
		elements, _, _ = strings.Cut(elements, "}")
		rules = strings.Count(strings.TrimRight(elements, " \t\n,"), ",") + 1
	}
	state := strconv.Itoa(rules) + form
	for _, mark := range []string{"stateful", "log"} {
		if strings.Contains(text, "chain "+mark+" {") {
			state += " " + mark
		}
	}
	parsed, err := knob.Firewall().Parse(state)
	return string(parsed), err
}

// replaceTable has nft read a table from its input, in place of the one before, in one transaction.
func replaceTable(ctx context.Context, h host.Host, family, table, body string) error {
	input := fmt.Sprintf("add table %s %s\ndelete table %s %s\n", family, table, family, table)
	if body != "" {
		input += fmt.Sprintf("table %s %s {\n%s}\n", family, table, body)
	}
	return change(ctx, h, input, "nft -f -")
}

func applyFirewall(ctx context.Context, h host.Host, _, value string) error {
	for _, f := range []struct {
		family, kind string
		address      func(i int) netip.Addr
	}{
		// Addresses that no packet bears, as kernel.SetFirewall has them.
		{"ip", "ipv4_addr", func(i int) netip.Addr {
			return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0xf000_0001+uint32(i))))
		}},
		{"ip6", "ipv6_addr", func(i int) netip.Addr {
			a := netip.MustParseAddr("2001:db8::1").As16()
			binary.BigEndian.PutUint32(a[8:], uint32(i))
			return netip.AddrFrom16(a)
		}},
	} {
		body, err := firewallRules(value, f.family, f.kind, f.address)
		if err == nil {
			err = replaceTable(ctx, h, f.family, firewallTable, body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// firewallRules is the table of a state, "" for none.
func firewallRules(value, family, kind string, address func(int) netip.Addr) (string, error) {
	f, err := knob.ParseFirewall(value)
	if err != nil || !f.On {
		return "", err
	}
	var b, chain strings.Builder
	if f.Stateful {
		b.WriteString("chain stateful { }\n")
		chain.WriteString("ct state established,related accept\n")
	}
	if f.Log { // which package kernel marks by a chain of that name, a word that nft keeps for itself
		return "", fmt.Errorf("%w: driver linux makes no firewall that logs", host.ErrUnsupported)
	}
	lookup := func(declaration, verdict, rule string) {
		fmt.Fprintf(&b, "%s sources { type %s; ", declaration, kind+
			map[string]string{"map": " : verdict"}[declaration])
		for i := range f.Rules {
			fmt.Fprintf(&b, "%s%s%s", map[bool]string{true: "elements = { ", false: ", "}[i == 0], address(i),
				verdict)
		}
		if f.Rules > 0 {
			b.WriteString(" }; ")
		}
		b.WriteString("}\n")
		fmt.Fprintf(&chain, "%s saddr %s\n", family, rule)
	}
	switch f.Form {
	case kernel.FirewallSet:
		lookup("set", "", "@sources drop")
	case kernel.FirewallMap:
		lookup("map", " : drop", "vmap @sources")
	default:
		for i := range f.Rules {
			fmt.Fprintf(&chain, "%s saddr %s drop\n", family, address(i))
		}
	}
	fmt.Fprintf(&b, "chain forward { type filter hook forward priority 0;\n%s}\n", chain.String())
	return b.String(), nil
}

func readNAT(ctx context.Context, h host.Host, _ string) (string, error) {
	out, err := shell(ctx, h, "", listTable, "ip", natTable)
	switch {
	case err != nil:
		return "", err
	case strings.Contains(out, "chain prerouting"):
		return string(kernel.NATForward), nil
	case strings.Contains(out, "masquerade"):
		return string(kernel.NATMasquerade), nil
	}
	return string(kernel.NATOff), nil
}

// applyNAT translates what leaves by the port, or else by the one named wan.
func applyNAT(ctx context.Context, h host.Host, port, value string) error {
	switch kernel.NATMode(value) {
	case kernel.NATOff:
		return replaceTable(ctx, h, "ip", natTable, "")
	case kernel.NATMasquerade:
		return replaceTable(ctx, h, "ip", natTable, fmt.Sprintf(
			"chain postrouting { type nat hook postrouting priority 100;\noifname %q masquerade\n}\n",
			cmp.Or(port, "wan")))
	}
	return fmt.Errorf("%w: driver linux forwards no ports", host.ErrUnsupported)
}

func readMSSClamp(ctx context.Context, h host.Host, _ string) (string, error) {
	return ofFamilies(ctx, h, mssTable, parseMSSClamp)
}

// parseMSSClamp reads what kernel.SetMSSClamp notes in the name of a chain.
func parseMSSClamp(text string) (string, error) {
	_, name, ok := strings.Cut(text, "chain to_")
	size, _, _ := strings.Cut(name, " ")
	switch {
	case !ok:
		size = "off"
	case size == strconv.Itoa(kernel.ClampToPMTU):
		size = "pmtu"
	}
	state, err := knob.MSSClamp().Parse(size)
	return string(state), err
}

func applyMSSClamp(ctx context.Context, h host.Host, _, value string) error {
	size, rule := value, "tcp option maxseg size > "+value+" tcp option maxseg size set "+value
	if value == "pmtu" {
		size, rule = strconv.Itoa(kernel.ClampToPMTU), "tcp option maxseg size set rt mtu"
	}
	body := fmt.Sprintf("chain to_%s { }\nchain forward {\ntype filter hook forward priority 0;\n"+
		"tcp flags & (syn | rst) == syn %s\n}\n", size, rule)
	if value == "off" {
		body = ""
	}
	for _, family := range []string{"ip", "ip6"} {
		if err := replaceTable(ctx, h, family, mssTable, body); err != nil {
			return err
		}
	}
	return nil
}
