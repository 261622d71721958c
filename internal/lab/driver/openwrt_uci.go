package driver

import (
	"cmp"
	"context"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// stage defines a shell function that sets uci options without a commit (libuci's delta.c). It first reverts
// earlier staged changes of these options, and stages new ones only if the function now() does not print the
// wanted state. Restoring the original state therefore leaves nothing staged. An option without a value
// cannot be staged; in that case, stage calls the function direct() to set the state. stage fails if others
// have uncommitted changes, because those changes would take effect, too. It reads options back, because uci
// does not report changes that it loses when /tmp is full.
const stage = `stage() { want=$1; shift; names=" "; staged=; IFS='
'
for o; do o=${o%%=*}; names="$names${o##*.} "; pkg=${o%%.*}; done
for c in $(uci -q changes "$pkg"); do c=${c%%=*}
case ${c##*.} in flow_offloading|flow_offloading_hw|masq|packet_steering) ;; *)
echo "uci has changes of $pkg that wait for a commit of somebody's" >&2; exit 1;; esac
case $names in *" ${c##*.} "*) staged=y;; esac; done
if [ -n "$staged" ]; then
for o; do uci -q revert "${o%%=*}"; done; reload || exit 1; fi
[ "$(now)" != "$want" ] || exit 0
for o; do [ -n "${o#*=}" ] || { direct; exit; }
uci set "$o" && [ "$(uci -q get "${o%%=*}")" = "${o#*=}" ] && continue
echo "uci keeps no change of ${o%%=*}: is /tmp full?" >&2
for o; do uci -q revert "${o%%=*}"; done; exit 1; done
failed=69; check && { failed=1; reload && exit 0; }
for o; do uci -q revert "${o%%=*}"; done; reload
echo "OpenWrt does not take $want" >&2; exit $failed; }
`

// byFirewall is the start of scripts for settings that fw4 implements. fw4 generates rules from uci, checks
// them with nft, and replaces its table in one transaction. It does not touch other tables (firewall4's
// sbin/fw4).
const byFirewall = `command -v fw4 >/dev/null && command -v nft >/dev/null || {
echo "it has no fw4" >&2; exit 69; }
reload() { fw4 reload >&2; }
check() { fw4 check >&2; }
`

// offloading defines the function now(), which prints the state of fw4's flow table. It reads the table
// instead of the options, because fw4 silently falls back to software offload if the devices do not support
// hardware offload (fw4.uc, resolve_hw_offload_devices).
const offloading = byFirewall + `now() { t=$(nft list flowtable inet fw4 ft 2>&1) || case $t in *"No such file"*) t=;;
*) echo "$t" >&2; return 1;; esac
case "$(nft list chain inet fw4 forward 2>/dev/null)" in *"@ft"*) ;; *) t=;; esac
case $t in *"flags offload"*) echo hardware;; *flowtable*) echo on;; *) echo off;; esac; }
`

// offload sets the options for state $2.
const offload = `case $2 in off) sw=0 hw=0;; on) sw=1 hw=0;; hardware) sw=1 hw=1;;
*) echo "no flow offload is called $2" >&2; exit 1;; esac
stage "$2" "firewall.@defaults[0].flow_offloading=$sw" "firewall.@defaults[0].flow_offloading_hw=$hw"`

// masquerading defines the function now(), which prints whether fw4 masquerades packets that leave to $zone.
const masquerading = byFirewall + `now() { case "$(nft list chain inet fw4 "srcnat_$zone" 2>/dev/null)" in
*masquerade*) echo masquerade;; *) echo off;; esac; }
`

// zoneOf returns the fw4 zone of a device, or "" if it has none.
func zoneOf(ctx context.Context, h host.Host, port string) (string, error) {
	out, err := shell(ctx, h, `command -v fw4 >/dev/null || exit 0; fw4 -q device "$1" 2>/dev/null; true`,
		cmp.Or(port, "wan"))
	return strings.TrimSpace(out), err
}

// readMasquerading returns the state for the device's zone, or the state according to driver Linux if the
// device has no zone.
func readMasquerading(ctx context.Context, h host.Host, port, _ string) (string, error) {
	switch zone, err := zoneOf(ctx, h, port); {
	case err != nil:
		return "", err
	case zone == "":
		return linuxSettings()["nat"].read(ctx, h, port, "")
	default:
		out, err := shell(ctx, h, `zone=$1; `+masquerading+"now", zone)
		return strings.TrimSpace(out), err
	}
}

func applyMasquerading(ctx context.Context, h host.Host, port, value string) error {
	zone, err := zoneOf(ctx, h, port)
	switch {
	case err != nil:
		return err
	case zone == "":
		return applyNAT(ctx, h, port, value)
	}

	bit, ok := map[kernel.NATMode]string{kernel.NATOff: "0", kernel.NATMasquerade: "1"}[kernel.NATMode(value)]
	if !ok {
		return lacks("driver openwrt forwards no ports")
	}

	return change(ctx, h, `zone=$1; `+masquerading+stage+`i=0
until [ "$(uci -q get "firewall.@zone[$i].name")" = "$zone" ]; do i=$((i+1))
[ $i -lt 64 ] || { echo "uci has no zone $zone" >&2; exit 1; }; done
stage "$2" "firewall.@zone[$i].masq=$3"`, zone, value, bit)
}

// lowest defines a shell function that prints the devices at the bottom of the stack below $1, such as the
// device behind the ports of a switch. A bridge or a switch port itself receives no packets.
const lowest = `dev=$1
below() { for l in /sys/class/net/"$1"/lower_*; do [ -e "$l" ] || { echo "$1"; return; }; below "${l##*/lower_}"; done; }
devices() { below "$dev" | sort -u; }
`

// steering finds the receive queues of the lowest devices, because OpenWrt configures packet steering there.
// now() prints the masks of the queues without commas, or only one mask if all are equal.
const steering = lowest + `queues() { for d in $(devices); do for q in "/sys/class/net/$d/queues"/rx-[0-9] "/sys/class/net/$d/queues"/rx-[0-9][0-9]
do [ ! -f "$q/rps_cpus" ] || echo "$q/rps_cpus"; done; done; }
plain() { tr -d , | sed 's/^0*//;s/^$/0/'; }
now() { m=$(cat $(queues) | plain); one=$(echo "$m" | sort -u); [ "$(echo "$one" | wc -l)" -gt 1 ] && echo "$m" || echo "$one"; }
[ -n "$(queues)" ] || { echo "$dev has no receive packet steering" >&2; exit 69; }
`

func readSteering(ctx context.Context, h host.Host, dev, _ string) (string, error) {
	out, err := shell(ctx, h, steering+`cat $(queues)`, dev)
	if err != nil {
		return "", err
	}

	return knob.CPUsOfMasks(strings.Fields(out))
}

// applySteering makes OpenWrt's service steer packets to no CPU or to all CPUs (packet-steering.uc with 0 or
// 2). It rejects other masks, because the service runs again whenever an interface changes and would
// overwrite them. It writes masks directly in four cases: the service ignores the device, the service is
// disabled, there is only one CPU, or the service cannot produce the original state that is to be restored.
func applySteering(ctx context.Context, h host.Host, dev, value string) error {
	masks, err := knob.MasksOfCPUs(value)
	if err != nil {
		return err
	}
	return change(ctx, h, steering+stage+`want=$2 served=
write() { set -- $want; for q in $(queues); do echo "$1" >"$q" || exit 1; [ $# -lt 2 ] || shift; done; }
n=0; for c in /sys/devices/system/cpu/cpu[0-9]*; do n=$((n+1)); done
[ $n -gt 1 ] && /etc/init.d/packet_steering enabled 2>/dev/null && for d in $(devices); do
[ ! -e "/sys/class/net/$d/device" ] || served=y; done
[ -n "$served" ] || { write; exit; }
direct() { [ -n "$staged" ] || { echo "packet steering of OpenWrt is off, or on all CPUs" >&2; exit 69; }
want=$masks; write; }
reload() { /etc/init.d/packet_steering reload >&2; }
check() { :; }
all=$(printf %x $(( (1 << n) - 1 )))
masks=$want; want=$(echo "$want" | plain)
case $want in 0) v=0;; "$all") v=2;; *) v=;; esac
stage "$want" "network.@globals[0].packet_steering=$v"`, dev, strings.Join(masks, "\n"))
}

// sqmQueue is the state of a device that SQM shapes in both directions. sqm-scripts keeps a state file for
// such a device.
const sqmQueue = "sqm"

// readSQM returns sqmQueue if SQM shapes the device, and otherwise its queue.
func readSQM(ctx context.Context, h host.Host, dev, want string) (string, error) {
	out, err := shell(ctx, h, `[ ! -f "/var/run/sqm/$1.state" ] || echo sqm`, dev)
	state := strings.TrimSpace(out)
	if err != nil || state == sqmQueue {
		return state, err
	}

	return readQueue(ctx, h, dev, want)
}

// applySQM stops SQM on the device and sets a queue or, if value is sqmQueue, restarts SQM.
func applySQM(ctx context.Context, h host.Host, dev, value string) error {
	if value == sqmQueue {
		return change(ctx, h, `[ -f "/var/run/sqm/$1.state" ] || /usr/lib/sqm/run.sh start "$1"
[ -f "/var/run/sqm/$1.state" ] || { echo "SQM does not start on $1: is it enabled in uci?" >&2; exit 1; }`, dev)
	}

	stop := `[ ! -f "/var/run/sqm/$1.state" ] || /usr/lib/sqm/run.sh stop "$1"`
	if err := change(ctx, h, stop, dev); err != nil {
		return err
	}

	return applyQueue(ctx, h, dev, value)
}
