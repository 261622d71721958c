package knob

import (
	"runtime"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
}

func TestParse(t *testing.T) {
	for k, levels := range map[Knob]map[string]State{ // "" = an error
		LinkMTU(): {
			" 1500 ":           "1500",
			"1279":             "",
			"b: 1500; a: 9000": "a: 9000; b: 1500",
			"a: 1500; a: 9000": "",
		},
		TxQueueLen(): {"0": "0", "-1": ""},
		Queue(): {
			"noqueue":         "noqueue",
			"noqueue limit 5": "",
			"pfifo":           "pfifo limit 1000",
			"pfifo limit":     "",
			"bfifo":           "",
			"bfifo limit 1m":  "bfifo limit 1m",
			"tbf limit 256k rate 300Mbit burst 131072": "tbf rate 300M burst 128k limit 256k",
			"tbf rate 0.3G":                        "tbf rate 300M burst 128k limit 367k",
			"tbf rate 10mbit burst 32kb limit 1mb": "tbf rate 10M burst 32k limit 1m",
			"tbf rate 10mbps":                      "",
			"cake bandwidth 10Mbps":                "",
			"tbf":                                  "",
			"tbf rate 0":                           "",
			"tbf rate 1G rate 2G":                  "",
			"htb rate 300M":                        "htb rate 300M burst 128k",
			"fq_codel target 2500us": "fq_codel limit 10240 flows 1024 target 2500us " +
				"interval 100ms memory_limit 32m",
			"cake nat besteffort bandwidth 300M":       "cake bandwidth 300M besteffort rtt 100ms nat",
			"cake bandwidth unlimited nonat":           "cake bandwidth unlimited rtt 100ms nonat",
			"netem delay 10ms loss 0.5%":               "netem limit 1000 delay 10ms loss 0.5%",
			"netem reorder 25% duplicate 1% delay 5ms": "netem limit 1000 delay 5ms duplicate 1% reorder 25%",
			"cake bandwidth 50M overhead 44 atm":       "cake bandwidth 50M rtt 100ms overhead 44 atm",
			"codel2":                                   "",
			"":                                         "",
		},
		Shape(): {
			"10mbps":             "",
			"50Mbit":             "50M",
			"0.3G":               "300M",
			"off":                "off",
			"over pfifo":         "over pfifo limit 1000",
			"unlimited":          "",
			"over":               "",
			"lan: 20M; wan: 50M": "",
		},
		Policer(): {"1.25MBps": "", "lan: 50M; wan: off": "", "0": ""},
		Offload(): {
			"wire": "wire",
			"gro=on tso=off": "rx-gro=on tx-tcp-ecn-segmentation=off tx-tcp-segmentation=off " +
				"tx-tcp6-segmentation=off",
			"gro=maybe":         "",
			"gro=on rx-gro=off": "",
		},
		NAT():  {"forward": "forward", "on": ""},
		VLAN(): {"4094": "4094", "4095": "", "off": "off"},
		Firewall(): {
			"100  stateful":           "100 stateful",
			"off stateful":            "",
			"-1":                      "",
			"2000 in a  set":          "2000 in a set",
			"0 in a map stateful log": "0 in a map stateful log",
			"5 log":                   "5 log",
			"5 log stateful":          "",
			"5 in a":                  "",
			"5 in a settee":           "",
		},
		Flowtable():    {"on": "on", "hardware": "hardware", "hw": ""},
		ConntrackMax(): {"20": "20", "0": ""},
		MSSClamp(): {
			"off":  "off",
			"pmtu": "pmtu",
			"1360": "1360",
			"0":    "",
			"1":    "",
			"535":  "",
			"9001": "",
		},
		Governor(): {
			"performance":                "performance",
			"each a a":                   "a",
			"each schedutil performance": "each schedutil performance",
			"":                           "",
			"each":                       "",
			"a b":                        "",
			"../x":                       "",
			"abcdefghijklmnop":           "",
		},
		NAPIThreaded(): {"off": "off", "1": ""},
		GROFlushTimeout(): {
			"off":    "off",
			"20us":   "20us",
			"0.02ms": "20us",
			"1000us": "1ms",
			"0":      "",
			"2s":     "",
			"20":     "",
		},
		IdlePolicies(): {"100": "100", "10001": ""},
		IRQAffinity(): {
			"0-1,3":      "0-1,3",
			"each 0 0,1": "each 0 0-1",
			"each 1 1":   "1",
			"off":        "",
			"masks 1 2":  "",
		},
		CPUCount():   {"2": "2", "0": ""},
		FlowExport(): {"softflowd": "softflowd", "on": ""},
		CPUQuota(): {"25%": "25%", "25": "25%", "7.5 %": "", "7.5%": "7.5%", "0.5%": "", "101%": "",
			"off": "off", "1e1": "", "": "", "NaN": ""},
		FaultPlant(): {
			"none": "none", "loss=1%": "loss=1%", " loss = 1%": "", "cpu_hog=2+loss=0.5%": "loss=0.5%+cpu_hog=2",
			"link_rate=50Mbit": "link_rate=50M", "link_rate=0": "", "link_rate=off": "", "loss=0%": "",
			"loss=101%":       "",
			"loss=1%+loss=2%": "", "los=1%": "", "loss": "", "receive_buffer=16K": "receive_buffer=16k",
			"receive_buffer=1": "", "cpu_tightening=40, 20%,10": "cpu_tightening=40,20,10",
			"cpu_tightening=40,200":           "",
			"cpu_quota=20%+cpu_tightening=40": "", "log_flood=off": "", "rules=0": "", "delay=20ms": "delay=20ms",
			"pmtu_hole=1000": "", "bypass=on": "bypass=on", `found [{"knob":"fault","state":"loss=1%"}]`: "",
			`found [{"knob":"queue","port":"wan","state":"nonsense"}]`: "",
			`found [{"knob":"queue","port":"wan","state":"noqueue"}]`:  `found [{"knob":"queue","port":"wan","state":"noqueue"}]`,
		},
		IPForward(): {"on": "on", "1": ""},
		Sysctl(): {
			"net/ipv4/tcp_rmem = 4096  131072 6291456": "net.ipv4.tcp_rmem=4096 131072 6291456",
			"net/ipv4/conf/eth0.5/forwarding=1":        "net/ipv4/conf/eth0.5/forwarding=1",
			"net.ipv4.tcp_ecn":                         "",
			"../../etc/passwd=x":                       "",
		},
		CPUs(): {
			"3,0,1":                     "0-1,3",
			"off":                       "off",
			"masks 1 2":                 "masks 1 2",
			"masks 00000000,00000003 3": "0-1",
			"2-1":                       "",
		},
	} {
		for text, want := range levels {
			got, err := k.Parse(text)
			if got != want || (err == nil) != (want != "") {
				t.Errorf("%s: Parse(%q) gives %q, %v; want %q", k.Name(), text, got, err, want)
			}
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
		got := tt.knob.Same(tt.want, tt.got)
		if got != tt.same {
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
		{FaultPlant(), "los=1%", "did you mean loss?"},
		{Queue(), "quux", ""},
	} {
		_, err := tt.knob.Parse(tt.text)
		got := check.HintOf(err)
		if err == nil || got != tt.want {
			t.Errorf("%s %q: got %v with hint %q, want %q", tt.knob.Name(), tt.text, err, got, tt.want)
		}
	}
}
