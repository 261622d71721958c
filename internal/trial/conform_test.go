package trial

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// named is a machine of some name.
type named struct {
	host.Host
	name string
}

func (n named) Name() string { return n.name }

// TestABundleNamesNobody: what is given to others has neither addresses nor names of hosts nor keys, and all
// else.
func TestABundleNamesNobody(t *testing.T) {
	h := named{host.Local(), "ssh://admin@gateway.example.org:8443"}
	c := &Conformance{of: &lab.Node{Name: "router", Host: h}}
	const key = "uIu3hXXvMWhuDlMV7rVWbBc/JbJXdRtkHLpkK7qTCGM="
	for text, want := range map[string]string{
		"read queue on " + h.Name() + ": busy":                           "read queue on router: busy",
		"nodename gateway.example.org!":                                  "nodename router!",
		"via 192.0.2.7 or [2001:db8::1]:22, 198.18.0.0/24":               "via ADDRESS or [ADDRESS]:22, ADDRESS/24",
		"02:fc:00:00:00:01 at fe80::1%eth0 and ::1":                      "ADDRESS at ADDRESS%eth0 and ADDRESS",
		"6.1.0-56-cloud-amd64 at 10:15, cache 32 KiB":                    "6.1.0-56-cloud-amd64 at 10:15, cache 32 KiB",
		"exit status 2: Error: bad, dead.beef 1.16.2":                    "exit status 2: Error: bad, dead.beef 1.16.2",
		"src=192.0.2.1:443 used:192.0.2.9 192.0.2.8:":                    "src=ADDRESS:443 used:ADDRESS ADDRESS:",
		"id:02:fc:00:00:00:01 02-FC-00-00-00-01":                         "id:ADDRESS ADDRESS",
		"ed:2001:db8:1:2:3:4:5:6 enx02fc00000001 enp1s0":                 "ADDRESS ADDRESS enp1s0",
		"key " + key + " " + strings.Repeat("0a", 16):                    "key KEY KEY",
		"/sys/devices/system/cpu/cpufreq/policy0/scaling":                "/sys/devices/system/cpu/cpufreq/policy0/scaling",
		"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0m/7Zk0PQ":                "ssh-ed25519 KEY",
		"-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n": "KEY\n",
		`[{"comment":"for \"Jana\"","name":"ether1","mtu":1500}]`:        `[{"comment":"GIVEN","name":"ether1","mtu":1500}]`,
		"wireless.default.ssid='Nováků'\nwireless.key_mgmt=psk2":         "wireless.default.ssid=\"GIVEN\"\nwireless.key_mgmt=psk2",
		"identity: Jana2;serial-number=HX1 x":                            `identity: "GIVEN";serial-number="GIVEN" x`,
		`tcp dport 22 accept comment "Jana's PC"`:                        `tcp dport 22 accept comment "GIVEN"`,
		"\x1b[31mred\x1b[0m":                                             "[31mred[0m",
	} {
		got := c.anonymous(text)
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestABundleNamesNoDevices: a device that somebody has named, or that has its name from its address, is a
// number, in the names of facts as in what commands printed; others keep theirs.
func TestABundleNamesNoDevices(t *testing.T) {
	c := &Conformance{
		of: &lab.Node{Name: "router", Host: host.Local()},
		Facts: map[string]string{
			"device:office-jana:mtu":                         "1500",
			"device:office-jana:type":                        "ether",
			"device:enx02fc0000ab01:x":                       "at enx02fc0000ab01",
			"device:ether1:mtu":                              "1500",
			"sysctl:net.ipv4.conf.enx02fc0000ab02.rp_filter": "1",
			"sysctl:net.ipv4.conf.enx02fc0000ab03.rp_filter": "2",
		},
		Missing:    map[string]string{"device:wan-prague:speed": "wan-prague says none"},
		NotSampled: map[string]string{"ethtool": "no counters of office-jana"},
		Sampled:    []string{"rx_bytes:office-jana", "rx_bytes:ether1"},
		Tried: []Capability{{"setting", "mtu=1400", check.Not("office-jana: busy").Hinted(
			"set office-jana down")}},
		Outputs: []Output{{
			Command: []string{"ip", "link", "show", "office-jana"},
			Printed: "7: wg-to-jana: <UP>\n name=office-jana-2 default-name=ether1\n",
		},
			{Printed: `[{"ifname":"jana5","mtu":1500},{"interface": "guest jana"}]`}},
	}
	c.nameDevices()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}

	for _, secret := range []string{"jana", "prague", "02fc0000ab"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%q is in %s", secret, text)
		}
	}

	if len(c.Facts) != 6 || c.Facts["device:ether1:mtu"] != "1500" {
		t.Errorf("facts: %v, want all six", c.Facts)
	}

	got := c.Sampled[1]
	if got != "rx_bytes:ether1" {
		t.Errorf("sampled: %q", got)
	}
}

func TestReplaceWord(t *testing.T) {
	for _, tt := range [][2]string{
		{"lan is up", "X is up"},
		{"wlan plan lan2 lan", "wlan plan lan2 X"},
		{"lan-lan,lan", "X-X,X"},
		{"vlanlan lan", "vlanlan X"},
		{"", ""},
	} {
		got := replaceWord(tt[0], "lan", "X")
		if got != tt[1] {
			t.Errorf("%q: got %q, want %q", tt[0], got, tt[1])
		}
	}
}

// TestOutputsAreBounded: a bundle has each output once, anonymous, and is of a bounded size.
func TestOutputsAreBounded(t *testing.T) {
	t.Parallel()
	c := &Conformance{of: &lab.Node{Name: "router", Host: host.Local()}, trying: "queue=noqueue"}
	h := host.Overhear(host.Local(), 100, c.hear)
	say := func(text string) {
		c := host.Command{Path: "printf", Args: []string{"%s", text}}
		if _, err := host.Run(t.Context(), h, c); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		say("ether 02:fc:00:00:00:01 inet 192.0.2.1/24")
	}

	say(strings.Repeat("x", 120))
	diff := cmp.Diff(c.Outputs, []Output{
		{
			For:     "queue=noqueue",
			Command: []string{"printf", "%s", "ether ADDRESS inet ADDRESS/24"},
			Printed: "ether ADDRESS inet ADDRESS/24",
		},
		{For: "queue=noqueue", Command: []string{"printf", "%s", "KEY"}, Printed: "KEY", Cut: true},
	})
	if diff != "" {
		t.Errorf("outputs (-got +want):\n%s", diff)
	}

	for i := range 100 {
		c.hear(host.Command{Path: strings.Repeat("p", i)}, []byte(strings.Repeat("a b ", 4000)), true)
	}

	size := len(c.Outputs) * 16000
	if size > maxOutputs || size < maxOutputs/2 {
		t.Errorf("outputs of %d bytes are kept, want at most %d", size, maxOutputs)
	}
}

func FuzzAnonymous(f *testing.F) {
	f.Add("inet 192.0.2.1/24 brd 192.0.2.255 link/ether 02:fc:00:00:00:01 fe80::1%eth0")
	f.Add(`[{"comment":"x","private-key":"uIu3hXXvMWhuDlMV7rVWbBc/JbJXdRtkHLpkK7qTCGM="}]`)
	c := &Conformance{of: &lab.Node{Name: "router", Host: host.Local()}}
	f.Fuzz(func(t *testing.T, text string) {
		out := c.anonymous(text + " 192.0.2.77 02:fc:00:00:00:77 2001:db8::77 ")
		for _, secret := range []string{"192.0.2.77", "02:fc:00:00:00:77", "2001:db8::77"} {
			if strings.Contains(out, " "+secret+" ") {
				t.Errorf("%q: got %q with %s", text, out, secret)
			}
		}
	})
}
