package driver

import (
	"cmp"
	"context"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// stage puts options of uci into effect without a commit (libuci's delta.c). It first reverts what was staged
// for them, and then stages only if now does not print the wanted state: so the original state is restored
// without a trace. If an option has no value it cannot be staged: direct then sets the wanted state. stage
// refuses while others' changes are staged, which would take effect, too. If /tmp is full, uci does not
// report what it drops.
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

// byFirewall begins the scripts of settings that fw4 makes. fw4 renders its rules from uci, makes nft check
// them, and replaces its table in one transaction; other tables stay (firewall4's sbin/fw4).
const byFirewall = `command -v fw4 >/dev/null && command -v nft >/dev/null || {
echo "it has no fw4" >&2; exit 69; }
reload() { fw4 reload >&2; }
check() { fw4 check >&2; }
`

// offloading prints the flow table that fw4 has made and uses: fw4 silently falls back to software if the
// devices refuse (fw4.uc, resolve_hw_offload_devices), so that its options prove nothing.
const offloading = byFirewall + `now() { t=$(nft list flowtable inet fw4 ft 2>&1) || case $t in *"No such file"*) t=;;
*) echo "$t" >&2; return 1;; esac
case "$(nft list chain inet fw4 forward 2>/dev/null)" in *"@ft"*) ;; *) t=;; esac
case $t in *"flags offload"*) echo hardware;; *flowtable*) echo on;; *) echo off;; esac; }
`

// offload sets the options of $2.
const offload = `case $2 in off) sw=0 hw=0;; on) sw=1 hw=0;; hardware) sw=1 hw=1;;
*) echo "no flow offload is called $2" >&2; exit 1;; esac
stage "$2" "firewall.@defaults[0].flow_offloading=$sw" "firewall.@defaults[0].flow_offloading_hw=$hw"`

// masquerading prints how fw4 translates the addresses of packets that leave into a zone.
const masquerading = byFirewall + `now() { case "$(nft list chain inet fw4 "srcnat_$zone" 2>/dev/null)" in
*masquerade*) echo masquerade;; *) echo off;; esac; }
`

// zoneOf returns the zone of fw4 to which a device belongs, "" for none.
func zoneOf(ctx context.Context, h host.Host, port string) (string, error) {
	out, err := shell(ctx, h, `command -v fw4 >/dev/null || exit 0; fw4 -q device "$1" 2>/dev/null; true`,
		cmp.Or(port, "wan"))
	return strings.TrimSpace(out), err
}

// readMasquerading reads the translation of a zone, or uses driver linux if the device is in none.
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

// lowest finds the devices below one that have none below themselves, such as the one behind the ports of a
// switch: a bridge and its ports receive no packets of their own.
const lowest = `dev=$1
below() { for l in /sys/class/net/"$1"/lower_*; do [ -e "$l" ] || { echo "$1"; return; }; below "${l##*/lower_}"; done; }
devices() { below "$dev" | sort -u; }
`

// steering finds the receive queues of the lowest devices, where OpenWrt steers packets. now prints their
// masks, digits only, once if they are all the same.
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

	state, err := knob.CPUsOfMasks(strings.Fields(out))
	return string(state), err
}

// applySteering makes OpenWrt's service steer packets to no CPU, or to all (packet-steering.uc with 0 and 2):
// the service repeats that whenever an interface changes, and would overwrite anything else. Devices that the
// service ignores are steered directly, and all of them if it is disabled or there is only one CPU; so are
// original states that the service does not have.
func applySteering(ctx context.Context, h host.Host, dev, value string) error {
	masks, err := knob.MasksOfCPUs(knob.State(value))
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

// sqmQueue is the state of a device that SQM shapes, in both directions; sqm-scripts keep a file about it.
const sqmQueue = "sqm"

// readSQM reads SQM as a whole, if it shapes the device.
func readSQM(ctx context.Context, h host.Host, dev, want string) (string, error) {
	out, err := shell(ctx, h, `[ ! -f "/var/run/sqm/$1.state" ] || echo sqm`, dev)
	state := strings.TrimSpace(out)
	if err != nil || state == sqmQueue {
		return state, err
	}

	return readQueue(ctx, h, dev, want)
}

// applySQM stops SQM on a device before it sets another queue there, and restarts it to restore.
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
