package tuning

import (
	"cmp"
	"fmt"
	"math/big"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

// Permanent holds the commands that make a change permanent on one system. Words in capitals, such as DEVICE,
// are placeholders for names.
type Permanent struct {
	System   string   `json:"system"` // "linux", "openwrt", "routeros"
	Change   string   `json:"change"`
	Commands []string `json:"commands"` // a line that starts with "# " is an explanation
}

// Systems lists the systems with known commands.
var Systems = [...]string{"linux", "openwrt", "routeros"}

var rosClock = []string{"# from 7.17 on, where /system/device-mode/print says routerboard: no, first " +
	"/system/device-mode/update routerboard=yes, and its button or a power cycle within 5 minutes",
	"/system routerboard settings set cpu-frequency=HIGHEST", "/system reboot"}

// recipes maps a factor to the commands for each system. Placeholders are replaced: {dev} by the port or
// DEVICE, {level} by the level, {mask} by a list of CPUs as a mask, and {name} by the part of the factor's
// name after the colon. Lines for OpenWrt's rc.local are inserted at its top, because its last line is
// "exit 0".
var recipes = map[string]map[string][]string{
	"queue": {
		"linux": {"tc qdisc replace dev {dev} {queue}",
			"# at every start: the same as ExecStart= of a systemd unit, or net.core.default_qdisc " +
				"in /etc/sysctl.d"},
		"openwrt":  {"echo 'tc qdisc replace dev {dev} {queue}' >> /etc/hotplug.d/iface/99-queue"},
		"routeros": {"/queue type add name=tuned kind={kind}", "/queue interface set {dev} queue=tuned"},
	},
	"cpus": {
		"linux": {"echo {mask} | tee /sys/class/net/{dev}/queues/rx-*/rps_cpus",
			"# at every start: the same from a udev rule for the device"},
		"openwrt": {"uci set network.@globals[0].packet_steering=1", "uci commit network",
			"service network reload"},
		"routeros": {"/system resource irq rps enable [find name={dev}]"},
	},
	"irq_affinity": {
		"linux": {"for i in $(ls /sys/class/net/{dev}/device/msi_irqs); do echo {level} > " +
			"/proc/irq/$i/smp_affinity_list; done", "systemctl disable --now irqbalance"},
		"openwrt":  {"# the lines for linux, in /etc/rc.local"},
		"routeros": {"/system resource irq set [find users~\"{dev}\"] cpu=auto"},
	},
	"napi_threaded": {
		"linux":   {"echo {bit} > /sys/class/net/{dev}/threaded", "# at every start: from a udev rule"},
		"openwrt": {"sed -i '1i echo {bit} > /sys/class/net/{dev}/threaded' /etc/rc.local"},
	},
	"gro_flush_timeout": {
		"linux": {"echo {ns} > /sys/class/net/{dev}/gro_flush_timeout",
			"# at every start: from a udev rule"},
		"openwrt": {"sed -i '1i echo {ns} > /sys/class/net/{dev}/gro_flush_timeout' /etc/rc.local"},
	},
	"flowtable": {
		"linux": {"# in /etc/nftables.conf: " +
			"flowtable ft { hook ingress priority 0; devices = { LAN, WAN }; }",
			"# first rule of the forward chain: ct state established flow add @ft"},
		"openwrt": {"uci set firewall.@defaults[0].flow_offloading=1", "uci commit firewall",
			"service firewall restart"},
		"routeros": {"/ip firewall filter add chain=forward action=fasttrack-connection " +
			"connection-state=established,related place-before=0"},
	},
	"firewall": {
		"linux": {"# in /etc/nftables.conf: the addresses of the list as elements of one set, and one " +
			"rule: ip saddr @NAME drop; no log where none is needed"},
		"openwrt": {"uci add firewall ipset",
			"# then one rule with option ipset instead of one for each address; option log off"},
		"routeros": {"/ip firewall address-list add list=NAME address=ADDRESS",
			"# then one rule with src-address-list=NAME instead of one for each; log=no"},
	},
	"cpu_quota": {
		"linux": {"cpupower frequency-set -g performance",
			"# at every start: GOVERNOR=performance in /etc/default/cpupower"},
		"openwrt": {"sed -i '1i for g in /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; do echo " +
			"performance > $g; done' /etc/rc.local"},
		"routeros": rosClock,
	},
	"governor": {
		"linux": {"cpupower frequency-set -g {level}",
			"# at every start: GOVERNOR={level} in /etc/default/cpupower"},
		"openwrt": {"sed -i '1i for g in /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; do echo " +
			"{level} > $g; done' /etc/rc.local"},
		"routeros": rosClock,
	},
	"mss_clamp": {
		"linux": {"# in /etc/nftables.conf, chain forward: " +
			"tcp flags syn / syn,rst tcp option maxseg size set rt mtu; or a number of bytes"},
		"openwrt": {"uci set firewall.@zone[1].mtu_fix=1", "uci commit firewall", "service firewall restart"},
		"routeros": {"/ip firewall mangle add chain=forward protocol=tcp tcp-flags=syn action=change-mss " +
			"new-mss=clamp-to-pmtu passthrough=yes"},
	},
	"sysctl": {
		"linux":   {"echo '{name} = {level}' >> /etc/sysctl.d/60-tuned.conf", "sysctl --system"},
		"openwrt": {"echo '{name}={level}' >> /etc/sysctl.conf", "service sysctl restart"},
	},
	"mtu": {
		"linux": {"ip link set TUNNEL mtu {level}",
			"# at every start: MTU = {level} in /etc/wireguard/TUNNEL.conf"},
		"openwrt":  {"uci set network.TUNNEL.mtu={level}", "uci commit network", "service network reload"},
		"routeros": {"/interface wireguard set TUNNEL mtu={level}"},
	},
	"link_mtu": {
		"linux":    {"ip link set {dev} mtu {level}"},
		"openwrt":  {"uci set network.INTERFACE.mtu={level}", "uci commit network", "service network reload"},
		"routeros": {"/interface ethernet set {dev} mtu={level}"},
	},
	"shape": {
		"linux": {"tc qdisc replace dev {dev} root cake bandwidth {level}bit"},
		"openwrt": {"uci set sqm.@queue[0].upload={kbit}", "uci set sqm.@queue[0].enabled=1",
			"uci commit sqm", "service sqm restart"},
		"routeros": {"/queue simple add name=shaper target={dev} max-limit={level}/{level} " +
			"queue=fq-codel/fq-codel"},
	},
	"txqueuelen": {"linux": {"ip link set {dev} txqueuelen {level}"}},
	"conntrack_max": {
		"linux": {"echo 'net.netfilter.nf_conntrack_max = {level}' >> /etc/sysctl.d/60-tuned.conf",
			"sysctl --system"},
		"openwrt": {"echo 'net.netfilter.nf_conntrack_max={level}' >> /etc/sysctl.conf",
			"service sysctl restart"},
		"routeros": {"# the table grows by itself: /ip firewall connection tracking print shows its limit"},
	},
}

// Commands returns the commands that make a change permanent, for each system with a recipe. cell is a cell
// of the plan after the change. If the change removes a level, Commands uses the level that the cell has
// instead.
func (c Change) Commands(cell factor.Cell) []Permanent {
	var out []Permanent
	for _, name := range c.Levels.Names() {
		plain, place := factor.Split(name)
		family, param, _ := strings.Cut(plain, ":")
		level := cmp.Or(c.Levels[name], cell[name])
		general := ""
		switch {
		case level == "":
			general = "# leave " + plain + " as the system has it"
		case recipes[family] == nil:
			general = "# set " + name + " to " + level
		}

		if general != "" {
			out = append(out, Permanent{Change: c.String(), Commands: []string{general}})
			continue
		}

		fill := filler(family, param, place, level)
		for _, system := range Systems {
			lines := recipes[family][system]
			if family == queueFactor && (holds(level) || strings.HasPrefix(level, "parent ")) {
				lines = queueLines(system, level)
			}

			if q, err := qdisc.ParseOne(level); err == nil && q.Kind == "tbf" && system == "routeros" {
				rate := factor.RateText(q.RateBps())
				lines = []string{"/queue type add name=tuned kind=pfifo pfifo-limit=200",
					"/queue simple add name=tuned target={dev} max-limit=" + rate + "/" + rate +
						" queue=tuned/tuned"}
			}

			if lines != nil {
				p := Permanent{System: system, Change: c.String()}
				for _, l := range lines {
					p.Commands = append(p.Commands, fill.Replace(l))
				}

				out = append(out, p)
			}
		}
	}
	return out
}

// queueLines returns the commands for a queue that is part of the owner's own configuration. The commands
// keep the rates and classes of that configuration.
func queueLines(system, level string) (lines []string) {
	if system == "routeros" {
		return nil
	}

	for _, words := range queueWords(level) {
		lines = append(lines, "tc qdisc replace dev {dev} "+words)
	}
	return append(lines, "# at every start: the same behind what sets up the rate there, which stays as it "+
		"is; or these parameters in its place")
}

// queueWords converts the queues in a level to the syntax of tc(8).
func queueWords(level string) (words []string) {
	all, _ := qdisc.Parse(level)
	for _, q := range all {
		words = append(words, strings.Join(q.TC(), " "))
	}
	return words
}

// filler returns a replacer that fills in a recipe's placeholders.
func filler(family, param, place, level string) *strings.Replacer {
	dev := "DEVICE"
	if _, port, ok := strings.Cut(place, "."); ok {
		dev = strings.ToUpper(port)
	}

	bit := "0"
	if level == "on" {
		bit = "1"
	}

	kind := strings.ReplaceAll(strings.Fields(level)[0], "_", "-")
	if q, err := qdisc.ParseOne(level); family == "queue" && err == nil && q.Kind == "pfifo" {
		// In RouterOS, the parameter follows the kind.
		kind = fmt.Sprintf("pfifo pfifo-limit=%d", q.Values["limit"])
	}

	return strings.NewReplacer("{dev}", dev, "{level}", level, "{name}", param, "{bit}", bit, "{kind}", kind,
		"{queue}", strings.Join(queueWords(level), ", "), "{mask}", maskOf(level), "{ns}", nanoseconds(level),
		"{kbit}", kilobits(level))
}

// maskOf converts a list of CPUs such as "0-1,3" to a hexadecimal mask as in sysfs.
func maskOf(list string) string {
	set := new(big.Int)
	for part := range strings.SplitSeq(list, ",") {
		var from, to int
		n, _ := fmt.Sscanf(part, "%d-%d", &from, &to)
		if n == 0 {
			return "0"
		} else if n == 1 {
			to = from
		}

		for i := from; i <= to; i++ {
			set.SetBit(set, i, 1)
		}
	}
	return set.Text(16)
}
