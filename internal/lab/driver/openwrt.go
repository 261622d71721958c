package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// OpenWrt is the driver for OpenWrt and derived systems, such as Turris OS. It changes settings of the
// running kernel as driver Linux does. For settings that OpenWrt's services would overwrite, it uses uci
// without a commit. Such changes are stored in memory (/tmp/.uci), are used by fw4 and the init scripts, and
// are lost on reboot.
type OpenWrt struct{ Linux }

// Name implements Driver.
func (OpenWrt) Name() string { return "openwrt" }

// isOpenWrt prints "openwrt", "without uci" or "other". Derived systems keep the file /etc/openwrt_release,
// even if they have another name.
const isOpenWrt = `[ -f /etc/openwrt_release ] || grep -qE '^ID="?(openwrt|turrisos)"?$' /etc/os-release 2>/dev/null ||
{ echo other; exit 0; }
command -v uci >/dev/null && echo openwrt || echo "without uci"`

// Check implements Driver.
func (OpenWrt) Check(ctx context.Context, h host.Host) check.Answer {
	switch system, a := identify(ctx, h, isOpenWrt); {
	case a.State != check.Yes, system == "openwrt":
		return a
	case system == "other":
		return check.Not("%s is not OpenWrt", h.Name())
	}
	return check.Not("%s is OpenWrt without uci", h.Name())
}

// setting returns OpenWrt's setting for a knob if there is one, and the setting of driver Linux otherwise.
func (x OpenWrt) setting(name string) (setting, error) {
	switch name {
	case "queue":
		return setting{true, readSQM, applySQM}, nil
	case "cpus":
		return setting{true, readSteering, applySteering}, nil
	case "flowtable":
		return scripted(false, offloading+"now", verbatim, offloading+stage+offload), nil
	case "nat":
		return setting{false, readMasquerading, applyMasquerading}, nil
	case "napi_threaded":
		return threads(lowest), nil
	}

	l, err := x.settingOf(name)
	if errors.Is(err, host.ErrUnsupported) {
		err = lacks("driver openwrt does not know it")
	}

	return l, err
}

// openWrtByHand contains, for knobs that the driver does not support, the commands with which the owner can
// change the setting. OpenWrt 25.12 and later install packages with apk, earlier releases with opkg.
var openWrtByHand = map[string]string{
	"queue": "apk add tc-tiny kmod-sched (opkg install), kmod-sched-cake for cake",
	"cpus":  "/etc/init.d/packet_steering disable; /etc/init.d/packet_steering stop; and run again",
	"flowtable": "apk add kmod-nft-offload (opkg install); uci set " +
		"firewall.@defaults[0].flow_offloading=1; uci commit firewall; /etc/init.d/firewall reload",
	"nat": "uci set firewall.@zone[NUMBER].masq=1; uci commit firewall; /etc/init.d/firewall reload",
	"shape": "uci set sqm.@queue[0].upload=KBIT; uci set sqm.@queue[0].enabled=1; uci commit sqm; " +
		"/etc/init.d/sqm reload",
	"offload":      "apk add ethtool (opkg install)",
	"irq_affinity": "echo CPUS >/proc/irq/NUMBER/smp_affinity_list, without irqbalance",
	"vlan":         "edit /etc/config/network; /etc/init.d/network reload",
	"flow_export":  "apk add softflowd (opkg install); /etc/init.d/softflowd start",
}

// adviseByHand adds the owner's commands to the error for an unsupported setting. It does not do so for
// queues and port forwards that the driver would not support with any package.
func adviseByHand(s record.Setting, err error) error {
	step := openWrtByHand[s.Knob]
	kind, _, _ := strings.Cut(s.Value, " ")
	switch {
	case step == "" || !errors.Is(err, host.ErrUnsupported),
		s.Knob == "queue" && kind != "" && !slices.Contains(spokenQueues, kind),
		s.Knob == "nat" && kind == string(kernel.NATForward):
		return err
	}

	return fmt.Errorf("%w; by hand: %s", err, step)
}

// WithoutNAT implements Advising.
func (OpenWrt) WithoutNAT() string {
	return "uci set firewall.@zone[NUMBER].masq=0; uci commit firewall; /etc/init.d/firewall reload"
}

// Read implements Driver.
func (x OpenWrt) Read(ctx context.Context, h host.Host, s record.Setting) (string, error) {
	text, err := settings{x.setting, linuxDevices}.read(ctx, h, s)
	return text, adviseByHand(s, err)
}

// Inventory implements Inventorying. It marks devices whose queues are managed by SQM.
func (OpenWrt) Inventory(ctx context.Context, h host.Host) (*record.Inventory, error) {
	q, err := Linux{}.Inventory(ctx, h)
	if err != nil {
		return nil, err
	}

	out, err := ask(ctx, h, "find the devices of SQM", `for s in /var/run/sqm/*.state; do
[ -f "$s" ] && echo "$s"; done; :`)
	for file := range strings.Lines(out) {
		d := q.Device(strings.TrimSuffix(path.Base(strings.TrimSpace(file)), ".state"))
		if d != nil {
			d.Missing = "SQM makes its queues: change them in /etc/config/sqm"
		}
	}

	return q, err
}

// Apply implements Driver.
func (x OpenWrt) Apply(ctx context.Context, h host.Host, s record.Setting) error {
	return adviseByHand(s, settings{x.setting, linuxDevices}.apply(ctx, h, s))
}

// nothingStaged fails if uci contains uncommitted changes. Reloading a service for our changes would put the
// uncommitted changes into effect, too.
const nothingStaged = `[ -z "$(uci -q changes network; uci -q changes firewall)" ] || {
echo "uci has changes of network or firewall that wait for a commit" >&2; exit 1; }`

// Guard implements Guarded.
func (x OpenWrt) Guard(ctx context.Context, h host.Host, name string, undo []record.Setting,
	silence time.Duration) (string, error) {
	if name == "" {
		if _, err := ask(ctx, h, "install the guard", nothingStaged); err != nil {
			return "", check.WithHint(err, "on the router: uci commit, or uci revert network and firewall")
		}
	}
	return guard(ctx, h, x, guardScript, name, undo, silence)
}

// printFacts prints the reply of ubus about the board, settings of services, and the output of printSystem.
const printFacts = `ubus call system board 2>/dev/null | tr -d '\n\t'; echo
for o in network.@globals[0].packet_steering network.@globals[0].steering_flows \
firewall.@defaults[0].flow_offloading firewall.@defaults[0].flow_offloading_hw; do
v=$(uci -q get "$o") && echo "uci:${o%%.*}.${o##*.}=$v"; done
for s in /var/run/sqm/*.state; do [ -f "$s" ] && s=${s##*/} && echo "sqm:${s%.state}=on"; done
` + printSystem

// Facts implements Describing.
func (OpenWrt) Facts(ctx context.Context, h host.Host) (map[string]string, error) {
	out, err := ask(ctx, h, "read facts", printFacts)
	return parseFacts(out), err
}

// maxFact limits the size of a fact in bytes. maxFacts limits the number of facts of a router.
const maxFact, maxFacts = 200, 100

// addFact adds a fact unless its value is empty.
func addFact(facts map[string]string, name, value string) {
	if value = check.Plain(strings.TrimSpace(value)); len(facts) < maxFacts && value != "" {
		facts[name] = strings.ToValidUTF8(value[:min(len(value), maxFact)], "")
	}
}

// parseFacts parses the output of printFacts: a line with the JSON reply of ubus to "system board", and lines
// of the form "name=value". It omits the router's host name.
func parseFacts(text string) map[string]string {
	first, rest, _ := strings.Cut(text, "\n")
	facts := parseSystem(rest)
	for line := range strings.Lines(rest) {
		name, value, _ := strings.Cut(line, "=")
		what, _, _ := strings.Cut(name, ":")
		if (what == "uci" || what == "sqm") && len(name) < maxFact && check.Plain(name) == name {
			addFact(facts, name, value)
		}
	}

	var board struct {
		Kernel, Model, System string
		Board                 string `json:"board_name"`
		Release               struct{ Version, Revision, Target string }
	}
	if json.Unmarshal([]byte(first), &board) != nil {
		return facts // because ubus printed no valid JSON
	}

	for name, value := range map[string]string{"kernel": board.Kernel, "product": board.Model,
		"cpu_model": board.System, "board": board.Board, "distribution_release": board.Release.Version,
		"distribution_revision": board.Release.Revision, "distribution_target": board.Release.Target} {
		addFact(facts, name, value)
	}

	return facts
}
