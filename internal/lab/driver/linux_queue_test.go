package driver

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// What tc of iproute2 6.1 prints with -r -d, of routers with shapers of several kinds.
const shapedRouters = `device tbf0
qdisc tbf 8001:[80010000] root refcnt 3 rate 150Mbit burst 5Kb/1 mpu 0b [000010aa] lat 54us limit 6Kb linklayer ethernet 
class tbf 8001:1 parent 8001: 
filters
parent ingress
parent egress
device htb0
qdisc htb 1:[00010000] root refcnt 3 r2q 10 default 0x10 direct_packets_stat 0 ver 3.17 direct_qlen 1000
qdisc pfifo 20:[00200000] parent 1:20 limit 5p
class htb 1:10 parent 1:1 prio 0 quantum 200000 rate 100Mbit ceil 150Mbit linklayer ethernet burst 1600b/1 mpu 0b cburst 1575b/1 mpu 0b level 0 
class htb 1:1 root rate 150Mbit ceil 150Mbit linklayer ethernet burst 1575b/1 mpu 0b cburst 1575b/1 mpu 0b level 7 
class htb 1:20 parent 1:1 leaf 20: prio 0 quantum 200000 rate 50Mbit ceil 150Mbit linklayer ethernet burst 1600b/1 mpu 0b cburst 1575b/1 mpu 0b level 0 
filters
filter parent 1: protocol ip pref 49152 u32 chain 0 
filter parent 1: protocol ip pref 49152 u32 chain 0 fh 800: ht divisor 1 
filter parent 1: protocol ip pref 49152 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 *flowid 1:20 not_in_hw 
  match 00000050/0000ffff at 20
device hfsc0
qdisc hfsc 1:[00010000] root refcnt 2 default 1 
qdisc tbf 10:[00100000] parent 1:1 rate 20Mbit burst 16Kb/1 mpu 0b [00019000] lat 5ms limit 30Kb linklayer ethernet 
class hfsc 1: root 
class hfsc 1:1 parent 1: leaf 10: ls m1 0bit d 0us m2 40Mbit ul m1 0bit d 0us m2 50Mbit 
filters
device cake0
qdisc cake 8003:[80030000] root refcnt 2 bandwidth 80Mbit besteffort triple-isolate nonat nowash no-ack-filter split-gso rtt 100ms noatm overhead 38 mpu 84 memlimit 512Kb 
filters
device fq0
qdisc fq 8004:[80040000] root refcnt 2 limit 100p flow_limit 100p buckets 1024 orphan_mask 1023 quantum 3028b initial_quantum 15140b low_rate_threshold 550Kbit maxrate 30Mbit refill_delay 40ms timer_slack 10us horizon 10s horizon_drop 
filters
device wan0
qdisc mq 0:[00000000] root 
qdisc fq_codel 0:[00000000] parent :1 limit 10240p flows 1024 quantum 1514 target 5ms interval 100ms memory_limit 32Mb ecn drop_batch 64 
qdisc ingress ffff:[ffff0000] parent ffff:fff1 ---------------- 
filters
parent ingress
filter protocol all pref 10 u32 chain 0 
filter protocol all pref 10 u32 chain 0 fh 800: ht divisor 1 
filter protocol all pref 10 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 terminal flowid ??? not_in_hw 
  match 00000000/00000000 at 0
	action order 1: mirred (Egress Redirect to device ifb4wan0) stolen
 	index 1 ref 1 bind 1
parent egress
device ifb4wan0
qdisc cake 8005:[80050000] root refcnt 2 bandwidth 250Mbit diffserv3 triple-isolate nonat nowash ingress no-ack-filter split-gso rtt 100ms noatm overhead 0 
filters
`

func TestParseQueues(t *testing.T) {
	q := &record.Inventory{Devices: parseQueues(shapedRouters)}
	for _, dev := range []string{"tbf0", "htb0", "hfsc0", "cake0", "fq0", "ifb4wan0"} {
		d := q.Device(dev)
		if d == nil || !d.Rated() {
			t.Errorf("%s: %+v, want a rate", dev, d)
		}
	}

	if q.Device("wan0").Rated() {
		t.Error("wan0 has no rate of its own")
	}

	rates := map[string]float64{"tbf0": 150e6, "htb0": 150e6, "hfsc0": 50e6, "cake0": 80e6, "fq0": 0,
		"ifb4wan0": 250e6}
	for dev, want := range rates {
		got := q.Device(dev).RateBps()
		if got != want {
			t.Errorf("%s holds %v bit/s, want %v", dev, got, want)
		}
	}

	root, _ := q.Device("fq0").Root()
	if root.FlowRateBps != 30e6 || root.Missing == "" {
		t.Errorf("fq0: %+v, want 30 Mbit/s of each flow, and what could not be restored", root)
	}

	root, _ = q.Device("tbf0").Root()
	if root.Level != "tbf rate 150M burst 5k limit 6k" || root.Handle != "8001:" || root.LimitBytes != 6144 ||
		root.BurstBytes != 5120 {
		t.Errorf("tbf0: %+v", root)
	}

	want := record.QueueFilter{Parent: "ingress", Kind: "u32", Action: "redirect", To: "ifb4wan0"}
	f := q.Device("wan0").Filters
	if len(f) == 0 || f[len(f)-1].Action != want.Action ||
		f[len(f)-1].To != want.To {
		t.Errorf("filters of wan0: %+v, want %+v", f, want)
	}

	leaves := q.Device("htb0").Leaves()
	if len(leaves) != 2 || leaves[0].Handle != "1:10" ||
		len(q.Device("htb0").Below("1:20")) != 1 {
		t.Errorf("leaves of htb0: %+v", leaves)
	}
}

func TestStanding(t *testing.T) {
	tests := []struct{ dev, want, state string }{
		{"tbf0", "tbf rate 150M burst 64k limit 375000", "handle 8001: tbf rate 150M burst 5k limit 6k"},
		{"tbf0", "pfifo limit 1000", "handle 8001: tbf rate 150M burst 5k limit 6k"},
		{"htb0", "parent 1:10 pfifo limit 1000", "parent 1:10 default"},
		{"htb0", "parent 1:20 fq_codel", "parent 1:20 handle 20: pfifo limit 5"},
		{"htb0", "parent 1:30 fq_codel", ""},
		{"htb0", "pfifo limit 1000", ""},
		{"hfsc0", "fq_codel", ""},
		{"hfsc0", "parent 1:1 tbf rate 20M burst 16k limit 50000",
			"parent 1:1 handle 10: tbf rate 20M burst 16k limit 30k"},
		{"cake0", "cake bandwidth 80M memlimit 4m", "handle 8003: cake bandwidth 80M besteffort"},
		{"fq0", "fq limit 10000", "handle 8004: fq limit 100"},
		{"fq0", "fq_codel", ""},
		{"wan0", "fq_codel", "mq"},
	}
	for _, test := range tests {
		_, text, _ := strings.Cut("\n"+shapedRouters, "\ndevice "+test.dev+"\n")
		text, _, _ = strings.Cut(text, "\ndevice ")
		got, err := standing(text, test.want)
		if (err != nil) != (test.state == "") || !strings.HasPrefix(got, test.state) {
			t.Errorf("%s before %s: %q (%v), want %q", test.dev, test.want, got, err, test.state)
		}
	}
}

func FuzzParseQueues(f *testing.F) {
	f.Add(shapedRouters)
	f.Add("device x\nqdisc tbf\nclass hfsc 1:1 parent\nfilters\nfilter parent\n mirred (")
	f.Fuzz(func(t *testing.T, text string) {
		for _, d := range parseQueues(text) {
			if d.RateBps() < 0 {
				t.Errorf("a negative rate in %+v", d)
			}
		}

		if got, err := standing(text, "fq_codel"); err != nil && got != "" {
			t.Errorf("%q with error %v", got, err)
		}
	})
}
