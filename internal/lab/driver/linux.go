package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Linux is the driver for Linux. It uses a POSIX shell, cat for files in /proc and /sys, tc for queues, nft
// for the firewall and address translation, and ethtool for offloads. If one of these programs is missing,
// the settings that need it are unsupported. The devices under test are the Ethernet devices that are not
// stacked on others. The device "wan" leads to the far side.
type Linux struct {
	Sysctls knob.Permission // kernel settings that may be changed
}

// Name implements Driver.
func (Linux) Name() string { return "linux" }

// Check implements Driver.
func (Linux) Check(ctx context.Context, h host.Host) check.Answer {
	system, a := identify(ctx, h, `uname -s; [ -r /proc/net/dev ]`)
	if a.State == check.Yes && system != "Linux" {
		return check.Not("%s is %s, not Linux", h.Name(), system)
	}
	return a
}

// identify runs a script that prints what the router is. The answer is yes if the script could be run.
func identify(ctx context.Context, h host.Host, script string) (system string, a check.Answer) {
	out, err := shell(ctx, h, script)
	switch {
	case errors.Is(err, host.ErrUnsupported):
		return "", check.Not("%s has no POSIX shell: %v", h.Name(), err)
	case err != nil:
		return "", check.CouldNotTell("%v", err)
	}
	return strings.TrimSpace(out), check.OK()
}

// printSystem prints the release files of the system, and the release and machine type of the kernel.
const printSystem = `for f in /etc/os-release /etc/openwrt_release; do
[ ! -r $f ] || head -n 100 $f; echo; done; echo "KERNEL=$(uname -r)"; echo "MACHINE=$(uname -m)"`

// Facts implements Describing.
func (Linux) Facts(ctx context.Context, h host.Host) (map[string]string, error) {
	out, err := ask(ctx, h, "read facts", printSystem)
	return parseSystem(out), err
}

func parseSystem(text string) map[string]string {
	facts := map[string]string{"os": "linux"}
	for name, value := range probe.SystemFacts(text) {
		addFact(facts, name, value)
	}

	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, "=")
		name := map[string]string{"KERNEL": "kernel", "MACHINE": "machine"}[key]
		if name != "" {
			addFact(facts, name, value)
		}
	}

	return facts
}

// isUnavailable reports whether err is the error of a script that ended because the system lacks a feature.
// Our scripts then exit with 69 (EX_UNAVAILABLE), and the shell exits with 127 if a command is missing.
func isUnavailable(err error) bool {
	code, _ := host.ExitCode(err)
	return code == 69 || code == 127
}

// lacks returns an error that wraps host.ErrUnsupported and states a reason.
func lacks(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{host.ErrUnsupported}, args...)...)
}

// answerTime is the time limit for a command. It is long because a saturated router answers late.
const answerTime = 2 * time.Minute

// ownPath adds the directories of administration commands to PATH, because the PATH of an ordinary user may
// lack them.
const ownPath = "PATH=$PATH:/sbin:/usr/sbin:/usr/local/sbin\n"

// shell runs a script on the router with args as $1, $2 and so on, and returns its standard output.
func shell(ctx context.Context, h host.Host, script string, args ...string) (string, error) {
	return feed(ctx, h, "", script, args...)
}

// ask is like shell. Its error names the operation and the router.
func ask(ctx context.Context, h host.Host, operation, script string, args ...string) (string, error) {
	out, err := shell(ctx, h, script, args...)
	return out, failed(h, operation, err)
}

// failed adds an operation and the router to err, unless err is nil.
func failed(h host.Host, operation string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s on %s: %w", operation, h.Name(), err)
	}
	return err
}

// feed is like shell, but passes input to the script's standard input.
func feed(ctx context.Context, h host.Host, input, script string, args ...string) (string, error) {
	c := host.Command{Path: "sh", Args: append([]string{"-c", ownPath + script, "sh"}, args...)}
	if input != "" {
		c.Stdin = strings.NewReader(input)
	}

	ctx, cancel := host.Within(ctx, answerTime)
	defer cancel()
	out, err := host.Run(ctx, h, c)
	if isUnavailable(err) {
		return "", lacks("%w", err)
	}

	return string(out), err
}

// setting reads and applies the states of a knob for a device, or for the whole node if dev is "".
type setting struct {
	ofDevice bool
	// read returns the state that want would replace, or the whole state if want is "".
	read  func(ctx context.Context, h host.Host, dev, want string) (string, error)
	apply func(ctx context.Context, h host.Host, dev, value string) error
}

// scripted returns a setting implemented by two scripts. In both, $1 is the device, or "" for the node. parse
// converts the output of the script read to a state. The script apply sets the value $2.
func scripted(ofDevice bool, read string, parse func(text string) (string, error), apply string) setting {
	return setting{
		ofDevice: ofDevice,
		read: func(ctx context.Context, h host.Host, dev, _ string) (string, error) {
			out, err := shell(ctx, h, read, dev)
			if err != nil {
				return "", lacking(err)
			}
			return parse(out)
		},
		apply: func(ctx context.Context, h host.Host, dev, value string) error {
			return lacking(change(ctx, h, apply, dev, value))
		},
	}
}

// verbatim returns the output of a script that prints a state, without surrounding spaces.
func verbatim(text string) (string, error) { return strings.TrimSpace(text), nil }

// parseCounts parses n counts that are separated by white space.
func parseCounts(text string, n int) ([]int, error) {
	var counts []int
	for _, word := range strings.Fields(text) {
		v, err := strconv.ParseUint(word, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("it printed %q, want %d counts", told(text), n)
		}

		counts = append(counts, int(v))
	}

	if len(counts) != n {
		return nil, fmt.Errorf("it printed %q, want %d counts", told(text), n)
	}

	return counts, nil
}

func linuxSettings() map[string]setting {
	inSysfs := func(name string) setting {
		return inFile(true, func(dev string) string { return "/sys/class/net/" + dev + "/" + name })
	}
	// The length is set with ip(8), because a write to sysfs requires privileges on the machine, even in a
	// network namespace.
	queueLength := inSysfs("tx_queue_len")
	queueLength.apply = scripted(true, "", nil, `ip link set dev "$1" qlen "$2"`).apply
	nat := scripted(false, listTable+"list ip "+natTable, parseNAT, "")
	nat.apply = applyNAT
	return map[string]setting{
		"link_mtu":      inSysfs("mtu"),
		"txqueuelen":    queueLength,
		"napi_threaded": threads(`dev=$1; devices() { echo "$dev"; }` + "\n"),
		"conntrack_max": inFile(false, func(string) string { return conntrackMax }),
		"ip_forward":    {false, readForwarding, applyForwarding},
		"queue":         {true, readQueue, applyQueue},
		"offload":       {true, readOffload, applyOffload},
		"firewall":      ofFamilies(firewallTable, parseFirewall, applyFirewall),
		"nat":           nat,
		"mss_clamp":     ofFamilies(mssTable, parseMSSClamp, applyMSSClamp),
		"governor": scripted(false, eachDomain+"cat $f || exit 1; done", parseGovernors,
			"set -- ${2#each }; "+eachDomain+`echo "$1" > $f || exit 1; [ $# -eq 1 ] || shift; done; [ $n -gt 0 ]`),
	}
}

// threads returns the setting for threaded NAPI. The argument defines a shell function called devices, which
// prints the devices to read and set.
func threads(devices string) setting {
	return scripted(true, devices+`t=$(for d in $(devices); do cat "/sys/class/net/$d/threaded" || exit 69; done) || exit 69
case $(echo "$t" | sort -u) in 0) echo off;; 1) echo on;;
*) echo "the devices below $1 differ" >&2; exit 69;; esac`, verbatim,
		devices+`case $2 in on) v=1;; *) v=0;; esac
for d in $(devices); do echo $v | cat >"/sys/class/net/$d/threaded" || exit 1; done`)
}

// eachDomain is the start of a shell loop over all CPU frequency domains in numerical order.
const eachDomain = `n=0; i=0; while [ $i -lt 1024 ]; do
f=/sys/devices/system/cpu/cpufreq/policy$i/scaling_governor; i=$((i+1)); [ -e $f ] || continue; n=$((n+1))
`

func parseGovernors(text string) (string, error) {
	names := strings.Fields(text)
	if len(names) == 0 {
		return "", lacks("the kernel does not set the clock here (no cpufreq)")
	}

	return knob.Governor().Parse("each " + strings.Join(names, " "))
}

// inFile returns a setting whose state is the content of a kernel file.
func inFile(ofDevice bool, path func(dev string) string) setting {
	return setting{
		ofDevice: ofDevice,
		read: func(ctx context.Context, h host.Host, dev, _ string) (string, error) {
			return readWord(ctx, h, path(dev))
		},
		apply: func(ctx context.Context, h host.Host, dev, value string) error {
			return writeWord(ctx, h, path(dev), value)
		},
	}
}

// sysctlOf returns the setting for a sysctl. Its states have the form "name=value".
func sysctlOf(name string, value setting) setting {
	return setting{
		read: func(ctx context.Context, h host.Host, _, _ string) (string, error) {
			v, err := value.read(ctx, h, "", "")
			return name + "=" + v, err
		},
		apply: func(ctx context.Context, h host.Host, _, state string) error {
			return value.apply(ctx, h, "", strings.TrimPrefix(state, name+"="))
		},
	}
}

// settingOf returns the setting for a knob.
func (x Linux) settingOf(name string) (setting, error) {
	if l, ok := linuxSettings()[name]; ok {
		return l, nil
	}

	sysctl, ok := strings.CutPrefix(name, "sysctl:")
	if !ok {
		return setting{}, lacks("driver linux does not know it")
	}

	path, _ := kernel.SysctlPath(sysctl) // a name without a path is never permitted
	file := inFile(false, func(string) string { return path })
	return sysctlOf(sysctl, file), x.Sysctls.Sysctl(sysctl, "the router")
}

// WithoutNAT implements Advising.
func (Linux) WithoutNAT() string {
	return "nft -a list ruleset, and nft delete rule for rules with masquerade or snat; or iptables -t nat " +
		"-S, and iptables -t nat -D"
}

// Read implements Driver.
func (x Linux) Read(ctx context.Context, h host.Host, s record.Setting) (string, error) {
	return settings{x.settingOf, linuxDevices}.read(ctx, h, s)
}

// Apply implements Driver.
func (x Linux) Apply(ctx context.Context, h host.Host, s record.Setting) error {
	return settings{x.settingOf, linuxDevices}.apply(ctx, h, s)
}

// settings reads and applies the settings of a system.
type settings struct {
	// of returns the setting for a knob.
	of func(knob string) (setting, error)
	// devices returns the Ethernet devices that are up and not stacked on others.
	devices func(ctx context.Context, h host.Host) ([]string, error)
}

// find returns the setting for a knob, the devices to apply it to, and the value for each device. For a
// setting of the whole node, the only device is the port, which may be "".
func (x settings) find(ctx context.Context, h host.Host, s record.Setting) (l setting, devices []string,
	each map[string]knob.State, err error) {
	l, err = x.of(s.Knob)
	if err != nil || !l.ofDevice {
		return l, []string{s.Port}, map[string]knob.State{s.Port: s.Value}, err
	}

	devices = []string{s.Port}
	if s.Port == "" {
		devices, err = x.devices(ctx, h)
	}

	if len(devices) == 0 && err == nil {
		err = errors.New("no Ethernet device is up")
	}

	return l, devices, knob.Each(s.Value, devices), err
}

func (x settings) read(ctx context.Context, h host.Host, s record.Setting) (string, error) {
	l, devices, wanted, err := x.find(ctx, h, s)
	now := map[string]knob.State{}
	for _, dev := range devices {
		if err == nil {
			now[dev], err = l.read(ctx, h, dev, wanted[dev])
		}
	}

	if err != nil {
		return "", failed(h, "read "+s.Knob, err)
	}

	return knob.OfAll(now), nil
}

func (x settings) apply(ctx context.Context, h host.Host, s record.Setting) error {
	l, _, each, err := x.find(ctx, h, s)
	for _, dev := range slices.Sorted(maps.Keys(each)) {
		if err == nil {
			if err = l.apply(ctx, h, dev, each[dev]); err != nil && l.ofDevice {
				err = fmt.Errorf("device %s: %w", dev, err)
			}
		}
	}

	return failed(h, "apply "+s.Knob+"="+s.Value, err)
}

func linuxDevices(ctx context.Context, h host.Host) ([]string, error) {
	out, err := shell(ctx, h, `for d in /sys/class/net/*; do
[ "$(cat "$d/type")" = 1 ] && [ "$(cat "$d/operstate")" != down ] || continue
for l in "$d"/lower_*; do [ -e "$l" ] && continue 2; done
echo "${d##*/}"; done`)
	return strings.Fields(out), err
}

const (
	forwardIPv4  = "/proc/sys/net/ipv4/ip_forward"
	forwardIPv6  = "/proc/sys/net/ipv6/conf/all/forwarding"
	conntrackMax = "/proc/sys/net/netfilter/nf_conntrack_max"
)

// readWord reads a kernel file that contains one line.
func readWord(ctx context.Context, h host.Host, path string) (string, error) {
	b, err := h.ReadFile(ctx, path)
	return strings.Join(strings.Fields(string(b)), " "), lacking(err)
}

func writeWord(ctx context.Context, h host.Host, path, value string) error {
	return lacking(h.WriteFile(ctx, path, []byte(value+"\n")))
}

func readForwarding(ctx context.Context, h host.Host, _, _ string) (string, error) {
	v4, err := readWord(ctx, h, forwardIPv4)
	if err != nil {
		return "", err
	}

	v6, err := readWord(ctx, h, forwardIPv6)
	if errors.Is(err, host.ErrUnsupported) {
		v6, err = "0", nil // the file is missing in a kernel without IPv6
	}

	return knob.Forwarding(v4 != "0", v6 != "0"), err
}

func applyForwarding(ctx context.Context, h host.Host, _, value string) error {
	v4, v6 := knob.ForwardingBits(value)
	if err := writeWord(ctx, h, forwardIPv4, v4); err != nil {
		return err
	}

	err := writeWord(ctx, h, forwardIPv6, v6)
	if errors.Is(err, host.ErrUnsupported) && v6 == "0" {
		return nil
	}

	return err
}

// summaries maps feature names in the output of ethtool to kernel names where they differ.
var summaries = map[string]string{"generic-receive-offload": "rx-gro", "large-receive-offload": "rx-lro",
	"generic-segmentation-offload": "tx-generic-segmentation"}

// featuresOf returns the state of each offload of a device, and the offloads that cannot be changed.
func featuresOf(ctx context.Context, h host.Host, dev string) (has, fixed map[string]bool, err error) {
	out, err := shell(ctx, h, `ethtool -k "$1"`, dev)
	has, fixed = parseFeatures(out)
	return has, fixed, err
}

// parseFeatures parses the output of ethtool -k: lines of the form "name: on", optionally followed by
// "[fixed]" or "[requested on]".
func parseFeatures(text string) (has, fixed map[string]bool) {
	has = map[string]bool{}
	fixed = map[string]bool{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}

		name = cmp.Or(summaries[name], name)
		state, note, _ := strings.Cut(value, " ")
		has[name] = state == "on"
		if note == "[fixed]" {
			fixed[name] = true
		}
	}

	return has, fixed
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func readOffload(ctx context.Context, h host.Host, dev, _ string) (string, error) {
	has, fixed, err := featuresOf(ctx, h, dev)
	return knob.OffloadState(has, fixed), err
}

func applyOffload(ctx context.Context, h host.Host, dev, value string) error {
	has, fixed, err := featuresOf(ctx, h, dev)
	if err != nil {
		return err
	}

	want := knob.OffloadFeatures(value, has, fixed)
	names, err := featuresToChange(h, want, has, fixed)
	if err != nil || len(names) == 0 {
		return err
	}

	args := []string{dev}
	for _, name := range names {
		args = append(args, name, onOff(want[name]))
	}

	return change(ctx, h, `dev=$1; shift; ethtool -K "$dev" "$@"`, args...)
}

// featuresToChange returns the features whose state differs from the wanted state. If commands are only
// recorded (see written), it returns all features that can be changed, because their state may differ when
// the commands run.
func featuresToChange(h host.Host, want, has, fixed map[string]bool) (names []string, err error) {
	_, later := h.(*written)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		now, known := has[name]
		if !known || fixed[name] && now != want[name] {
			return nil, lacks("%s cannot be changed", name)
		}

		if now != want[name] || later && !fixed[name] {
			names = append(names, name)
		}
	}
	return names, nil
}

// Counters implements Counting.
func (Linux) Counters(ctx context.Context, h host.Host, devices []string) (map[string]kernel.LinkCounters,
	error) {
	var all map[string]map[string]uint64
	b, err := h.ReadFile(ctx, "/proc/net/dev")
	if err == nil {
		all, err = probe.DeviceCounters(b)
	}

	return linkCounters(h, devices, all, err)
}

// linkCounters returns the counters of the given devices. all contains the counters of every device, named
// like the columns of probe netdev. err is the error with which they were read.
func linkCounters(h host.Host, devices []string, all map[string]map[string]uint64, err error) (
	map[string]kernel.LinkCounters, error) {
	out := map[string]kernel.LinkCounters{}
	for _, dev := range devices {
		c := all[dev]
		for _, name := range []string{"rx_bytes", "rx_packets", "tx_bytes", "tx_packets"} {
			if _, ok := c[name]; !ok && err == nil {
				err = fmt.Errorf("none is reported for %s", dev)
			}
		}

		out[dev] = kernel.LinkCounters{
			RxBytes:   c["rx_bytes"],
			RxPackets: c["rx_packets"],
			RxDropped: c["rx_dropped"],
			TxBytes:   c["tx_bytes"],
			TxPackets: c["tx_packets"],
			TxDropped: c["tx_dropped"],
		}
	}
	return out, failed(h, "read counters", err)
}
