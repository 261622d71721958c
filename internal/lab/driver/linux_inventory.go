package driver

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// maxRuleset is the maximum size of the nft ruleset's text, in bytes.
const maxRuleset = 1 << 20

// printInventory prints the parts of the inventory, each preceded by its name. If a part cannot be read, the
// script prints "missing" and the reason. The output of "ip xfrm state" contains keys, so the script prints
// only the replay windows from it.
var printInventory = `part() { echo "part $1"; }
missing() { echo "missing $*"; }
file() { part "$1"; shift; cat "$@" 2>&1 || missing "$1 cannot be read"; }
has() { command -v "$1" >/dev/null; }
set --; part devices
for d in /sys/class/net/*; do n=${d##*/}
[ "$(cat "$d/operstate")" = down ] || [ "$n" = lo ] && continue
set -- "$@" "$n"; lower=
for l in "$d"/lower_*; do [ -e "$l" ] && lower=${l##*/lower_}; done
kind=$(sed -n 's/^DEVTYPE=//p' "$d/uevent")
if [ -e "$d/bridge" ]; then kind=bridge lower=; elif [ -e "$d/bonding" ]; then kind=bond lower=
elif [ -e "$d/tun_flags" ]; then kind=tun; elif [ -e "$d/device" ]; then kind=physical
elif [ -z "$kind" ]; then case $(cat "$d/type") in 512) kind=ppp;; 778) kind=gre;; *) kind=virtual;; esac; fi
master=$(readlink "$d/master")
echo "link $n|$kind|${master##*/}|$lower|$(cat "$d/mtu")|$(cat "$d/speed" 2>/dev/null)|$(cat "$d/ifindex")"
done
part queues; if has tc; then ( ` + printQueues + ` ) || missing "tc cannot list queues"
else missing "it has no tc"; fi
part filter; if has nft; then t=; nft -t list tables >/dev/null 2>&1 && t=-t
nft -a $t list ruleset 2>&1 | head -c ` + strconv.Itoa(maxRuleset) + `; echo; else missing "it has no nft"; fi
legacy() { [ -e "/proc/net/$1" ] || return
tables=$(cat "/proc/net/$1") || { missing "/proc/net/$1 cannot be read"; return; }
for t in $tables; do c=$(command -v "$2-legacy" || command -v "$2")
case $("$c" --version 2>&1) in *nf_tables*|*"not found"*) missing "it has no $2-legacy"; return;; esac
echo "table $3 $t $("$c" -t "$t" -S | grep -c '^-A')"; done; }
part iptables; legacy ip_tables_names iptables ip; legacy ip6_tables_names ip6tables ip6
file taps /proc/net/packet
file nfqueues /proc/net/netfilter/nfnetlink_queue
file conntrack /proc/sys/net/netfilter/nf_conntrack_max /proc/sys/net/netfilter/nf_conntrack_count
file bridge_filter /proc/sys/net/bridge/bridge-nf-call-iptables
part xfrm; if ip xfrm state count >/dev/null 2>&1; then ip xfrm state |
sed -n -e 's/.*replay-window \([0-9]*\).*/state \1/p' -e 's/.*replay_window \([0-9]*\).*/window \1/p'
else missing "its ip does not list IPsec associations"; fi`

// Inventory implements Inventorying.
func (Linux) Inventory(ctx context.Context, h host.Host) (*record.Inventory, error) {
	out, err := ask(ctx, h, "read inventory", printInventory)
	return parseInventory(check.Plain(out)), err
}

// parseInventory parses the output of printInventory.
func parseInventory(text string) *record.Inventory {
	v := &record.Inventory{Missing: map[string]string{}}
	part := func(name string) string {
		_, rest, printed := strings.Cut("\n"+text, "\npart "+name+"\n")
		body, _, _ := strings.Cut("\n"+rest, "\npart ")
		body, why, missing := strings.Cut(body, "\nmissing ")
		switch {
		case !printed:
			v.Missing[name] = "the router's answer lacks it"
		case missing:
			v.Missing[name], _, _ = strings.Cut(why, "\n")
			return ""
		}
		return strings.TrimPrefix(body, "\n")
	}
	indices := map[int]string{}
	v.Devices = parseLinks(part("devices"), indices)
	queues := &record.Inventory{Devices: parseQueues(part("queues"))}
	for i := range v.Devices {
		d := &v.Devices[i]
		if q := queues.Device(d.Name); q != nil {
			d.Queues = q.Queues
			d.Filters = q.Filters
			d.Missing = q.Missing
		} else {
			d.Missing = cmp.Or(v.Missing["queues"], "tc did not list its queues")
		}
	}

	delete(v.Missing, "queues")
	ruleset := part("filter")
	if v.Missing["filter"] == "" {
		rules, err := parseRuleset(ruleset)
		switch {
		case err != nil:
			v.Missing["filter"] = err.Error()
		case len(ruleset) >= maxRuleset:
			v.Missing["filter"] = fmt.Sprintf("its text is longer than %d bytes", maxRuleset)
		default:
			v.Filter = rules.PacketFilter()
		}
	}

	legacy := map[string]int{}
	for line := range strings.Lines(part("iptables")) {
		f := strings.Fields(line)
		if len(f) == 4 && f[0] == "table" {
			n, _ := strconv.Atoi(f[3]) // 0 if it is not a number
			legacy[strings.TrimPrefix(f[1]+" "+f[2], "ip ")] = max(0, n)
		}
	}

	if len(legacy) > 0 {
		v.Filter = cmp.Or(v.Filter, &record.PacketFilter{})
		v.Filter.LegacyEntries = legacy
	}

	most, count, _ := strings.Cut(part("conntrack"), "\n")
	probe.AddProc(v, probe.ProcTexts{
		Taps:         part("taps"),
		NFQueues:     part("nfqueues"),
		Max:          most,
		Count:        count,
		BridgeFilter: part("bridge_filter"),
	}, func(index int) string { return indices[index] })
	windows := part("xfrm")
	if v.Missing["xfrm"] == "" {
		v.XFRM = parseWindows(windows)
	}

	return v
}

// parseLinks parses lines of the form "link NAME|KIND|MASTER|LOWER|MTU|SPEED|INDEX".
func parseLinks(text string, indices map[int]string) (out []record.NetDevice) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "link ")
		f := strings.Split(rest, "|")
		if !ok || len(f) != 7 || f[0] == "" {
			continue
		}

		d := record.NetDevice{Name: f[0], Kind: f[1], Master: f[2], Lower: f[3]}
		d.MTU, _ = strconv.Atoi(f[4]) // 0 if it is unknown
		if speed, err := strconv.ParseFloat(f[5], 64); err == nil && speed > 0 {
			d.SpeedMbps = speed
		}

		if index, err := strconv.Atoi(f[6]); err == nil {
			indices[index] = d.Name
		}

		out = append(out, d)
	}
	return out
}

// parseWindows parses a line "state N" for each association and, for each association with a replay window, a
// line "window N". If an association has two windows, N is the larger one.
func parseWindows(text string) *record.XFRMStates {
	x := &record.XFRMStates{}
	for line := range strings.Lines(text) {
		word, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(number)
		if word == "state" {
			x.States++
		}

		if err == nil && n > 0 {
			x.Replayed++
			if x.MinWindow == 0 || n < x.MinWindow {
				x.MinWindow = n
			}
		}
	}
	return x
}
