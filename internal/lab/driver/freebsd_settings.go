package driver

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// bsdPowerd prints the command line of powerd(8), which adjusts the CPU frequency to the load.
const bsdPowerd = `for p in $(pgrep -x powerd); do ps -o args= -p "$p"; done`

// A state of the governor has one of three forms: the command line of powerd; "performance" or "powersave",
// which mean the highest or lowest level without powerd; or another fixed level in MHz. Two options of powerd
// are excluded: -v, which keeps it in the foreground, and -P, which makes it write a file.
var (
	powerdState = check.Pattern(`^powerd( -([abn] ?(max|maximum|min|minimum|adp|adaptive|hadp|` +
		`hiadaptive)|[imMpr] ?[0-9]{1,6}|s ?(sysctl|devd|apm)|N))*$`)
	fixedState = check.Pattern(`^fixed [0-9]{1,6}$`)
)

// sameLevel is the difference in MHz below which cpufreq(4) treats two frequencies as equal (CPUFREQ_CMP).
const sameLevel = 25

// parseBSDLevels parses frequency levels, such as "2200/45000 1600/28000" in MHz and mW (cpufreq(4)). It
// returns the frequencies in MHz, the highest first.
func parseBSDLevels(text string) (levels []int) {
	for _, level := range strings.Fields(text) {
		mhz, _, _ := strings.Cut(level, "/")
		if n, err := strconv.ParseUint(mhz, 10, 31); err == nil && n > 0 {
			levels = append(levels, int(n))
		}
	}

	slices.SortFunc(levels, func(a, b int) int { return cmp.Compare(b, a) })
	return levels
}

// readBSDLevels returns the frequency levels, and further lines: the current level and the command lines of
// powerd.
func readBSDLevels(ctx context.Context, h host.Host) (levels []int, rest []string, err error) {
	out, err := shell(ctx, h, `sysctl -n dev.cpu.0.freq_levels && sysctl -n dev.cpu.0.freq && `+bsdPowerd)
	if err != nil {
		if strings.Contains(err.Error(), "unknown oid") {
			err = lacks("it has no dev.cpu.0.freq (cpufreq(4)): a virtual machine, or a processor " +
				"that no driver knows")
		}
		return nil, nil, err
	}

	first, after, _ := strings.Cut(out, "\n")
	levels = parseBSDLevels(first)
	n := len(levels)
	if n < 2 || levels[0]-levels[n-1] < sameLevel {
		return nil, nil, lacks("dev.cpu.0.freq_levels has one level alone, %q: the processor "+
			"chooses its clock itself; by hand, of Intel: sysctl dev.hwpstate_intel.N.epp=0, each N",
			told(first))
	}

	return levels, strings.Split(strings.TrimSpace(after), "\n"), nil
}

func readBSDGovernor(ctx context.Context, h host.Host, _, _ string) (string, error) {
	levels, told, err := readBSDLevels(ctx, h)
	if err != nil {
		return "", err
	}
	return bsdGovernor(levels, told)
}

// bsdGovernor returns the state of the governor. lines contains the current level and the command lines of
// powerd.
func bsdGovernor(levels []int, lines []string) (string, error) {
	words := strings.Fields(strings.Join(lines[1:], " ; "))
	if len(words) > 0 {
		words[0] = path.Base(words[0])
		state := strings.Join(words, " ")
		if !powerdState().MatchString(state) {
			return "", lacks("powerd runs as %q, and could not be started so again", told(state))
		}

		return state, nil
	}

	mhz, err := strconv.Atoi(lines[0])
	switch {
	case err != nil || mhz <= 0:
		return "", lacks("dev.cpu.0.freq is %q", told(lines[0]))
	case mhz > levels[0]-sameLevel:
		return "performance", nil
	case mhz < levels[len(levels)-1]+sameLevel:
		return "powersave", nil
	}

	return fmt.Sprintf("fixed %d", mhz), nil
}

// bsdClockScript stops powerd and waits until it has exited, because powerd sets the frequency once more on
// exit. The script then sets the frequency to $1 MHz. If $1 is empty, the script instead starts powerd with
// the other arguments. It starts powerd at normal priority, because powerd would otherwise inherit the higher
// priority of a guard.
const bsdClockScript = `for p in $(pgrep -x powerd); do kill "$p"; n=0
while kill -0 "$p" 2>/dev/null && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done; done
mhz=$1; shift; [ -z "$mhz" ] || exec sysctl "dev.cpu.0.freq=$mhz"
renice 0 -p $$ >/dev/null 2>&1; exec powerd "$@" </dev/null`

func applyBSDGovernor(ctx context.Context, h host.Host, _, value string) error {
	words := strings.Fields(value)
	mhz := 0
	switch {
	case powerdState().MatchString(value):
		return change(ctx, h, bsdClockScript, append([]string{""}, words[1:]...)...)
	case fixedState().MatchString(value):
		mhz, _ = strconv.Atoi(words[1]) // cannot fail, because fixedState has matched
	case value == "performance" || value == "powersave":
		levels, _, err := readBSDLevels(ctx, h)
		if err != nil {
			return err
		}

		mhz = levels[0]
		if value == "powersave" {
			mhz = levels[len(levels)-1]
		}
	default:
		return lacks("FreeBSD has performance and powersave; what is between is powerd's")
	}

	err := change(ctx, h, bsdClockScript, strconv.Itoa(mhz))
	if err != nil && strings.Contains(err.Error(), "Device busy") {
		err = lacks("%w: the time counter depends on the clock; by hand: sysctl "+
			"kern.timecounter.hardware=HPET", err)
	}

	return err
}

// pfLimits holds pf's maximum number of states, and the numbers of states at which adaptive timeouts start
// and end (pf.conf(5)).
type pfLimits struct{ states, start, end int }

// usual reports whether the adaptive timeouts have the values that pfctl derives from the limit: 60 % and 120
// % of the limit (pfctl_load_options).
func (l pfLimits) usual() bool { return l.start == l.states/10*6 && l.end == l.states/10*12 }

// parsePFLimits parses "states hard limit N" in the output of pfctl -sm, and "adaptive.start N states" in the
// output of pfctl -st.
func parsePFLimits(text string) (pfLimits, error) {
	limits := map[string]int{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		for _, word := range words {
			if n, err := strconv.ParseUint(strings.TrimSuffix(word, "s"), 10, 31); err == nil {
				limits[words[0]] = int(n)
			}
		}
	}

	states, ok := limits["states"]
	if !ok {
		return pfLimits{}, fmt.Errorf("pfctl printed %q, want a limit of states", told(text))
	}

	return pfLimits{states, limits["adaptive.start"], limits["adaptive.end"]}, nil
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

// applyPFStates sets the maximum number of states. This also resets the adaptive timeouts, so applyPFStates
// sets them again if the owner has changed them.
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

// pfAnchor is the anchor that contains our rules. The main rule set must refer to it.
const pfAnchor = "cp/rules"

const readAnchor = `rules=$(pfctl -sr) || exit 1
case $rules in *'anchor "cp/*"'*) ;; *) echo 'the rule set of pf has no anchor "cp/*"; by hand: that line' \
'in /etc/pf.conf, and pfctl -f /etc/pf.conf; the rule set that OPNsense makes takes none' >&2; exit 69;; esac
pfctl -a ` + pfAnchor + ` -sr 2>/dev/null; true`

// parsePFRules returns the state of knob.Firewall, given the rules in our anchor as listed by pfctl. The
// state includes "stateful", because pf passes packets of known states before it evaluates rules.
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
	if input != "" { // no optimization, because it would convert the list of addresses to a table
		script = `pfctl -q -o none -a ` + pfAnchor + ` -f -`
	}

	return lacking(changeBy(ctx, h, input, script))
}

// pfRules returns the rules for a state, or "" if the state has no rules. The rules match addresses that
// occur in no packet.
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

// bsdIdle defines a shell function that finds our idle policies in the output of setkey -DP
// (lib/libipsec/pfkey_dump.c). Our policies connect the networks of kernel.SetIdlePolicies. The endpoints of
// their tunnels are the addresses of these networks, and their request ID is $mark. With an argument, the
// function prints commands that delete our policies. Otherwise, it prints seven counts: all policies
// (computed from the sequence number of the first), policies printed, policies of other owners that have our
// selectors, and our policies for IPv4 out, IPv4 in, IPv6 out and IPv6 in.
const bsdIdle = `mark=16110
idle() { setkey -DP 2>&1 | awk -v list="$1" -v mark=$mark '
function far(a) { return sub(/^240\./, "248.", a) || sub(/^2001:db8:0:/, "2001:db8:8000:", a) ? a : "" }
function end(a) { sub(/\/.*/, "", a); return a }
/pfkey_open|not found/ { bad = $0 }
/^[0-9a-f]/ { s = $1; d = $2; upper = $3; request = "" }
/^\t(in|out) / { way = $1 }
/^\t(esp|ah|ipcomp)\// { request = request $1 }
/^\tspid=/ { split($2, seq, "="); if (!seen++) all = seq[2] + 1
near = way == "in" ? d : s
if (near !~ /^(240\.[0-9]+\.[0-9]+\.0\/24|2001:db8:0:[0-9a-f]+::\/64)\[any\]$/ || upper != "any" ||
far(near) != (way == "in" ? s : d)) next
if (request != "esp/tunnel/" end(s) "-" end(d) "/unique:" mark) { clash++; next }
n[way, (near ~ /:/)]++; sub(/\[any\]/, "", s); sub(/\[any\]/, "", d)
if (list) print "spddelete", s, d, "any -P", way ";" }
END { if (bad) print bad
else if (!list) print all+0, seen+0, clash+0, n["out", 0]+0, n["in", 0]+0, n["out", 1]+0, n["in", 1]+0 }'; }
`

// bsdSetIdle deletes our policies and adds $2 new ones. It repeats the deletion until no policy is left,
// because setkey may not print all policies at once. It detects failures by counting policies, because setkey
// reports failures only in its output.
const bsdSetIdle = bsdIdle + `i=0; while [ $i -lt 99 ]; do i=$((i+1)); old=$(idle list)
case $old in spddelete*) printf '%s\n' "$old" | setkey -c >/dev/null;; *) break;; esac; done
awk -v n="$2" -v mark=$mark 'function add(a, b, size) {
print "spdadd", a size, b size, "any -P out ipsec esp/tunnel/" a "-" b "/unique:" mark ";"
print "spdadd", b size, a size, "any -P in ipsec esp/tunnel/" b "-" a "/unique:" mark ";" }
BEGIN { for (i = 0; i < n; i++) { v4 = int(i/256) "." i%256 ".0"; v6 = sprintf("%x::", i+1)
add("240." v4, "248." v4, "/24"); add("2001:db8:0:" v6, "2001:db8:8000:" v6, "/64") }
}' | setkey -c >/dev/null`

func parseBSDIdle(text string) (string, error) {
	n, err := parseCounts(text, 7)
	if err != nil {
		return "", lacks("setkey printed %q; by hand: kldload ipsec", told(text))
	}

	all := n[0]
	printed := n[1]
	clash := n[2]
	ours := n[3:]
	switch {
	case printed < all:
		return "", lacks("setkey -DP printed %d of %d policies, as its socket holds no more; by "+
			"hand: sysctl kern.ipc.maxsockbuf=16777216, or fewer of them", printed, all)
	case clash > 0:
		return "", lacks("it has %d policies of others with the same selectors", clash)
	case slices.Min(ours) != slices.Max(ours):
		return "", fmt.Errorf("it has %v idle policies out and in of IPv4 and of IPv6, want the same number "+
			"of each", ours)
	}

	return strconv.Itoa(ours[0]), nil
}
