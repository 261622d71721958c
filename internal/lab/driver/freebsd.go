package driver

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// FreeBSD supports FreeBSD 14 and later, and OPNsense, with ifconfig, sysctl, pfctl and netstat. It changes
// only the running system and no configuration file. A reboot therefore undoes its changes. On OPNsense,
// applying the configuration also undoes them.
type FreeBSD struct {
	Sysctls knob.Permission // kernel settings that may be changed
}

// oldestFreeBSD is the oldest supported major release.
const oldestFreeBSD = 14

// Name implements Driver.
func (FreeBSD) Name() string { return "freebsd" }

// Check implements Driver.
func (FreeBSD) Check(ctx context.Context, h host.Host) check.Answer {
	system, a := identify(ctx, h, `uname -sr`)
	if a.State != check.Yes {
		return a
	}

	release, ok := strings.CutPrefix(told(system), "FreeBSD ")
	if !ok {
		return check.Not("%s is %s, not FreeBSD", h.Name(), told(system))
	}

	major, _, _ := strings.Cut(release, ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldestFreeBSD {
		return check.Not("%s is FreeBSD %s, older than %d", h.Name(), release, oldestFreeBSD)
	}

	return a
}

// told returns the beginning of a router's output as one line without unprintable characters.
func told(text string) string {
	const most = 200
	return strings.Join(strings.Fields(check.Plain(text[:min(len(text), most)])), " ")
}

// bsdFacts lists facts and the commands that print them.
var bsdFacts = []struct{ name, command string }{
	{"distribution", "command -v opnsense-version >/dev/null && echo opnsense || echo freebsd"},
	{"distribution_version", "opnsense-version 2>/dev/null || freebsd-version -u"},
	{"kernel", "uname -sr"}, {"machine", "uname -m"},
	{"cpu_model", "sysctl -n hw.model"}, {"cpu_threads", "sysctl -n hw.ncpu"},
	{"product", "kenv -q smbios.system.product"},
	{"clocksource", "sysctl -n kern.timecounter.hardware"},
	{"governor", "{ " + bsdPowerd + "; } | grep . || case $(sysctl -n dev.cpu.0.freq_levels) in *' '*) " +
		`echo "fixed at $(sysctl -n dev.cpu.0.freq) MHz";; esac`},
	{"frequency_driver", "sysctl -n dev.cpufreq.0.freq_driver"},
	{"sysctl:dev.cpu.0.freq_levels", "sysctl -n dev.cpu.0.freq_levels"},
	{"sysctl:dev.hwpstate_intel.0.epp", "sysctl -n dev.hwpstate_intel.0.epp"},
	{"sysctl:net.isr.dispatch", "sysctl -n net.isr.dispatch"},
	{"sysctl:net.isr.numthreads", "sysctl -n net.isr.numthreads"},
	{"sysctl:net.isr.bindthreads", "sysctl -n net.isr.bindthreads"},
	{"sysctl:net.inet.rss.enabled", "sysctl -n net.inet.rss.enabled"},
	{"sysctl:kern.random.harvest.mask", "sysctl -n kern.random.harvest.mask"},
}

// Facts implements Describing.
func (FreeBSD) Facts(ctx context.Context, h host.Host) (map[string]string, error) {
	script := ""
	for _, f := range bsdFacts {
		script += "echo " + host.Quote("fact "+f.name) + "; { " + f.command + "; } 2>/dev/null\n"
	}

	out, err := ask(ctx, h, "read facts", script+"true")
	facts := map[string]string{"os": "freebsd"}
	for _, f := range bsdFacts {
		_, rest, _ := strings.Cut("\n"+out, "\nfact "+f.name+"\n")
		value, _, _ := strings.Cut("\n"+rest, "\nfact ")
		addFact(facts, f.name, told(value))
	}

	return facts, err
}

func bsdSettings() map[string]setting {
	return map[string]setting{
		"link_mtu": scripted(true, `ifconfig -- "$1"`, parseBSDMTU, `ifconfig -- "$1" mtu "$2"`),
		"offload":  {true, readBSDOffload, applyBSDOffload},
		"ip_forward": scripted(false, `sysctl -n net.inet.ip.forwarding
sysctl -n net.inet6.ip6.forwarding 2>/dev/null || echo 0`, parseBSDForwarding, `v4=0 v6=0
case $2 in on) v4=1 v6=1;; ipv4) v4=1;; ipv6) v6=1;; esac
sysctl net.inet.ip.forwarding=$v4 && { sysctl net.inet6.ip6.forwarding=$v6 || [ $v6 = 0 ]; }`),
		"conntrack_max": {false, readPFStates, applyPFStates},
		"firewall":      {false, scripted(false, readAnchor, parsePFRules, "").read, applyPFRules},
		"governor":      {false, readBSDGovernor, applyBSDGovernor},
		"idle_policies": scripted(false, bsdIdle+"idle", parseBSDIdle, bsdSetIdle),
	}
}

// bsdByHand lists, for knobs that the driver does not support, the commands with which the owner applies the
// setting. These settings take effect at boot or belong to the configuration.
var bsdByHand = map[string]string{
	"queue": "kldload dummynet; dnctl pipe 1 config bw RATE; dnctl sched 1 config pipe 1 type fq_codel; a " +
		"rule of pf with dnpipe 1; on OPNsense Firewall, Shaper",
	"shape":        "kldload dummynet; dnctl pipe 1 config bw RATE; a rule of pf with dnpipe 1",
	"policer":      "a dummynet pipe with a short queue; on OPNsense Firewall, Shaper",
	"txqueuelen":   "net.link.ifqmaxlen=N in /boot/loader.conf, and a reboot",
	"nat":          "a nat rule in /etc/pf.conf, and pfctl -f /etc/pf.conf; on OPNsense Firewall, NAT",
	"vlan":         "ifconfig vlan create vlan ID vlandev DEVICE",
	"irq_affinity": "cpuset -l CORE -x IRQ, with the numbers of vmstat -i",
	"cpus":         "net.isr.maxthreads=-1 and net.isr.bindthreads=1 in /boot/loader.conf, and a reboot",
	"cpu_count":    "hint.lapic.ID.disabled=1 in /boot/loader.conf, and a reboot",
	"idle_tunnels": "ifconfig wg create for each",
	"flow_export":  "ng_netflow; on OPNsense Reporting, NetFlow",
}

func (x FreeBSD) settingOf(name string) (setting, error) {
	if s, ok := bsdSettings()[name]; ok {
		return s, nil
	}

	if sysctl, ok := strings.CutPrefix(name, "sysctl:"); ok {
		return sysctlOf(sysctl, bsdSysctl(sysctl)), x.Sysctls.Sysctl(sysctl, "the router")
	}

	step, ok := bsdByHand[name]
	if !ok {
		return setting{}, lacks("FreeBSD has no such thing")
	}

	return setting{}, lacks("driver freebsd leaves it alone; by hand: %s", step)
}

// WithoutNAT implements Advising.
func (FreeBSD) WithoutNAT() string {
	return "take the nat rule out of /etc/pf.conf, and pfctl -f /etc/pf.conf; on OPNsense Firewall, NAT, " +
		"Outbound, disable its rules"
}

// Read implements Driver.
func (x FreeBSD) Read(ctx context.Context, h host.Host, s record.Setting) (string, error) {
	return settings{x.settingOf, bsdDevices}.read(ctx, h, s)
}

// Apply implements Driver.
func (x FreeBSD) Apply(ctx context.Context, h host.Host, s record.Setting) error {
	return settings{x.settingOf, bsdDevices}.apply(ctx, h, s)
}

func bsdDevices(ctx context.Context, h host.Host) ([]string, error) {
	out, err := shell(ctx, h, `for d in $(ifconfig -l -u ether); do case $d in
*.*|bridge*|lagg*|vlan*|vxlan*|tap*) ;; *) echo "$d";; esac; done`)
	return strings.Fields(out), err
}

// bsdSysctl returns the setting for a sysctl.
func bsdSysctl(name string) setting {
	return scripted(false, "sysctl -n -- "+host.Quote(name), func(text string) (string, error) {
		value := strings.Join(strings.Fields(text), " ")
		if value == "" || check.Plain(value) != value {
			return "", fmt.Errorf("it is %q, which could not be put back", told(text))
		}
		return value, nil
	}, "sysctl -- "+host.Quote(name)+`="$2"`)
}

func parseBSDMTU(text string) (string, error) {
	first, _, _ := strings.Cut(text, "\n")
	_, mtu, _ := strings.Cut(first, " mtu ")
	n, err := strconv.Atoi(strings.TrimSpace(mtu))
	if err != nil {
		return "", fmt.Errorf("ifconfig printed %q, want an mtu", told(first))
	}

	return strconv.Itoa(n), nil
}

func parseBSDForwarding(text string) (string, error) {
	n, err := parseCounts(text, 2)
	if err != nil {
		return "", err
	}
	return knob.Forwarding(n[0] != 0, n[1] != 0), nil
}

// bsdFeatures lists offloads by their names in Linux, with FreeBSD's capabilities and ifconfig(8) arguments.
// Checksum offloads come first, because segmentation offloads require them.
var bsdFeatures = []struct{ name, capability, word string }{
	{"rx-checksum", "RXCSUM", "rxcsum"}, {"rx-checksum-ipv6", "RXCSUM_IPV6", "rxcsum6"},
	{"tx-checksum-ipv4", "TXCSUM", "txcsum"}, {"tx-checksum-ipv6", "TXCSUM_IPV6", "txcsum6"},
	{"tx-tcp-segmentation", "TSO4", "tso4"}, {"tx-tcp6-segmentation", "TSO6", "tso6"},
	{"rx-lro", "LRO", "lro"},
}

// parseCapabilities parses the output of ifconfig -m, which contains lines such as "options=3<RXCSUM,TXCSUM>"
// and "capabilities RXCSUM,TXCSUM". It returns the features that the device supports, and whether each is on.
func parseCapabilities(text string) map[string]bool {
	of := map[string][]string{}
	for line := range strings.Lines(text) {
		words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\n=<>,", r) })
		if len(words) > 0 && of[words[0]] == nil {
			of[words[0]] = words
		}
	}

	has := map[string]bool{}
	for _, f := range bsdFeatures {
		on := slices.Contains(of["options"], f.capability)
		if on || slices.Contains(of["capabilities"], f.capability) {
			has[f.name] = on
		}
	}

	return has
}

func readBSDFeatures(ctx context.Context, h host.Host, dev string) (map[string]bool, error) {
	out, err := shell(ctx, h, `ifconfig -m -- "$1"`, dev)
	return parseCapabilities(out), err
}

// readBSDOffload returns the state of all features, because some device drivers change several of them
// together.
func readBSDOffload(ctx context.Context, h host.Host, dev, _ string) (string, error) {
	has, err := readBSDFeatures(ctx, h, dev)
	if err != nil || len(has) == 0 {
		return "wire", err
	}

	var list []string
	for _, name := range slices.Sorted(maps.Keys(has)) {
		list = append(list, name+"="+onOff(has[name]))
	}

	return strings.Join(list, " "), nil
}

func applyBSDOffload(ctx context.Context, h host.Host, dev, value string) error {
	if value == "super" {
		return lacks("FreeBSD passes on no super-packets but by LRO, which changes them")
	}

	has, err := readBSDFeatures(ctx, h, dev)
	if err != nil {
		return err
	}

	want := knob.OffloadFeatures(value, has, nil)
	names, err := featuresToChange(h, want, has, nil)
	if err != nil || len(names) == 0 {
		return err
	}

	args := []string{dev}
	for _, f := range bsdFeatures {
		word := f.word
		if !want[f.name] {
			word = "-" + word
		}

		if slices.Contains(names, f.name) {
			args = append(args, word)
		}
	}

	return change(ctx, h, `dev=$1; shift; ifconfig -- "$dev" "$@"`, args...)
}

// Counters implements Counting.
func (FreeBSD) Counters(ctx context.Context, h host.Host, devices []string) (map[string]kernel.LinkCounters,
	error) {
	out, err := shell(ctx, h, netstatDevices)
	return linkCounters(h, devices, parseNetstat(out), err)
}

// netstatDevices prints the devices' counters as text. It does not use netstat's JSON output, in which Idrop
// and Drop would have the same key (usr.bin/netstat/if.c, intpr).
const netstatDevices = "netstat -ibdnW"

// bsdColumns maps columns of netstat -i to columns of probe netdev.
var bsdColumns = map[string]string{"Ibytes": "rx_bytes", "Ipkts": "rx_packets", "Ierrs": "rx_errors",
	"Idrop": "rx_dropped", "Obytes": "tx_bytes", "Opkts": "tx_packets", "Oerrs": "tx_errors",
	"Drop": "tx_dropped", "Coll": "tx_collisions"}

// parseNetstat returns the counters of each device in the output of netstat -i. It reads the row with network
// "<Link#N>". It counts columns from the right, because the address may be missing. It skips "-", which
// stands for a missing value.
func parseNetstat(text string) map[string]map[string]uint64 {
	out := map[string]map[string]uint64{}
	var heading []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) > 5 && words[0] == "Name" && words[1] == "Mtu" {
			heading = words
			continue
		}

		if len(words) < 3 || !strings.HasPrefix(words[2], "<Link#") {
			continue
		}

		name := strings.TrimSuffix(words[0], "*") // "*" marks a device that is down
		if !deviceLike(name) {
			continue
		}

		values := map[string]uint64{}
		for i := 1; i <= min(len(heading)-4, len(words)-3); i++ {
			n, err := strconv.ParseUint(words[len(words)-i], 10, 64)
			if name := bsdColumns[heading[len(heading)-i]]; err == nil && name != "" {
				values[name] = n
			}
		}

		out[name] = values
	}

	return out
}

// deviceLike reports whether a name is a plausible device name. A name has fewer than IFNAMSIZ (16)
// characters.
func deviceLike(name string) bool {
	return name != "" && len(name) < 16 && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("._-:", r))
	})
}

// bsdWays prints, for each argument, a line with the address, followed by the route to the address. At the
// end, it prints all addresses.
const bsdWays = `for a in "$@"; do echo "to $a"; f=-inet; case $a in *:*) f=-inet6;; esac
route -n get $f "$a" 2>/dev/null; done; echo addresses; ifconfig -a`

// Ways implements Routing. It does not set Source, because route(8) does not print the source address.
func (FreeBSD) Ways(ctx context.Context, h host.Host, to []netip.Addr) ([]kernel.Way, []netip.Addr, error) {
	return askWays(ctx, h, bsdWays, to)
}

// bsdAddress parses an address that may have a zone, as in "fe80::1%igc0", or a prefix length, as in
// "192.0.2.2/24".
func bsdAddress(text string) netip.Addr {
	text, _, _ = strings.Cut(text, "/")
	a, _ := netip.ParseAddr(text) // invalid if text is not an address
	return a.WithZone("")
}
