package knob

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

func TestParse(t *testing.T) {
	tests := []struct {
		knob Knob
		text string
		want State // "" = an error
	}{
		{LinkMTU(), " 1500 ", "1500"},
		{LinkMTU(), "1279", ""},
		{LinkMTU(), "b: 1500; a: 9000", "a: 9000; b: 1500"},
		{LinkMTU(), "a: 1500; a: 9000", ""},
		{TxQueueLen(), "0", "0"},
		{TxQueueLen(), "-1", ""},
		{Queue(), "noqueue", "noqueue"},
		{Queue(), "noqueue limit 5", ""},
		{Queue(), "pfifo", "pfifo limit 1000"},
		{Queue(), "pfifo limit", ""},
		{Queue(), "bfifo", ""},
		{Queue(), "bfifo limit 1m", "bfifo limit 1m"},
		{Queue(), "tbf limit 256k rate 300Mbit burst 131072", "tbf rate 300M burst 128k limit 256k"},
		{Queue(), "tbf rate 0.3G", "tbf rate 300M burst 128k limit 367k"},
		{Queue(), "tbf rate 10mbit burst 32kb limit 1mb", "tbf rate 10M burst 32k limit 1m"},
		{Queue(), "tbf rate 10mbps", ""},
		{Queue(), "cake bandwidth 10Mbps", ""},
		{Shape(), "10mbps", ""},
		{Policer(), "1.25MBps", ""},
		{Queue(), "tbf", ""},
		{Queue(), "tbf rate 0", ""},
		{Queue(), "tbf rate 1G rate 2G", ""},
		{Queue(), "htb rate 300M", "htb rate 300M burst 128k"},
		{Queue(), "fq_codel target 2500us",
			"fq_codel limit 10240 flows 1024 target 2500us interval 100ms memory_limit 32m"},
		{Queue(), "cake nat besteffort bandwidth 300M", "cake bandwidth 300M besteffort rtt 100ms nat"},
		{Queue(), "cake bandwidth unlimited nonat", "cake bandwidth unlimited rtt 100ms nonat"},
		{Queue(), "netem delay 10ms loss 0.5%", "netem limit 1000 delay 10ms loss 0.5%"},
		{Queue(), "netem reorder 25% duplicate 1% delay 5ms",
			"netem limit 1000 delay 5ms duplicate 1% reorder 25%"},
		{Queue(), "cake bandwidth 50M overhead 44 atm", "cake bandwidth 50M rtt 100ms overhead 44 atm"},
		{Queue(), "codel2", ""},
		{Queue(), "", ""},
		{Offload(), "wire", "wire"},
		{Offload(), "gro=on tso=off", "rx-gro=on tx-tcp-ecn-segmentation=off tx-tcp-segmentation=off " +
			"tx-tcp6-segmentation=off"},
		{Offload(), "gro=maybe", ""},
		{Offload(), "gro=on rx-gro=off", ""},
		{NAT(), "forward", "forward"},
		{NAT(), "on", ""},
		{VLAN(), "4094", "4094"},
		{VLAN(), "4095", ""},
		{VLAN(), "off", "off"},
		{Firewall(), "100  stateful", "100 stateful"},
		{Firewall(), "off stateful", ""},
		{Firewall(), "-1", ""},
		{Firewall(), "2000 in a  set", "2000 in a set"},
		{Firewall(), "0 in a map stateful log", "0 in a map stateful log"},
		{Firewall(), "5 log", "5 log"},
		{Firewall(), "5 log stateful", ""},
		{Firewall(), "5 in a", ""},
		{Firewall(), "5 in a settee", ""},
		{Flowtable(), "on", "on"},
		{Flowtable(), "hardware", "hardware"},
		{Flowtable(), "hw", ""},
		{ConntrackMax(), "20", "20"},
		{ConntrackMax(), "0", ""},
		{MSSClamp(), "off", "off"}, {MSSClamp(), "pmtu", "pmtu"}, {MSSClamp(), "1360", "1360"},
		{MSSClamp(), "0", ""}, {MSSClamp(), "1", ""}, {MSSClamp(), "535", ""}, {MSSClamp(), "9001", ""},
		{Governor(), "performance", "performance"}, {Governor(), "each a a", "a"},
		{Governor(), "each schedutil performance", "each schedutil performance"},
		{Governor(), "", ""}, {Governor(), "each", ""}, {Governor(), "a b", ""}, {Governor(), "../x", ""},
		{Governor(), "abcdefghijklmnop", ""},
		{Shape(), "50Mbit", "50M"},
		{Shape(), "0.3G", "300M"},
		{Shape(), "off", "off"},
		{Shape(), "over pfifo", "over pfifo limit 1000"},
		{Shape(), "unlimited", ""},
		{Shape(), "over", ""},
		{Policer(), "lan: 50M; wan: off", ""},
		{Shape(), "lan: 20M; wan: 50M", ""},
		{Policer(), "0", ""},
		{NAPIThreaded(), "off", "off"},
		{NAPIThreaded(), "1", ""},
		{GROFlushTimeout(), "off", "off"}, {GROFlushTimeout(), "20us", "20us"},
		{GROFlushTimeout(), "0.02ms", "20us"}, {GROFlushTimeout(), "1000us", "1ms"},
		{GROFlushTimeout(), "0", ""}, {GROFlushTimeout(), "2s", ""}, {GROFlushTimeout(), "20", ""},
		{IdlePolicies(), "100", "100"},
		{IdlePolicies(), "10001", ""},
		{IRQAffinity(), "0-1,3", "0-1,3"},
		{IRQAffinity(), "each 0 0,1", "each 0 0-1"},
		{IRQAffinity(), "each 1 1", "1"},
		{IRQAffinity(), "off", ""},
		{IRQAffinity(), "masks 1 2", ""},
		{CPUCount(), "2", "2"},
		{FlowExport(), "softflowd", "softflowd"},
		{FlowExport(), "on", ""},
		{CPUCount(), "0", ""},
		{IPForward(), "on", "on"},
		{IPForward(), "1", ""},
		{Sysctl(), "net/ipv4/tcp_rmem = 4096  131072 6291456", "net.ipv4.tcp_rmem=4096 131072 6291456"},
		{Sysctl(), "net/ipv4/conf/eth0.5/forwarding=1", "net/ipv4/conf/eth0.5/forwarding=1"},
		{Sysctl(), "net.ipv4.tcp_ecn", ""},
		{Sysctl(), "../../etc/passwd=x", ""},
		{CPUs(), "3,0,1", "0-1,3"},
		{CPUs(), "off", "off"},
		{CPUs(), "masks 1 2", "masks 1 2"},
		{CPUs(), "masks 00000000,00000003 3", "0-1"},
		{CPUs(), "2-1", ""},
	}
	for _, tt := range tests {
		got, err := tt.knob.Parse(tt.text)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: Parse(%q) gives %q, %v; want %q", tt.knob.Name(), tt.text, got, err, tt.want)
		}
	}
}

func TestSame(t *testing.T) {
	tests := []struct {
		knob      Knob
		want, got State
		same      bool
	}{
		{Queue(), "tbf rate 300M burst 128k limit 256k", "tbf rate 300M burst 131073 limit 256k", true},
		{Queue(), "tbf rate 300M burst 128k limit 256k", "tbf rate 301M burst 128k limit 256k", false},
		{Queue(), "tbf rate 300M burst 128k limit 256k", "tbf rate 300M burst 64k limit 256k", false},
		{Queue(), "tbf rate 44600M burst 32k limit 1m", "tbf rate 44600M burst 32469 limit 1m", true},
		{Queue(), "tbf rate 44600M burst 32k limit 1m", "tbf rate 44600M burst 32k limit 1000k", false},
		{Queue(), "fq_codel limit 10240 target 5ms", "fq_codel limit 10240 target 4999us ecn", true},
		{Queue(), "cake bandwidth 300M nat", "cake bandwidth 300M nonat", false},
		{LinkMTU(), "1500", "a: 1500; b: 1500", true},
		{LinkMTU(), "1500", "a: 1500; b: 1400", false},
		{LinkMTU(), "a: 1500; b: 1400", "a: 1500; b: 1400", true},
		{Offload(), "rx-gro=on", "rx-gro=on tx-generic-segmentation=off", true},
		{Offload(), "rx-gro=on", "wire", false},
		{Offload(), "rx-gro=on", "super", true},
		{Offload(), "super", "wire", false},
		{NAT(), "off", "forward", false},
		{Shape(), "off", "over noqueue", true},
		{Shape(), "50M", "over noqueue", false},
		{Shape(), "off", "50M", false},
	}
	for _, tt := range tests {
		if got := tt.knob.Same(tt.want, tt.got); got != tt.same {
			t.Errorf("%s: Same(%q, %q) is %v, want %v", tt.knob.Name(), tt.want, tt.got, got, tt.same)
		}
	}
}

func TestNamesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range All() {
		if seen[k.Name()] || strings.TrimSpace(k.Name()) == "" {
			t.Errorf("name %q is empty or there twice", k.Name())
		}
		seen[k.Name()] = true
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"1500", "a: 1; b: 2", "tbf rate 300M burst 128k", "cake nat besteffort", "netem loss 0.5%", "wire",
		"gro=on",
		"masquerade", "10 stateful", "net.ipv4.tcp_ecn=1", "0-1,3", "masks 1 2", "fq_codel target 5ms", "off",
		"on",
		"2000 in a set stateful log", "over pfifo limit 5",
	} {
		for i := range All() {
			f.Add(i, text)
		}
	}
	f.Fuzz(func(t *testing.T, i int, text string) {
		if i < 0 || i >= len(All()) {
			return
		}
		k := All()[i]
		s, err := k.Parse(text)
		if err != nil {
			if s != "" {
				t.Errorf("%s: an error comes with %q, want nothing", k.Name(), s)
			}
			return
		}
		again, err := k.Parse(string(s))
		if err != nil || again != s {
			t.Errorf("%s: %q gives %q, which gives %q (%v)", k.Name(), text, s, again, err)
		}
		if !k.Same(s, s) {
			t.Errorf("%s: %q differs from itself", k.Name(), s)
		}
	})
}

// TestHints: what was probably meant.
func TestHints(t *testing.T) {
	for _, tt := range []struct {
		knob       Knob
		text, want string
	}{
		{Queue(), "fq-codel", "did you mean fq_codel?"},
		{Queue(), "cake bandwith 300M", "did you mean bandwidth?"},
		{Queue(), "cake besteffrt", "did you mean besteffort?"},
		{Queue(), "tbf rate 10mbps", "write bits per second, such as 10mbit"},
		{Shape(), "10mbps", "write bits per second, such as 10mbit"},
		{NAT(), "masquarade", "did you mean masquerade?"},
		{Queue(), "quux", ""},
	} {
		_, err := tt.knob.Parse(tt.text)
		if got := check.HintOf(err); err == nil || got != tt.want {
			t.Errorf("%s %q: got %v with hint %q, want %q", tt.knob.Name(), tt.text, err, got, tt.want)
		}
	}
}
