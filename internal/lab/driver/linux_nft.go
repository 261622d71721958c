package driver

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// These are the tables that kernel.FirewallRules, SetNAT and MSSClamp use, too, so an agent and this driver
// recognise each other's rules.
const (
	firewallTable = kernel.TablePrefix + "firewall"
	natTable      = kernel.TablePrefix + "nat"
	mssTable      = kernel.TablePrefix + "mss"
)

// listTable defines a shell function that prints an nft table, or nothing if the table does not exist. The
// function fails if nft reports another error.
const listTable = `command -v nft >/dev/null || { echo "it has no nft" >&2; exit 69; }
list() { out=$(nft -n list table "$1" "$2" 2>&1) && printf '%s\n' "$out" && return
case $out in *"No such file"*) return 0;; esac; printf '%s\n' "$out" >&2; exit 1; }
`

// ofFamilies returns the setting for a table that exists for IPv4 and for IPv6.
func ofFamilies(table string, parse func(text string) (string, error),
	apply func(ctx context.Context, h host.Host, dev, value string) error) setting {
	script := listTable + "list ip " + table + "; echo ip6; list ip6 " + table
	x := scripted(false, script, func(text string) (string, error) {
		v4, v6, _ := strings.Cut("\n"+text, "\nip6\n")
		state4, err := parse(v4)
		if err != nil {
			return "", err
		}

		state6, err := parse(v6)
		if err == nil && state4 != state6 {
			return "", fmt.Errorf("IPv4 has %q, IPv6 %q, want the same", state4, state6)
		}

		return state6, err
	}, "")
	x.apply = apply
	return x
}

// parseFirewall returns the state of knob.Firewall, given our table as printed by nft.
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

	return knob.Firewall().Parse(state)
}

// replaceTable replaces an nft table in one transaction.
func replaceTable(ctx context.Context, h host.Host, family, table, body string) error {
	input := fmt.Sprintf("add table %s %s\ndelete table %s %s\n", family, table, family, table)
	if body != "" {
		input += fmt.Sprintf("table %s %s {\n%s}\n", family, table, body)
	}
	return changeBy(ctx, h, input, "nft -f -")
}

func applyFirewall(ctx context.Context, h host.Host, _, value string) error {
	f, err := knob.ParseFirewall(value)
	// Package kernel marks a logging firewall with a chain named "log". An nft script cannot create this
	// chain, because "log" is a reserved word in nft.
	if err == nil && f.Log {
		err = lacks("driver linux makes no firewall that logs")
	}

	for family, kind := range []string{"ipv4_addr", "ipv6_addr"} {
		if err == nil {
			err = replaceTable(ctx, h, families[family], firewallTable, firewallRules(f, family == 1, kind))
		}
	}

	return err
}

var families = [...]string{"ip", "ip6"}

// firewallRules returns the contents of a firewall's table, or "" if the firewall is off. The rules match
// addresses that occur in no packet.
func firewallRules(f kernel.Firewall, ipv6 bool, kind string) string {
	if !f.On {
		return ""
	}

	match := "ip saddr "
	if ipv6 {
		match = "ip6 saddr "
	}

	declarations, rules := "", ""
	if f.Stateful {
		declarations = "chain stateful { }\n"
		rules = "ct state established,related accept\n"
	}

	var elements []string
	for i := range f.Rules {
		elements = append(elements, kernel.StrangeSource(ipv6, i).String())
	}

	verdict := ""
	switch f.Form {
	case kernel.FirewallSet:
		rules += match + "@sources drop\n"
		declarations += "set sources { type " + kind + "; "
	case kernel.FirewallMap:
		rules += match + "vmap @sources\n"
		declarations += "map sources { type " + kind + " : verdict; "
		verdict = " : drop"
	default:
		for _, address := range elements {
			rules += match + address + " drop\n"
		}

		elements = nil
	}

	if len(elements) > 0 {
		declarations += "elements = { " + strings.Join(elements, verdict+", ") + verdict + " }; "
	}

	if f.Form != kernel.FirewallList {
		declarations += "}\n"
	}

	return declarations + "chain forward { type filter hook forward priority 0;\n" + rules + "}\n"
}

func parseNAT(text string) (string, error) {
	switch {
	case strings.Contains(text, "chain prerouting"):
		return string(kernel.NATForward), nil
	case strings.Contains(text, "masquerade"):
		return string(kernel.NATMasquerade), nil
	}
	return string(kernel.NATOff), nil
}

// applyNAT sets address translation for packets that leave through a port. The default port is "wan".
func applyNAT(ctx context.Context, h host.Host, port, value string) error {
	switch kernel.NATMode(value) {
	case kernel.NATOff:
		return replaceTable(ctx, h, "ip", natTable, "")
	case kernel.NATMasquerade:
		return replaceTable(ctx, h, "ip", natTable, fmt.Sprintf(
			"chain postrouting { type nat hook postrouting priority 100;\noifname %q masquerade\n}\n",
			cmp.Or(port, "wan")))
	}
	return lacks("driver linux forwards no ports")
}

// parseMSSClamp returns the state of knob.MSSClamp, which kernel.MSSClamp encodes in the name of a chain.
func parseMSSClamp(text string) (string, error) {
	_, name, ok := strings.Cut(text, "chain to_")
	size, _, _ := strings.Cut(name, " ")
	switch {
	case !ok:
		size = "off"
	case size == strconv.Itoa(kernel.ClampToPMTU):
		size = "pmtu"
	}

	return knob.MSSClamp().Parse(size)
}

func applyMSSClamp(ctx context.Context, h host.Host, _, value string) error {
	size := value
	rule := "tcp option maxseg size > " + value + " tcp option maxseg size set " + value
	if value == "pmtu" {
		size = strconv.Itoa(kernel.ClampToPMTU)
		rule = "tcp option maxseg size set rt mtu"
	}

	body := fmt.Sprintf("chain to_%s { }\nchain forward {\ntype filter hook forward priority 0;\n"+
		"tcp flags & (syn | rst) == syn %s\n}\n", size, rule)
	if value == "off" {
		body = ""
	}

	for _, family := range families {
		if err := replaceTable(ctx, h, family, mssTable, body); err != nil {
			return err
		}
	}

	return nil
}
