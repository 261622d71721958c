package registry_test

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// guestLevels are the settings that a router with a kernel of its own must be
// able to have, as "knob@node.port=level". The rest of a line after " # " is
// what a command in the node must then print, as "command => text".
const guestLevels = `
queue@router.wan=noqueue
queue@router.wan=pfifo limit 1000          # tc qdisc show dev wan => pfifo
queue@router.wan=pfifo_fast                # tc qdisc show dev wan => pfifo_fast
queue@router.lan=fq_codel limit 2000 target 4ms interval 80ms   # tc qdisc show dev lan => target 4ms interval 80ms
queue@router.lan=cake                      # tc qdisc show dev lan => bandwidth unlimited
queue@router.wan=cake bandwidth 50M besteffort nat overhead 44  # tc qdisc show dev wan => bandwidth 50Mbit besteffort triple-isolate nat
queue@router.wan=fq
queue@router.wan=sfq
queue@router.lan=tbf rate 50M burst 64k limit 256k              # tc qdisc show dev lan => rate 50Mbit
queue@router.wan=htb rate 50M              # tc class show dev wan => rate 50Mbit
queue@router.wan=netem delay 5ms jitter 1ms loss 1% duplicate 2% reorder 25% limit 5000  # tc qdisc show dev wan => duplicate 2% 
queue@client=netem delay 5ms loss 1% reorder 10% duplicate 1%
queue@server=pfifo limit 500
shape@router=50M                           # tc qdisc show dev wan => fq_codel
shape@router.lan=20M                       # tc class show dev lan => rate 20Mbit
policer@router=50M                         # tc filter show dev lan ingress => rate 50Mbit
nat@router=masquerade                      # nft list ruleset => masquerade
nat@router=forward                         # nft list ruleset => dnat to
flowtable@router=on                        # nft list ruleset => flowtable
firewall@router=2000
firewall@router=2000 in a set              # nft list ruleset => set
firewall@router=2000 in a map              # nft list ruleset => map
firewall@router=100 stateful log           # nft list ruleset => log prefix
conntrack_max@router=1000                  # cat /proc/sys/net/netfilter/nf_conntrack_max => 1000
link_mtu@router=1400                       # ip link show wan => mtu 1400
link_mtu@router.lan=1280                   # ip link show lan => mtu 1280
vlan@router=10                             # ip -d link show wan.10 => vlan protocol 802.1Q id 10
txqueuelen@router=77                       # ip link show wan => qlen 77
cpus@router=1                              # cat /sys/class/net/wan/queues/rx-0/rps_cpus => 2
napi_threaded@router=on                    # cat /sys/class/net/wan/threaded => 1
offload@router=wire                        # ethtool -k wan => generic-receive-offload: off
offload@router=rx-gro=off                  # ethtool -k wan => generic-receive-offload: off
offload@router=rx-gro=on rx-udp-gro-forwarding=on  # ethtool -k wan => rx-udp-gro-forwarding: on
idle_policies@router=100
ip_forward@router=ipv4                     # cat /proc/sys/net/ipv6/conf/all/forwarding => 0
sysctl:net.core.netdev_budget@router=100   # cat /proc/sys/net/core/netdev_budget => 100
sysctl:net.core.netdev_max_backlog@router=333  # cat /proc/sys/net/core/netdev_max_backlog => 333
sysctl:net.ipv4.tcp_congestion_control@router=reno
`

// guestSetting reads a line of guestLevels.
func guestSetting(line string) (s record.Setting, command, want string) {
	text, probe, _ := strings.Cut(line, " # ")
	command, want, _ = strings.Cut(probe, "=>")
	name, value, _ := strings.Cut(text, "=")
	knob, place, _ := strings.Cut(name, "@")
	at, port, _ := strings.Cut(place, ".")
	return record.Setting{Knob: knob, Node: at, Port: port, Value: strings.TrimSpace(value)}, strings.TrimSpace(command), strings.TrimSpace(want)
}

// TestGuestKnobs: on a router with a kernel of its own every level is applied,
// read back, seen by another program, and undone.
func TestGuestKnobs(t *testing.T) {
	l, _ := labtest.UpGuest(t, t.TempDir(), "forward", labtest.Guest(t), registry.LabParts())
	for line := range strings.SplitSeq(strings.TrimSpace(guestLevels), "\n") {
		s, command, want := guestSetting(line)
		t.Run(s.Knob+"@"+s.Node+"."+s.Port+"="+s.Value, func(t *testing.T) { turnAndBack(t, l, s, command, want) })
	}
}

func turnAndBack(t *testing.T, l *lab.Lab, s record.Setting, command, want string) {
	if a := l.CheckSetting(labtest.Context(t), s); a.State != check.Yes {
		if a.State == check.No && !l.OwnKernel(s.Node) {
			t.Skip("skip: this kernel or user lacks the setting: " + a.Reason)
		}
		t.Fatalf("check: got %v (%s), want yes", a.State, a.Reason)
	}
	before := labtest.ReadSetting(t, l, node.Knobs(), s)
	if err := l.Settle(labtest.Context(t), []record.Setting{s}); err != nil {
		t.Fatal(err)
	}
	if command != "" {
		if got := labtest.Exec(t, l, s.Node, strings.Fields(command)...); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q in it", command, got, want)
		}
	}
	if err := l.Settle(labtest.Context(t), nil); err != nil {
		t.Fatalf("undo: %v", err)
	}
	if after := labtest.ReadSetting(t, l, node.Knobs(), s); after != before {
		t.Errorf("undone: got %q, want %q as before", after, before)
	}
}
