package driver

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// What tc of iproute2 6.1 prints, in the words of knob.Queue.
func TestParseQdisc(t *testing.T) {
	root := func(text string) (string, error) { return standing(text, "") }
	parses(t, root, map[string]string{
		"qdisc noqueue 0: root refcnt 2 \n": "noqueue",
		"":                                  "noqueue",
		"qdisc mq 0: root \nqdisc fq_codel 0: parent :1 limit 10240p flows 1024\n": "mq",
		"qdisc pfifo 80d5:[80d50000] root refcnt 3 limit 50p\n":                    "pfifo limit 50",
		"qdisc bfifo 80da:[80da0000] root refcnt 3 limit 9000b\n":                  "bfifo limit 9000",
		"qdisc tbf 80d4:[80d40000] root refcnt 3 rate 300Mbit burst 128Kb [0000d555] lat 3.5ms limit " +
			"256Kb \n": "tbf rate 300M burst 128k limit 256k",
		"qdisc ingress ffff: parent ffff:fff1 ---------------- \nqdisc fq_codel 8001: root refcnt 2 limit " +
			"10240p " +
			"flows 1024 quantum 1514 target 5ms interval 100ms memory_limit 32Mb ecn drop_batch 64 \n": "fq_codel limit 10240 flows 1024 quantum 1514 target 5ms interval 100ms memory_limit 32m ecn",
		"qdisc sfq 8002: root refcnt 2 limit 127p quantum 1514b depth 127 divisor 1024 perturb 10sec \n": "sfq quantum 1514 perturb 10 limit 127",
		"qdisc htb 1: root refcnt 2 r2q 10\n": "", // whose classes are not read
	})
}

// A text composed in the form of os-release(5) and OpenWrt's base-files.
func TestParseSystem(t *testing.T) {
	got := parseSystem("ID=debian\nVERSION_ID=\"13\"\nHOME_URL=x\n\nDISTRIB_RELEASE='24.10.2'\n\n" +
		"KERNEL=6.6.93\nMACHINE=\x1b[2Jx86_64\n")
	want := map[string]string{"os": "linux", "distribution": "debian", "distribution_release": "24.10.2",
		"kernel": "6.6.93", "machine": check.Plain("\x1b[2Jx86_64")}
	same(t, want, got, "facts")
	if got, err := (Linux{}).Facts(t.Context(), host.Local()); err != nil || got["kernel"] == "" {
		t.Errorf("of this machine: %v, %v", got, err)
	}
}

// What nft 1.0.6 prints.
func TestParseFirewall(t *testing.T) {
	parses(t, parseFirewall, map[string]string{
		"": "off",
		"table ip chokepoint_firewall {\n\tchain forward {\n\t\ttype filter hook forward priority 0; " +
			"policy accept;\n" +
			"\t\tip saddr 240.0.0.1 drop\n\t\tip saddr 240.0.0.2 drop\n\t}\n}\n": "2",
		"table ip chokepoint_firewall {\n\tset sources {\n\t\ttype ipv4_addr\n\t\telements = { 240.0.0.1, " +
			"240.0.0.2,\n" +
			"\t\t\t     240.0.0.3 }\n\t}\n\n\tchain stateful {\n\t}\n\n\tchain forward {\n\t\ttype filter " +
			"hook forward " +
			"priority 0; policy accept;\n\t\tct state 0x2,0x4 accept\n\t\tip saddr @sources drop\n\t}\n}\n": "3 in a set stateful",
		"table ip6 chokepoint_firewall {\n\tmap sources {\n\t\ttype ipv6_addr : verdict\n\t\telements = { " +
			"2001:db8::1 : drop }\n\t}\n\tchain log {\n\t}\n\tchain forward {\n\t\tip6 saddr vmap " +
			"@sources\n" +
			"\t\tlog prefix \"chokepoint \"\n\t}\n}\n": "1 in a map log",
	})
}

// What nft 1.0.6 prints.
func TestParseMSSClamp(t *testing.T) {
	const chain = "\tchain forward {\n\t\ttype filter hook forward priority 0; policy accept;\n\t\t" +
		"tcp flags 0x2 / 0x2,0x4 tcp option maxseg size set rt mtu\n\t}\n}\n"
	parses(t, parseMSSClamp, map[string]string{"": "off",
		"table ip chokepoint_mss {\n\tchain to_1 {\n\t}\n\n" + chain:     "pmtu",
		"table ip6 chokepoint_mss {\n\tchain to_1360 {\n\t}\n\n" + chain: "1360"})
}

// What ethtool 6.1 prints.
func TestParseFeatures(t *testing.T) {
	has, fixed := parseFeatures("Features for wan:\nrx-checksumming: on " +
		"[fixed]\ntcp-segmentation-offload: on\n" +
		"\ttx-tcp-segmentation: on\n\ttx-tcp-mangleid-segmentation: off [requested on]\n" +
		"generic-receive-offload: off\nlarge-receive-offload: off [fixed]\n")
	same(t, map[string]bool{"rx-checksumming": true, "tcp-segmentation-offload": true,
		"tx-tcp-segmentation": true, "tx-tcp-mangleid-segmentation": false, "rx-gro": false,
		"rx-lro": false}, has, "features")
	same(t, map[string]bool{"rx-checksumming": true, "rx-lro": true}, fixed, "fixed")
}

func TestLinkCounters(t *testing.T) {
	const heading = "Inter-|   Receive                                                |  Transmit\n" +
		" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo " +
		"colls\n"
	all, err := probe.DeviceCounters([]byte(heading + "   lan: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n"))
	must(t, err)
	got, err := linkCounters(host.Local(), []string{"lan"}, all, nil)
	want := map[string]kernel.LinkCounters{"lan": {
		RxBytes:   1,
		RxPackets: 2,
		RxDropped: 4,
		TxBytes:   5,
		TxPackets: 6,
		TxDropped: 8,
	}}
	must(t, err)
	same(t, want, got, "devices")
	if got, err := linkCounters(host.Local(), []string{"wan"}, all, nil); err == nil {
		t.Errorf("of a device that is not there: got %v, want an error", got)
	}

	if got, err := probe.DeviceCounters([]byte(heading + "   bad: 1 x\n")); err == nil {
		t.Errorf("of a line that is no device: got %v, want an error", got)
	}
}

const twoSamples = "\n@\n==> uptime <==\n1.00 2.00\n\n" +
	"==> self/stat <==\n7 (awk) S 1 1 1 0 -1 0 0 0 0 0 1 1 3 2 20 0\n\n" +
	"==> 8/stat <==\n8 (sh) S 1 1 1 0 -1 0 0 0 0 0 0 1 0 2 20 0\n\n==> stat <==\ncpu 1\n\n" +
	"==> net/dev <==\nx: 1\n\n==> ../passwd <==\nroot\n\n.\n" +
	"\n@\n==> uptime <==\n1.50 2.00\n\n==> net/dev <==\nx: 1" +
	"\n@\n==> uptime <==\n2.05 2.00\n==> self/stat <==\n7 (awk) S 1 1 1 0 -1 0 0 0 0 0 2 2 3 4 20 0\n" +
	"==> stat <==\ncpu 2\n.\n@\n==> uptime <==\n3.0"

// A sample that was cut off is left out, as is a file that nobody asked for; of the processes' CPU time all
// four kinds count.
func TestParseSamples(t *testing.T) {
	got := parseSamples(twoSamples)
	want := []snapshot{{1e9, 1e8, map[string]string{"stat": "cpu 1\n",
		"net/dev": "x: 1\n"}},
		{2.05e9, 1.1e8, map[string]string{"stat": "cpu 2\n"}}}
	d := cmp.Diff(got, want, cmp.AllowUnexported(snapshot{}))
	if d != "" {
		t.Errorf("samples (-got +want):\n%s", d)
	}

	for _, tt := range []struct{ from, to, want int64 }{{0, 9e9, 2}, {0, 5e8, 1}, {2e9, 2.01e9, 2},
		{3e9, 4e9, 1}} {
		n := len(between(got, tt.from, tt.to))
		if int64(n) != tt.want {
			t.Errorf("from %d to %d: got %d samples, want %d", tt.from, tt.to, n, tt.want)
		}
	}
}

// What hands over the samples is not the process: it counts nothing of its CPU time.
func TestCostOfSampling(t *testing.T) {
	of := func(at, cpu int64) snapshot { return snapshot{at: at, cpu: cpu} }
	got := costOf("x", []snapshot{of(1e9, -1), of(2e9, 3e7), of(3e9, 4e7), of(5e9, 8e7), of(6e9, -1)})
	want := []record.Cost{{Probe: "x", Reads: 2, OverNs: 3e9, CPUNs: 5e7}}
	same(t, want, got, "cost")
	all := parseSamples("@\n==> uptime <==\n1.00 1\n==> stat <==\ncpu 1\n.\n@\n")
	if len(all) != 1 ||
		costOf("x", append(all, of(2e9, 1e7))) != nil {
		t.Errorf("of one sample of its own: got %+v", all)
	}
}

func FuzzParseSamples(f *testing.F) {
	f.Add(twoSamples)
	f.Fuzz(func(t *testing.T, text string) {
		last := int64(-1)
		for _, s := range parseSamples(text) {
			if s.at <= last {
				t.Errorf("%q: time %d after %d", text, s.at, last)
			}

			last = s.at
		}
	})
}

func FuzzParseTools(f *testing.F) {
	f.Add("qdisc pfifo 1: root refcnt 3 limit 50p\n")
	f.Add("table ip x {\nset sources {\nelements = { 1, 2 }\n}\nip saddr @sources drop\n")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := standing(text, ""); err != nil && got != "" {
			t.Errorf("queue of %q: got %q with error %v", text, got, err)
		}

		if got, err := parseFirewall(text); err != nil && got != "" {
			t.Errorf("firewall of %q: got %q with error %v", text, got, err)
		}

		parseFeatures(text)
	})
}

// TestDriversKeepTheKernel: a driver sets of a router's kernel what moves packets, and more only where it is
// permitted; nothing is asked of the router before.
func TestDriversKeepTheKernel(t *testing.T) {
	const pattern = "sysctl:kernel.core_pattern"
	for _, d := range []Driver{Linux{}, OpenWrt{}, FreeBSD{}, Permit(Linux{}, knob.OfNamespace)} {
		for _, name := range []string{pattern, "sysctl:net/../kernel/core_pattern",
			"sysctl:kernel/core_pattern"} {
			s := record.Setting{Knob: name, Node: "router", Value: "kernel.core_pattern=|/tmp/x"}
			if _, err := d.Read(t.Context(), &written{Host: host.Local()}, s); err == nil {
				t.Errorf("%s reads %s", d.Name(), name)
			}

			if err := d.Apply(t.Context(), &written{Host: host.Local()}, s); err == nil {
				t.Errorf("%s applies %s", d.Name(), name)
			}
		}
	}

	for _, sysctls := range []knob.Permission{knob.OfGuest, "kernel.core_pattern"} {
		for _, d := range []Driver{Linux{}, OpenWrt{}, FreeBSD{}} {
			w := &written{Host: host.Local()}
			err := Permit(d, sysctls).Apply(t.Context(), w, record.Setting{
				Knob:  pattern,
				Node:  "router",
				Value: "kernel.core_pattern=core",
			})
			if err != nil || !strings.Contains(w.text.String(), "core") {
				t.Errorf("%s with %q: got %q, %v, want it written", d.Name(), sysctls, &w.text, err)
			}
		}
	}
}
