package driver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// rosMark is the prefix of the comments and names of all items that we add to the router.
const rosMark = "chokepoint"

func readROSMTU(ctx context.Context, h host.Host, dev, _ string) (string, error) {
	i, err := first(ctx, h, "/interface/print detail as-value where name="+quoteROS(dev))
	if err != nil {
		return "", err
	}

	n, known := i.number("mtu")
	if !known || n == 0 { // n is 0 if the console prints "auto"
		return "", lacks("the MTU of %s follows its ports (auto); set a number by hand, which then "+
			"can be put back", dev)
	}

	return strconv.FormatUint(n, 10), nil
}

func applyROSMTU(ctx context.Context, h host.Host, dev, value string) error {
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return err
	}
	return changeROS(ctx, h, fmt.Sprintf("/interface/set %s mtu=%d", find("/interface", "name", dev), n))
}

func readROSForwarding(ctx context.Context, h host.Host, _, _ string) (string, error) {
	v4, err := first(ctx, h, "/ip/settings/print as-value")
	if err != nil {
		return "", err
	}

	v6, err := first(ctx, h, "/ipv6/settings/print as-value")
	if v4["ip-forward"] == "" || err == nil && v6["forward"] == "" {
		return "", lacks("it does not say whether it forwards")
	}

	return knob.Forwarding(v4.yes("ip-forward"), v6.yes("forward")), err
}

func applyROSForwarding(ctx context.Context, h host.Host, _, value string) error {
	if _, err := knob.IPForward().Parse(value); err != nil {
		return err
	}

	v4, v6 := knob.ForwardingBits(value)
	word := map[string]string{"1": "yes", "0": "no"}
	return changeROS(ctx, h, "/ip/settings/set ip-forward="+word[v4], "/ipv6/settings/set forward="+word[v6])
}

// rosQueue is a queue in RouterOS: its kind, and the parameters that RouterOS supports, by their names in
// tc(8) and separated by spaces.
type rosQueue struct{ kind, parameters string }

// rosQueues lists RouterOS's queues by their names in tc(8). A port with queue type no-queue uses the ring of
// its device. A port with mq-pfifo has a queue for each ring.
var rosQueues = map[string]rosQueue{
	"noqueue":  {"none", ""},
	"mq":       {"mq-pfifo", ""},
	"pfifo":    {"pfifo", "limit"},
	"bfifo":    {"bfifo", "limit"},
	"codel":    {"codel", "limit target interval ecn"},
	"fq_codel": {"fq-codel", "limit flows quantum target interval ecn memory_limit"},
	"cake":     {"cake", "bandwidth diffserv flowmode rtt memlimit nat wash ack-filter overhead mpu cells"},
}

// name returns RouterOS's name of a parameter, or "" if it does not support the parameter. RouterOS prefixes
// the parameters of a queue type with its kind, as in fq-codel-limit.
func (q rosQueue) name(parameter string) string {
	if !slices.Contains(strings.Fields(q.parameters), parameter) {
		return ""
	}

	other := map[string]string{"cells": "atm", "memory_limit": "memlimit"}[parameter]
	return q.kind + "-" + cmp.Or(other, parameter)
}

// noQueue is the queue type of devices without a software queue.
const noQueue = "no-queue"

// queueOfType converts a RouterOS queue type to a queue.
func queueOfType(name string, types []item) (none qdisc.Queue, err error) {
	if name == noQueue {
		return qdisc.Queue{Kind: "noqueue"}, nil
	}

	at := slices.IndexFunc(types, func(i item) bool { return i["name"] == name })
	if at < 0 {
		return none, fmt.Errorf("it has no queue type %s", name)
	}

	t := types[at]
	for kind, q := range rosQueues {
		if q.kind != t["kind"] {
			continue
		}

		words := []string{kind}
		parameters, _ := qdisc.Parameters(kind)
		for _, p := range parameters {
			text, has := t[q.name(p.Name)]
			if !has {
				continue
			}

			more, err := queueWord(p, text)
			if err != nil {
				return none, fmt.Errorf("queue type %s: %s: %w", name, p.Name, err)
			}

			words = append(words, more...)
		}

		all, err := qdisc.Parse(strings.Join(words, " "))
		if err != nil {
			return none, err
		}

		return all[0], nil
	}

	return none, lacks("driver routeros does not speak of queue %s", t["kind"])
}

// queueWord converts the value of a parameter from RouterOS to the syntax of tc(8). It returns nil for the
// kernel's default.
func queueWord(p qdisc.Parameter, text string) ([]string, error) {
	switch {
	case p.Name == "ack-filter" && text == "aggressive":
		return nil, lacks("%s", text)
	case p.Quantity == qdisc.Flag && slices.Contains([]string{"true", "yes", "filter"}, text):
		return []string{p.Name}, nil
	case p.Quantity == qdisc.Flag:
		return []string{"no" + p.Name}, nil
	case p.Quantity == qdisc.Word && text == "none":
		return []string{"noatm"}, nil
	case p.Quantity == qdisc.Word:
		return []string{text}, nil
	case p.Quantity == qdisc.Microseconds:
		d, err := parseROSTime(text)
		return []string{p.Name, strconv.FormatInt(d.Microseconds(), 10) + "us"}, err
	}

	n, err := parseROSNumber(text)
	switch {
	case p.Quantity == qdisc.BitsPerSecond && n == 0:
		return []string{p.Name, "unlimited"}, err
	case p.Quantity == qdisc.Bytes && n == 0:
		return nil, err
	}

	return []string{p.Name, strconv.FormatUint(n, 10)}, err
}

// parseROSNumber parses a number with an optional unit, such as 10240, 32.0MiB, 50M or 100.0Mbps.
func parseROSNumber(text string) (uint64, error) {
	number := strings.TrimSuffix(text, "B")
	scale := 1.0
	for suffix, factor := range map[string]float64{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30} {
		if bare, ok := strings.CutSuffix(number, suffix); ok {
			number, scale = bare, factor
		}
	}

	v, err := unit.ParseBitrate(number)
	n := float64(v) * scale
	if err != nil || n >= 1e15 {
		return 0, fmt.Errorf("%q is no number", told(text))
	}

	return uint64(n + .5), nil
}

// queueArguments returns the arguments of /queue/type/add for a queue.
func queueArguments(queue qdisc.Queue) (string, error) {
	q, known := rosQueues[queue.Kind]
	if !known || queue.Parent != 0 || queue.Handle != 0 {
		return "", lacks("driver routeros does not speak of queue %s; a rate is set by cake with a "+
			"bandwidth", queue.Kind)
	}

	out := "kind=" + q.kind
	parameters, _ := qdisc.Parameters(queue.Kind)
	for _, p := range parameters {
		v, given := queue.Values[p.Name]
		if !given {
			continue
		}

		value := strconv.FormatUint(v, 10)
		switch {
		case p.Quantity == qdisc.Microseconds:
			value = p.Spell(v)
		case p.Name == "ack-filter":
			value = [...]string{"none", "filter"}[v]
		case p.Quantity == qdisc.Flag:
			value = [...]string{"no", "yes"}[v]
		case p.Quantity == qdisc.Word && p.Words[v] == "noatm":
			value = "none"
		case p.Quantity == qdisc.Word:
			value = p.Words[v]
		}

		switch theirs := q.name(p.Name); {
		case theirs != "":
			out += " " + theirs + "=" + value
		case value != "no":
			return "", lacks("queue %s of RouterOS has no %s", q.kind, p.Name)
		}
	}

	return out, nil
}

// rosQueueOf returns the current queue type of a device, its type before we changed it, and all queue types.
func rosQueueOf(ctx context.Context, h host.Host, dev string) (now, original string, types []item,
	err error) {
	i, err := first(ctx, h, "/queue/interface/print as-value where interface="+quoteROS(dev))
	if err == nil {
		types, err = items(ctx, h, "/queue/type/print detail as-value")
	}

	now = i["queue"]
	original, _ = strings.CutPrefix(now, ownQueue(dev))
	return now, original, types, err
}

// ownQueue returns the name prefix of the queue type that we add for a device. In the full name, the name of
// the original type follows, so that another controller can find that type even after a reboot.
func ownQueue(dev string) string { return rosMark + ":" + dev + ":" }

func readROSQueue(ctx context.Context, h host.Host, dev, _ string) (string, error) {
	now, _, types, err := rosQueueOf(ctx, h, dev)
	if err != nil {
		return "", err
	}

	q, err := queueOfType(now, types)
	return q.String(), err
}

func applyROSQueue(ctx context.Context, h host.Host, dev, value string) error {
	wanted, err := qdisc.Parse(value)
	if err != nil {
		return err
	}

	_, original, types, err := rosQueueOf(ctx, h, dev)
	if err != nil {
		return err
	}

	own := find("/queue/type", "name", ownQueue(dev)+original)
	set := "/queue/interface/set " + find("/queue/interface", "interface", dev) + " queue="
	if before, err := queueOfType(original, types); err == nil && before.String() == wanted[0].String() {
		return changeROS(ctx, h, set+quoteROS(original), "/queue/type/remove "+own)
	}

	arguments, err := queueArguments(wanted[0])
	if err != nil {
		return err
	}

	name := quoteROS(ownQueue(dev) + original)
	return changeROS(ctx, h, ":if ([:len "+own+"] = 0) do={/queue/type/add name="+name+" "+arguments+
		"} else={/queue/type/set "+own+" "+arguments+"}", set+name)
}

// rosFamilies lists the menus of IPv4 and IPv6, which have the same structure, and expressions for addresses
// that occur in no packet, as in kernel.FirewallRules.
var rosFamilies = [...]struct{ menu, address string }{
	{"/ip/firewall", `("240.0." . ($cpRule / 256) . "." . ($cpRule % 256))`},
	{"/ipv6/firewall", `("2001:db8:0:0:" . ($cpRule / 1000) . ":" . ($cpRule % 1000) . "::")`},
}

// rosChain is the filter chain for our rules. We do not change other chains.
const rosChain = rosMark

// These are the comments of our rules and the name of our address list.
const (
	jumpMark, ruleMark  = rosMark + " firewall jump", rosMark + " firewall rule"
	setMark, statedMark = rosMark + " firewall set", rosMark + " firewall stateful"
	logMark             = rosMark + " firewall log"
	rosList             = rosMark + "-firewall"
	natMark             = rosMark + " nat"
	fastMark, offMark   = rosMark + " fasttrack", rosMark + " off:"
)

// firewallMarks lists comments in the order of the counts in parseROSFirewall.
var firewallMarks = [...]string{jumpMark, ruleMark, setMark, statedMark, logMark}

func readROSFirewall(ctx context.Context, h host.Host, _, _ string) (string, error) {
	var counts []string
	for _, f := range rosFamilies {
		for _, mark := range firewallMarks {
			counts = append(counts, ":put [:len "+find(f.menu+"/filter", "comment", mark)+"]")
		}

		counts = append(counts, ":put [:len "+find(f.menu+"/address-list", "list", rosList)+"]")
	}

	out, err := console(ctx, h, counts...)
	if err != nil {
		return "", err
	}

	return parseROSFirewall(out)
}

// parseROSFirewall parses six counts per IP version: jump rules, drop rules, set rules, rules for known
// connections, logging rules, and addresses in the list.
func parseROSFirewall(text string) (string, error) {
	n, err := parseCounts(text, 12)
	switch {
	case err != nil:
		return "", err
	case !slices.Equal(n[:6], n[6:]):
		return "", fmt.Errorf("IPv4 has %v rules, IPv6 %v, want the same", n[:6], n[6:])
	case n[0] == 0:
		return "off", nil
	}

	state := strconv.Itoa(n[1])
	if n[2] > 0 {
		state = strconv.Itoa(n[5]) + " in a set"
	}

	for i, word := range []string{" stateful", " log"} {
		if n[3+i] > 0 {
			state += word
		}
	}

	return knob.Firewall().Parse(state)
}

func applyROSFirewall(ctx context.Context, h host.Host, _, value string) error {
	f, err := knob.ParseFirewall(value)
	if err == nil && f.Form == kernel.FirewallMap {
		err = lacks("RouterOS has no map of verdicts")
	}

	if err != nil {
		return err
	}

	var out []string
	for _, family := range rosFamilies {
		filter := family.menu + "/filter"
		list := family.menu + "/address-list"
		for _, mark := range firewallMarks {
			out = append(out, remove(filter, "comment", mark))
		}

		out = append(out, remove(list, "list", rosList))
		if !f.On {
			continue
		}

		add := func(mark, rest string) string {
			return filter + "/add chain=" + rosChain + " comment=" + quoteROS(mark) + " " + rest
		}
		each := func(statement string) {
			if f.Rules > 0 {
				out = append(out, fmt.Sprintf(":for cpRule from=1 to=%d do={%s}", f.Rules, statement))
			}
		}
		if f.Stateful {
			out = append(out, add(statedMark, "connection-state=established,related action=return"))
		}

		if f.Form == kernel.FirewallSet {
			each(list + "/add list=" + quoteROS(rosList) + " address=" + family.address)
			out = append(out, add(setMark, "src-address-list="+quoteROS(rosList)+" action=drop"))
		} else {
			each(add(ruleMark, "src-address="+family.address+" action=drop"))
		}

		if f.Log {
			out = append(out, add(logMark, "action=log log-prefix="+quoteROS(rosMark)))
		}

		out = append(out, onTop(filter, "forward", "action=jump jump-target="+rosChain+" comment="+
			quoteROS(jumpMark)))
	}

	return changeROS(ctx, h, out...)
}

// onTop returns a statement that inserts a rule before all others in its chain except dynamic rules, which
// RouterOS itself adds.
func onTop(menu, chain, rule string) string {
	add := menu + "/add chain=" + chain + " " + rule
	return ":do {:local cpTop " + find(menu, "chain", chain, "dynamic", "no") +
		"; :if ([:len $cpTop] = 0) do={" + add + "} else={" + add + " place-before=($cpTop->0)}}"
}

func readROSNAT(ctx context.Context, h host.Host, _, _ string) (string, error) {
	const nat = "/ip/firewall/nat"
	out, err := console(ctx, h, ":put [:len "+find(nat, "comment", natMark)+"]",
		":put [:len "+find(nat, "chain", "srcnat", "disabled", "no", "dynamic", "no")+"]")
	if err != nil {
		return "", err
	}

	n, err := parseCounts(out, 2)
	switch {
	case err != nil:
		return "", err
	case n[1] > n[0]:
		return "", lacks("the router translates addresses by rules of its own; those of the path " +
			"are to be disabled by hand: /ip/firewall/nat")
	case n[0] > 0:
		return string(kernel.NATMasquerade), nil
	}

	return string(kernel.NATOff), nil
}

func applyROSNAT(ctx context.Context, h host.Host, port, value string) error {
	const nat = "/ip/firewall/nat"
	out := []string{remove(nat, "comment", natMark)}
	switch kernel.NATMode(value) {
	case kernel.NATOff:
	case kernel.NATMasquerade:
		out = append(out, onTop(nat, "srcnat", "action=masquerade out-interface="+
			quoteROS(cmp.Or(port, "wan"))+" comment="+quoteROS(natMark)))
	default:
		return lacks("driver routeros forwards no ports")
	}

	return changeROS(ctx, h, out...)
}

// fastTracking returns an expression for FastTrack rules. They make connections bypass the filter, connection
// tracking and simple queues.
func fastTracking(menu, disabled string) string {
	return find(menu, "action", "fasttrack-connection", "disabled", disabled, "dynamic", "no")
}

// readFastTrack returns the state of FastTrack, which is RouterOS's equivalent of a flow table.
func readFastTrack(ctx context.Context, h host.Host, _, _ string) (string, error) {
	n, err := count(ctx, h, fastTracking("/ip/firewall/filter", "no"))
	return onOff(n > 0), err
}

// applyFastTrack turns FastTrack on or off. To turn it off, applyFastTrack disables the router's rules and
// marks them. To turn it on, it enables marked rules, or adds a rule if there is none. It does not change
// existing connections.
func applyFastTrack(ctx context.Context, h host.Host, _, value string) error {
	if _, err := knob.Flowtable().Parse(value); err != nil {
		return err
	}

	var out []string
	mark := quoteROS(offMark)
	length := strconv.Itoa(len(offMark))
	for _, family := range rosFamilies {
		filter := family.menu + "/filter"
		get := "[:tostr [" + filter + "/get $cpFast comment]]"
		set := filter + "/set $cpFast disabled="
		out = append(out, remove(filter, "comment", fastMark))
		if value == "off" {
			out = append(out, ":foreach cpFast in="+fastTracking(filter, "no")+" do={"+set+"yes comment=("+
				mark+" . "+get+")}")
			continue
		}

		out = append(out, ":foreach cpFast in="+fastTracking(filter, "yes")+" do={:if ([:pick "+get+" 0 "+
			length+"] = "+mark+") do={"+set+"no comment=[:pick "+get+" "+length+" [:len "+get+"]]}}")
	}

	if value == "on" {
		const filter = "/ip/firewall/filter"
		out = append(out, ":if ([:len "+fastTracking(filter, "no")+"] = 0) do={"+onTop(filter, "forward",
			"action=fasttrack-connection connection-state=established,related comment="+
				quoteROS(fastMark))+"}")
	}

	return changeROS(ctx, h, out...)
}

// seconds formats a duration for the console. It rounds down to whole seconds, but to no less than 1 s.
func seconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64(d/time.Second)), 10) + "s"
}
