package driver

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// bsdPowerd prints the command line of powerd(8), which sets the clock by the load.
const bsdPowerd = `for p in $(pgrep -x powerd); do ps -o args= -p "$p"; done`

// The states of a clock are powerd's command line, its highest or lowest level with nobody to change it, or
// another such level in MHz. powerd with -v stays in the foreground, and -P names a file to be written.
var (
	powerdState = regexp.MustCompile(`^powerd( -([abn] ?(max|maximum|min|minimum|adp|adaptive|hadp|` +
		`hiadaptive)|[imMpr] ?[0-9]{1,6}|s ?(sysctl|devd|apm)|N))*$`)
	fixedState = regexp.MustCompile(`^fixed [0-9]{1,6}$`)
)

// sameLevel is the difference in MHz below which cpufreq(4) takes two clocks for one (CPUFREQ_CMP).
const sameLevel = 25

// parseBSDLevels reads MHz, highest first, of "2200/45000 1600/28000", MHz and mW (cpufreq(4)).
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

// readBSDLevels reads the levels that can be set, the one that is, and powerd's command lines.
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
	if n := len(levels); n < 2 || levels[0]-levels[n-1] < sameLevel {
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

// bsdGovernor is the state by the level that is set and, behind it, powerd's command lines.
func bsdGovernor(levels []int, lines []string) (string, error) {
	if words := strings.Fields(strings.Join(lines[1:], " ; ")); len(words) > 0 {
		words[0] = path.Base(words[0])
		state := strings.Join(words, " ")
		if !powerdState.MatchString(state) {
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

// bsdClockScript ends powerd, which then sets the clock once more, and sets the clock to $1 MHz, or starts it
// with $2…, with the priority of any process: a guard has a higher one.
const bsdClockScript = `for p in $(pgrep -x powerd); do kill "$p"; n=0
while kill -0 "$p" 2>/dev/null && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done; done
mhz=$1; shift; [ -z "$mhz" ] || exec sysctl "dev.cpu.0.freq=$mhz"
renice 0 -p $$ >/dev/null 2>&1; exec powerd "$@" </dev/null`

func applyBSDGovernor(ctx context.Context, h host.Host, _, value string) error {
	words := strings.Fields(value)
	mhz := 0
	switch {
	case powerdState.MatchString(value):
		return change(ctx, h, bsdClockScript, append([]string{""}, words[1:]...)...)
	case fixedState.MatchString(value):
		mhz, _ = strconv.Atoi(words[1]) // which it is
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
