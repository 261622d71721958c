package probe

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// does runs commands of a machine's owner, with input for the first.
func does(t *testing.T, input string, commands ...string) {
	t.Helper()
	needIsolation(t)
	for _, c := range commands {
		words := strings.Fields(c)
		if _, err := exec.LookPath(words[0]); err != nil {
			t.Skip("skip: no " + words[0] + " here")
		}

		run := exec.Command(words[0], words[1:]...)
		run.Stdin = strings.NewReader(input)
		out, err := run.CombinedOutput()
		if err != nil && strings.Contains(string(out), "No such file") {
			t.Skipf("skip: this kernel lacks what the test needs: %s: %s", c, out)
		} else if err != nil {
			t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
}

// ownersRules lists those of a router with rules of many kinds, in the form of OpenWrt's fw4 and by hand.
const ownersRules = `
table inet fw4 {
	set blk { type ipv4_addr; elements = { 192.0.2.4 }; }
	set m4 { type ipv4_addr; flags dynamic,timeout; timeout 1m; }
	counter acct { }
	chain pre {
		type filter hook prerouting priority raw; policy accept;
		udp dport 9 notrack
	}
	chain from_lan {
		log prefix "anna " limit rate 10/minute
		ip saddr @blk drop
		reject with tcp reset
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
		limit rate over 2 mbytes/second burst 10 kbytes drop
		ct state invalid counter drop comment "!fw4: bad"
		ct state vmap { established : accept, related : accept }
		tcp flags syn / syn,rst tcp option maxseg size set rt mtu
		iifname "lan" jump from_lan
		numgen random mod 100 < 3 drop
		reset tcp option window
		counter name "acct"
		ip daddr 192.0.2.1 counter
		update @m4 { ip saddr limit rate over 10/second } drop
		quota over 100 mbytes drop
		ct count over 20 reject
	}
}
table ip old {
	chain side {
		counter
		ip daddr 192.0.2.7 counter drop
	}
	chain forward {
		type filter hook forward priority 10;
		ct state established,related counter accept
		ct state { new, established } accept
		ct state new limit rate 3/hour accept
		ip saddr vmap { 192.0.2.1 : drop, 192.0.2.2 : goto side }
	}
}
table ip chokepoint_firewall {
	chain forward {
		type filter hook forward priority 0;
		ip saddr 240.0.0.1 drop
	}
}
`

// wantRules holds what ownersRules give: statement, what it does, whose packets reach it.
var wantRules = []string{
	"inet fw4 forward: limit rate over 2 mbytes/second burst 10 kbytes drop [limit drop] forward",
	"inet fw4 pre: notrack [notrack] prerouting",
	"inet fw4 from_lan: log limit rate 10/minute [log limit] forward new",
	"inet fw4 from_lan: drop [drop] forward new",
	"inet fw4 from_lan: reject [reject] forward new",
	"inet fw4 forward: ct state invalid drop [invalid drop] forward new counted 0",
	"inet fw4 forward: tcp option maxseg set [tcp-option] forward new",
	"inet fw4 forward: numgen random mod 100 drop [random drop] forward new",
	"inet fw4 forward: reset tcp option window [tcp-option] forward new",
	"inet fw4 forward: counter name acct [count] forward new",
	"inet fw4 forward: counter [count] forward new counted 0",
	"inet fw4 forward: update @m4 { limit rate over 10/second } drop [flow-meter drop] forward new",
	"inet fw4 forward: quota over 100 mbytes drop [limit drop] forward new",
	"inet fw4 forward: ct count over 20 reject [limit reject] forward new",
	"ip old side: counter [count] forward new counted 0",
	"ip old side: drop [drop] forward new counted 0",
	"ip old forward: ct state new limit rate 3/hour accept [limit] forward new",
	"ip chokepoint_firewall forward: drop [drop] forward ours",
}

func TestReadRuleset(t *testing.T) {
	does(t, ownersRules, "nft -f -")
	t.Cleanup(func() { does(t, "", "nft flush ruleset") })
	v := inventory(Root{})
	why := v.Missing["filter"]
	if why != "" || v.Filter == nil {
		t.Fatalf("no packet filter: %s", why)
	}

	if diff := cmp.Diff(wantRules, said(v.Filter)); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}

	rules := map[string]int{}
	for _, c := range v.Filter.Chains {
		rules[fmt.Sprint(c.Family, " ", c.Table, " ", c.Name, " ", c.Hook, " ", c.Priority, " ", c.Policy)] =
			c.Rules
	}

	if diff := cmp.Diff(map[string]int{"inet fw4 pre prerouting -300 accept": 1,
		"inet fw4 forward forward 0 drop": 15, "ip old forward forward 10 accept": 6, "ip chokepoint_firewall forward forward 0 accept": 1},
		rules); diff != "" {
		t.Errorf("rules that each chain's packets reach (-want +got):\n%s", diff)
	}

	want := &record.RateLimit{Rate: 2 << 20, Unit: "bytes", Burst: 10 << 10, Over: true}
	if diff := cmp.Diff(want, v.Filter.Rules[0].Limit); diff != "" {
		t.Errorf("limit (-want +got):\n%s", diff)
	}

	if r, ok := v.Filter.SkippedBy(); !ok || r.Handle != v.Filter.Rules[0].Handle {
		t.Errorf("a flowtable takes packets from %+v, want the first rule", r)
	}

	text := fmt.Sprintf("%+v", v.Filter)
	if strings.Contains(text, "192.0.2") || strings.Contains(text, "anna") {
		t.Errorf("an address or an owner's words are in %s", text)
	}
}

// Counters of a rule are those of the kernel, before and after.
func TestRuleCounters(t *testing.T) {
	does(t, `table inet box {
	chain out {
		type filter hook output priority 0
		udp dport 9 counter drop
	}
}
`, "nft -f -")
	t.Cleanup(func() { does(t, "", "nft flush ruleset") })
	before := inventory(Root{})
	for range 3 {
		does(t, "", "ip link set lo up")
		c, err := net.Dial("udp", "127.0.0.1:9")
		must(t, err)
		c.Write(make([]byte, 100)) // which the rule refuses
		c.Close()
	}

	after := inventory(Root{})
	if len(before.Filter.Rules) != 1 || len(after.Filter.Rules) != 1 {
		t.Fatalf("got rules %v and %v, want one", said(before.Filter), said(after.Filter))
	}

	b, a := before.Filter.Rules[0], after.Filter.Rules[0]
	if *a.Packets-*b.Packets != 3 ||
		*a.Bytes-*b.Bytes != 3*128 || a.Handle != b.Handle {
		t.Errorf("got %+v, then %+v, want 3 packets of 128 bytes more", b, a)
	}
}

// An inventory of thousands of rules takes little of one core, and is of bounded size.
func TestInventoryIsCheap(t *testing.T) {
	text := "table ip many {\n chain forward {\n type filter hook forward priority 0\n"
	for i := range 4000 {
		text += fmt.Sprintf("ip saddr 240.0.%d.%d counter drop\n", i/250, i%250)
	}

	does(t, text+"}\n}\n", "nft -f -")
	t.Cleanup(func() { does(t, "", "nft flush ruleset") })
	used := func() time.Duration {
		var u unix.Rusage
		must(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	v := inventory(Root{})
	took := used() - before
	t.Logf("it took %v", took)
	if took > 300*time.Millisecond {
		t.Errorf("it took %v of CPU time, want at most 0.3 s", took)
	}

	f := v.Filter
	if f == nil || len(f.Rules) != record.MaxFilterRules || f.MoreRules != 4000-record.MaxFilterRules ||
		f.Chains[0].Rules != 4000 {
		t.Errorf("got %d rules and %d more", len(f.Rules), f.MoreRules)
	}

	b, err := json.Marshal(v)
	must(t, err)
	if len(b) > 64<<10 {
		t.Errorf("it has %d bytes", len(b))
	}
}

// Devices are told apart by kind, with what they are part of and what carries them.
func TestInventoryOfDevices(t *testing.T) {
	commands := []string{"ip link add br7 type bridge", "ip link add v7 type veth peer w7",
		"ip link set v7 master br7", "ip link add link w7 name m7 type macvlan", "ip link add i7 type ifb"}
	for _, dev := range []string{"br7", "v7", "w7", "m7", "i7"} {
		commands = append(commands, "ip link set "+dev+" up")
	}

	does(t, "", append(commands, "tc qdisc replace dev w7 root tbf rate 20mbit burst 16k limit 30k")...)
	t.Cleanup(func() { does(t, "", "ip link del br7", "ip link del v7", "ip link del i7") })
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0x0300)
	must(t, err)
	defer unix.Close(fd)
	v := inventory(Root{})
	got := map[string][4]string{}
	for _, d := range v.Devices {
		got[d.Name] = [4]string{d.Kind, d.Master, d.Lower, fmt.Sprint(d.MTU, " ", d.RateBps())}
	}

	want := map[string][4]string{"br7": {"bridge", "", "", "1500 0"}, "v7": {"veth", "br7", "w7", "1500 0"},
		"w7": {"veth", "", "v7", "1500 2e+07"},
		"m7": {"macvlan", "", "w7", "1500 0"}, "i7": {"ifb", "", "", "1500 0"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff([]record.Tap{{Type: "raw", Protocol: "0003", Sockets: 1}}, v.Taps); diff != "" {
		t.Errorf("packet sockets (-want +got):\n%s", diff)
	}

	if v.Conntrack == nil && v.Missing["conntrack"] == "" || v.XFRM == nil && v.Missing["xfrm"] == "" {
		t.Errorf("connections or associations are missing without a reason: %v", v.Missing)
	}
}

// said are the rules of a packet filter, each with what it does and who reaches it.
func said(f *record.PacketFilter) (out []string) {
	for _, r := range f.Rules {
		text := fmt.Sprintf("%s %s %s: %s [%s] %s", r.Family, r.Table, r.Chain, r.Text,
			strings.Join(r.Kinds, " "), strings.Join(r.Hooks, " "))
		if r.NewOnly {
			text += " new"
		}

		if r.Own {
			text += " ours"
		}

		if r.Packets != nil {
			text += fmt.Sprint(" counted ", *r.Packets)
		}

		out = append(out, text)
	}
	return out
}
