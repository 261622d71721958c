package lab_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// guestLevels are the settings that a router with a kernel of its own must be able to have, as
// "knob@node.port=level". The rest of a line after " # " is what a command in the node must then print, as
// "command => text".
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
napi_threaded@router=on                    # cat /sys/class/net/wan/threaded => 1
offload@router=wire                        # ethtool -k wan => generic-receive-offload: off
offload@router=rx-gro=off                  # ethtool -k wan => generic-receive-offload: off
offload@router=gro=on udp-gro=on  # ethtool -k wan => rx-udp-gro-forwarding: on
fault@router.wan=link_rate=50M             # tc qdisc show dev wan => rate 50Mbit
fault@router.wan=link_rate=50M+tiny_queue=2    # tc qdisc show dev wan => limit 3028b
fault@router=loss=1%+delay=20ms+link_rate=30M  # tc qdisc show dev lan => delay 20ms
fault@router.lan=reorder=25%+tiny_queue=50     # tc qdisc show dev lan => limit 50
fault@router=policer=50M                   # tc filter show dev wan ingress => rate 50Mbit
fault@router=rules=20+log_flood=on         # nft list ruleset => log prefix
fault@router=pmtu_hole=1300                # ip link show wan => mtu 1300
fault@router=conntrack_max=20              # cat /proc/sys/net/netfilter/nf_conntrack_max => 20
fault@router=backlog=10+budget=8           # cat /proc/sys/net/core/netdev_budget => 8
fault@router=cpu_hog=2+rules=5             # ps => agent-child
fault@host=cpu_quota=20%
idle_policies@router=20
idle_tunnels@router=4                      # ip link show up type wireguard => cpidle3
flow_export@router=softflowd               # ps => softflowd -i wan -n 198.18.2.2:9
flow_export@router.lan=softflowd           # ps => softflowd -i lan
cpu_quota@host=25%
cpu_quota@host=5%
ip_forward@router=ipv4                     # cat /proc/sys/net/ipv6/conf/all/forwarding => 0
sysctl:net.core.netdev_budget@router=100   # cat /proc/sys/net/core/netdev_budget => 100
sysctl:net.core.netdev_max_backlog@router=333  # cat /proc/sys/net/core/netdev_max_backlog => 333
sysctl:net.ipv4.tcp_congestion_control@router=reno
`

// coreLevels lists those that need a second processor.
const coreLevels = `
cpus@router=1                              # cat /sys/class/net/wan/queues/rx-0/rps_cpus => 2
irq_affinity@router=1                      # cat /proc/irq/29/smp_affinity_list => 1
irq_affinity@router.wan=0-1
cpu_count@router=1                         # cat /sys/devices/system/cpu/online => 0
`

// guestSetting reads a line of these.
func guestSetting(line string) (s record.Setting, command, want string) {
	text, probe, _ := strings.Cut(line, " # ")
	command, want, _ = strings.Cut(probe, "=>")
	name, value, _ := strings.Cut(text, "=")
	knob, place, _ := strings.Cut(name, "@")
	at, port, _ := strings.Cut(place, ".")
	return record.Setting{Knob: knob, Node: at, Port: port, Value: strings.TrimSpace(value)},
		strings.TrimSpace(command), strings.TrimSpace(want)
}

// TestGuestKnobs: on a router with a kernel of its own every level is applied, read back, seen by another
// program, and undone.
func TestGuestKnobs(t *testing.T) {
	l, _ := upGuest(t, t.TempDir(), "forward", labtest.Guest(t))
	turnAll(t, l, guestLevels)
	t.Run("packet sizes", func(t *testing.T) { packetSizes(t, l) })
	t.Run("log", func(t *testing.T) { logs(t, l) })
	t.Run("nat", func(t *testing.T) { translates(t, l) })
}

// TestGuestCores is the same for what a router does with several processors.
func TestGuestCores(t *testing.T) {
	guest := labtest.Guest(t)
	guest.CPUs = 2
	l, _ := upGuest(t, t.TempDir(), "forward", guest)
	turnAll(t, l, coreLevels)
}

func turnAll(t *testing.T, l *lab.Lab, levels string) {
	for line := range strings.SplitSeq(strings.TrimSpace(levels), "\n") {
		s, command, want := guestSetting(line)
		t.Run(s.Knob+"@"+s.Node+"."+s.Port+"="+s.Value, func(t *testing.T) {
			turnAndBack(t, l, s, command, want)
		})
	}
}

// hold makes exactly these settings hold.
func hold(t *testing.T, l *lab.Lab, want ...record.Setting) {
	t.Helper()
	must(t, l.Reconcile(labtest.Context(t), want))
}

// packetSizes: with "wire" what crosses the guest's ports has the size that it would have on a cable, with
// "super" it is many times as large, both ways.
func packetSizes(t *testing.T, l *lab.Lab) {
	for _, level := range []string{"wire", "super", "wire"} {
		var want []record.Setting
		for _, n := range l.Topology.Nodes {
			want = append(want, record.Setting{Knob: "offload", Node: n.Name, Value: level})
		}

		hold(t, l, want...)
		for _, direction := range []string{record.Up, record.Down} {
			load := labtest.Loads()["tcp up"]
			load.Direction = direction
			before := carried(t, l)
			offer(t, l, load)
			after := carried(t, l)
			for i, what := range []string{"received", "sent"} {
				for _, port := range l.Ports("router") {
					data := map[string]string{"lan received": record.Up, "wan sent": record.Up}[port+" "+
						what]
					if (data == "") == (direction == record.Up) {
						continue // acknowledgements go the other way
					}

					a := before[port]
					b := after[port]
					size := float64(b[2*i]-a[2*i]) / float64(b[2*i+1]-a[2*i+1])
					t.Logf("%s, %s, %s %s: %.0f bytes a packet", level, direction, port, what, size)
					if level == "wire" && size > 1518 || level == "super" && size < 3000 {
						t.Errorf("%s, %s: port %s %s packets of %.0f bytes, want at most 1518 on a wire, "+
							"and 3000 or more otherwise", level, direction, port, what, size)
					}
				}
			}
		}
	}

	hold(t, l)
}

// logs: every packet that comes to the end of a firewall that logs is in the kernel's log, and those that
// pass ahead of it are not.
func logs(t *testing.T, l *lab.Lab) {
	for level, want := range map[string]int{"10 log": 6, "10": 0} {
		hold(t, l, record.Setting{Knob: "firewall", Node: "router", Value: level})
		lines := func() int { return strings.Count(labtest.Exec(t, l, "router", "dmesg"), "SRC=") }
		before := lines()
		labtest.Reach(t, l, 0, 4, 0, 100, 200, 300)
		got := lines() - before
		if got < want || want == 0 && got != 0 {
			t.Errorf("firewall=%s: got %d lines of a log for three packets and their answers, want %d", level,
				got, want)
		}
	}

	hold(t, l)
}

// translates: with a masquerade the server sees the router's IPv4 address, and with IPv6 the client's own:
// NAT66 is off.
func translates(t *testing.T, l *lab.Lab) {
	hold(t, l, record.Setting{Knob: "nat", Node: "router", Value: "masquerade"})
	for _, ip := range []int{4, 6} {
		labtest.WantReach(t, l, 0, ip, 0, 100)
	}

	table := labtest.Exec(t, l, "router", "conntrack", "-L", "-p", "udp")
	router, err := l.ForwardAddress(4)
	must(t, err)
	if !strings.Contains(table, "dst="+router.String()) {
		t.Errorf("tracked connections: got %q, want one whose answers go to the router's %s", table, router)
	}

	rules := labtest.Exec(t, l, "router", "nft", "list", "ruleset", "ip6")
	if strings.Contains(rules,
		"masquerade") {
		t.Errorf("rules of IPv6: got %s, want no masquerade", rules)
	}

	hold(t, l)
}

// carried are the bytes and packets received and sent by each of the router's devices, as its kernel counts
// them.
func carried(t *testing.T, l *lab.Lab) map[string][4]uint64 {
	out := map[string][4]uint64{}
	for line := range strings.Lines(labtest.Exec(t, l, "router", "cat", "/proc/net/dev")) {
		dev, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !ok || len(f) < 10 {
			continue
		}

		var c [4]uint64
		for i, column := range []int{0, 1, 8, 9} {
			n, err := strconv.ParseUint(f[column], 10, 64)
			must(t, err)
			c[i] = n
		}

		out[strings.TrimSpace(dev)] = c
	}
	return out
}

func turnAndBack(t *testing.T, l *lab.Lab, s record.Setting, command, want string) {
	a := l.CheckSetting(labtest.Context(t), s)
	if a.State != check.Yes {
		n, err := l.Node(labtest.Context(t), s.Node)
		if err == nil && a.State == check.No && !n.Facts.OwnKernel {
			t.Skip("skip: this kernel or user lacks the setting: " + a.Reason)
		}

		t.Fatalf("check: got %v (%s), want yes", a.State, a.Reason)
	}

	before := readSetting(t, l, node.Knobs(), s)
	hold(t, l, s)
	if command != "" {
		got := labtest.Exec(t, l, s.Node, strings.Fields(command)...)
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q in it", command, got, want)
		}
	}

	hold(t, l)
	after := readSetting(t, l, node.Knobs(), s)
	if after != before {
		t.Errorf("undone: got %q, want %q as before", after, before)
	}
}

// readSetting is the present state of what a setting would change, in the words of its knob.
func readSetting(t *testing.T, l *lab.Lab, knobs []knob.Knob, s record.Setting) knob.State {
	t.Helper()
	for _, k := range knobs {
		text := s.Value
		family, isFamily := strings.CutSuffix(k.Name(), ":")
		if isFamily {
			member, ok := strings.CutPrefix(s.Knob, family+":")
			if !ok {
				continue
			}

			text = member + "=" + text
		} else if k.Name() != s.Knob {
			continue
		}

		want, err := k.Parse(text)
		labtest.MustDo(t, err, "parse %s=%s", s.Knob, s.Value)
		got, err := labtest.ReadState(t, l, k, s, want)
		labtest.MustDo(t, err, "read %s", s.Knob)
		return got
	}

	t.Fatalf("no knob %s", s.Knob)
	return ""
}
