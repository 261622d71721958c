package driver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ofBSD reads a text of testdata: a file that was recorded, or a part of the composed one.
func ofBSD(t testing.TB, name string) string {
	t.Helper()
	if strings.HasSuffix(name, ".txt") {
		return get(t, "testdata/freebsd/"+name)
	}

	_, text, _ := strings.Cut(ofBSD(t, "composed.txt"), "-- "+name+"\n")
	text, _, _ = strings.Cut(text, "\n-- ")
	return text
}

// bsdRouter is this machine with programs that play FreeBSD's in its path, and the folder with the state that
// they read and change.
type bsdRouter struct {
	*testing.T
	ctx context.Context
	dir string
}

func playBSD(t *testing.T) bsdRouter {
	t.Helper()
	bin, err := filepath.Abs("testdata/freebsd/bin")
	must(t, err)
	r := bsdRouter{t, context.WithoutCancel(t.Context()), t.TempDir()}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("FREEBSD_STATE", r.dir)
	ns, err := parseUptime(get(t, "/proc/uptime"))
	must(t, err)
	boot := time.Now().Add(-time.Duration(ns))
	features := "RXCSUM\nTXCSUM\nTSO4\nLRO\nVLAN_MTU\nRXCSUM_IPV6\nTXCSUM_IPV6"
	for name, text := range map[string]string{
		"release": "14.3-RELEASE-p10", "composed": strings.TrimSpace(ofBSD(t, "composed.txt")),
		"if/igc0.mtu": "1500", "if/igc0.options": features, "if/igc0.capabilities": features,
		"if/igc1.mtu": "1500", "if/igc1.options": "VLAN_MTU", "if/igc1.capabilities": "VLAN_MTU",
		"sysctl/net.inet.ip.forwarding": "1", "sysctl/net.inet6.ip6.forwarding": "0",
		"sysctl/net.inet.ip.redirect": "1", "sysctl/net.isr.numthreads": "2",
		"sysctl/hw.model": "AMD Ryzen Embedded V1500B",
		"sysctl/kern.boottime": fmt.Sprintf("{ sec = %d, usec = %d } Thu Jul  9 16:57:34 2020", boot.Unix(),
			boot.Nanosecond()/1e3),
		"sysctl/vfs.timestamp_precision": "2",
		"sysctl/kern.clockrate":          "{ hz = 1000, tick = 1000, profhz = 8128, stathz = 127 }",
		"sysctl/kern.cp_times":           "1306 0 20708 3886 2221637 1270 0 254000 0 1270 0 0 0 0 0",
		"sysctl/hw.physmem":              "8469024768", "sysctl/hw.pagesize": "4096",
		"sysctl/vm.stats.vm.v_free_count": "1000", "sysctl/dev.cpu.0.freq": "2200",
		"sysctl/dev.cpu.0.freq_levels": "2200/45000 1600/28000", "sysctl/dev.cpu.0.temperature": "45.0C",
		"sysctl/dev.cpu.1.temperature": "-1", "sysctl/hw.acpi.thermal.tz0.temperature": "27.9C",
		"pf/rules":  "anchor \"cp/*\" all\npass all flags S/SA keep state",
		"pf/states": "200000", "pf/adaptive": "120000 240000",
		"ipsec/most": "1000000", "ipsec/spd": "out 192.0.2.0/24 198.51.100.0/24 " +
			"esp/tunnel/203.0.113.2-203.0.113.9/unique:1\nin 198.51.100.0/24 192.0.2.0/24 " +
			"esp/tunnel/203.0.113.9-203.0.113.2/unique:1\nout 240.0.1.0/24 10.0.0.0/8 " +
			"esp/tunnel/203.0.113.2-203.0.113.9/unique:2",
	} {
		r.put(name, text+"\n")
	}

	r.put("sysctl/net.isr.numthreads.tunable", "")
	r.put("pf/anchor.rules", "")
	return r
}

func (r bsdRouter) put(name, text string)  { put(r, filepath.Join(r.dir, name), text) }
func (r bsdRouter) get(name string) string { return get(r, filepath.Join(r.dir, name)) }
func (r bsdRouter) remove(name string)     { must(r, os.RemoveAll(filepath.Join(r.dir, name))) }

func (r bsdRouter) read(knob string) (string, error) {
	return FreeBSD{}.Read(r.ctx, host.Local(), record.Setting{Knob: knob})
}

func (r bsdRouter) apply(knob, value string) error {
	return FreeBSD{}.Apply(r.ctx, host.Local(), record.Setting{Knob: knob, Value: value})
}

// wantUnsupported wants an error that says conclusively that a router lacks something, in these words.
func wantUnsupported(t testing.TB, what string, err error, words string) {
	t.Helper()
	if !errors.Is(err, host.ErrUnsupported) || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: got %v, want it unsupported, with %q", what, err, words)
	}
}

func TestBSDCheck(t *testing.T) {
	r := playBSD(t)
	for release, want := range map[string]check.State{"14.3-RELEASE-p10": check.Yes,
		"16.0-CURRENT": check.Yes, "13.2-RELEASE": check.No, "x": check.No, "\x1b[31m": check.No} {
		r.put("release", release)
		a := FreeBSD{}.Check(r.ctx, host.Local())
		if a.State != want || strings.Contains(a.Reason, "\x1b") {
			t.Errorf("FreeBSD %q: got %v (%q), want %v", release, a.State, a.Reason, want)
		}
	}

	if a := (Linux{}).Check(r.ctx, host.Local()); a.State != check.No {
		t.Errorf("driver linux takes it: %v", a)
	}
}

func TestBSDFacts(t *testing.T) {
	r := playBSD(t)
	got, err := FreeBSD{}.Facts(r.ctx, host.Local())
	must(t, err)
	want := map[string]string{"os": "freebsd", "distribution": "opnsense", "machine": "amd64",
		"distribution_version": "OPNsense 26.1.6[31m (amd64)", "kernel": "FreeBSD 14.3-RELEASE-p10",
		"cpu_model": "AMD Ryzen Embedded V1500B", "product": "DEC750", "sysctl:net.isr.numthreads": "2",
		"governor": "fixed at 2200 MHz", "sysctl:dev.cpu.0.freq_levels": "2200/45000 1600/28000"}
	same(t, want, got, "facts")
}

// TestBSDSettings: each setting is read, applied, read back, and put back to all that it was.
func TestBSDSettings(t *testing.T) {
	r := playBSD(t)
	h := host.Local()
	ctx := r.ctx
	d := FreeBSD{}
	state := func() map[string]string {
		t.Helper()
		out := map[string]string{}
		for _, name := range []string{"if/igc0.mtu", "if/igc1.mtu", "if/igc0.options", "pf/states",
			"pf/adaptive", "pf/anchor.rules", "pf/rules", "sysctl/net.inet.ip.forwarding",
			"sysctl/net.inet.ip.redirect", "sysctl/dev.cpu.0.freq", "ipsec/spd"} {
			lines := strings.Fields(r.get(name))
			if strings.HasSuffix(name, ".options") {
				slices.Sort(lines)
			}

			out[name] = strings.Join(lines, " ")
		}

		return out
	}
	const on = "rx-checksum=on rx-checksum-ipv6=on rx-lro=on tx-checksum-ipv4=on tx-checksum-ipv6=on " +
		"tx-tcp-segmentation=on"
	for _, tt := range []struct{ knob, port, before, value, after string }{
		{"link_mtu", "", "1500", "igc0: 9000; igc1: 1400", "igc0: 9000; igc1: 1400"},
		{"link_mtu", "igc1", "1500", "1400", "1400"},
		{"ip_forward", "", "ipv4", "off", "off"},
		{"ip_forward", "", "ipv4", "on", "on"},
		{"conntrack_max", "", "200000", "1000", "1000"},
		{"firewall", "", "off", "3 stateful", "3 stateful"},
		{"firewall", "", "off", "300 stateful", "300 stateful"},
		{"governor", "", "performance", "powersave", "powersave"},
		{"idle_policies", "", "0", "3", "3"},
		{"idle_policies", "", "0", "300", "300"},
		{"sysctl:net.inet.ip.redirect", "", "net.inet.ip.redirect=1", "net.inet.ip.redirect=0",
			"net.inet.ip.redirect=0"},
		{"offload", "igc0", on, "wire",
			strings.NewReplacer("lro=on", "lro=off", "segmentation=on", "segmentation=off").Replace(on)},
		{"offload", "igc0", on, "tx-checksum-ipv4=off", // without which there is no segmentation
			strings.NewReplacer("ipv4=on", "ipv4=off", "segmentation=on", "segmentation=off").Replace(on)},
		{"offload", "igc1", "wire", "wire", "wire"},
	} {
		start := state()
		s := record.Setting{Knob: tt.knob, Port: tt.port}
		before, err := d.Read(ctx, h, s)
		if err != nil || before != tt.before {
			t.Errorf("%s before: got %q, %v, want %q", tt.knob, before, err, tt.before)
		}

		undo := s
		undo.Value = before
		s.Value = tt.value
		script, err := undoing(ctx, h, d, []record.Setting{undo})
		must(t, err)
		for range 2 {
			if err := d.Apply(ctx, h, s); err != nil {
				t.Errorf("apply %s=%s: %v", tt.knob, tt.value, err)
			}
		}

		if after, err := d.Read(ctx, h, s); err != nil || after != tt.after {
			t.Errorf("%s after: got %q, %v, want %q", tt.knob, after, err, tt.after)
		}

		if err := d.Apply(ctx, h, undo); err != nil {
			t.Errorf("undo %s: %v", tt.knob, err)
		}

		same(t, start, state(), "%s after it was undone", tt.knob)
		must(t, d.Apply(ctx, h, s))
		if _, err := shell(ctx, h, script); err != nil {
			t.Errorf("%s: what the guard would do: %v", tt.knob, err)
		}

		same(t, start, state(), "%s after the guard's script %s", tt.knob, script)
	}
}

// TestBSDIdlePolicies: they are as kernel.SetIdlePolicies makes them; those of others stay; and nothing is
// set where it could not be counted, or has selectors of others.
func TestBSDIdlePolicies(t *testing.T) {
	const idle = "idle_policies"
	r := playBSD(t)
	others := r.get("ipsec/spd")
	must(t, r.apply(idle, "300"))
	ours, _ := strings.CutPrefix(r.get("ipsec/spd"), others)
	lines := strings.Split(ours, "\n")
	want := []string{"out 240.0.0.0/24 248.0.0.0/24 esp/tunnel/240.0.0.0-248.0.0.0/unique:16110",
		"in 248.0.0.0/24 240.0.0.0/24 esp/tunnel/248.0.0.0-240.0.0.0/unique:16110",
		"out 2001:db8:0:1::/64 2001:db8:8000:1::/64 " +
			"esp/tunnel/2001:db8:0:1::-2001:db8:8000:1::/unique:16110",
		"in 2001:db8:8000:1::/64 2001:db8:0:1::/64 " +
			"esp/tunnel/2001:db8:8000:1::-2001:db8:0:1::/unique:16110"}
	if !slices.Equal(lines[:4], want) ||
		len(lines) != 1201 || !strings.HasPrefix(lines[1198], "out 2001:db8:0:12c::/64 ") ||
		!strings.HasPrefix(lines[1196], "out 240.1.43.0/24 ") {
		t.Errorf("%d policies, from %q to %q", len(lines)-1, lines[:4], lines[len(lines)-5:])
	}

	// A socket that holds fewer: nothing can be counted, yet all can be deleted.
	r.put("ipsec/most", "250")
	_, err := r.read(idle)
	wantUnsupported(t, "count of more than are told", err, "250 of 1203 policies")
	if err := r.apply(idle, "0"); err != nil || r.get("ipsec/spd") != others {
		t.Errorf("undone: got %v and policies\n%s", err, r.get("ipsec/spd"))
	}

	r.put("ipsec/most", "100000")
	for name, text := range map[string]string{
		"1 policies of others": "out 240.0.7.0/24 248.0.7.0/24 esp/tunnel/192.0.2.1-192.0.2.2/require\n",
		"it has [1 0 0 0]":     strings.Join(lines[:1], "\n") + "\n"} {
		r.put("ipsec/spd", others+text)
		if v, err := r.read(idle); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %q, %v", text, v, err)
		}

		err := r.apply(idle, "0")
		left := r.get("ipsec/spd")
		if err != nil || strings.Contains(text, "require") != strings.Contains(left, "require") ||
			!strings.HasPrefix(left, others) {
			t.Errorf("delete ours beside %s: got %v and\n%s", text, err, left)
		}
	}

	r.remove("ipsec")
	_, err = r.read(idle)
	wantUnsupported(t, "a kernel without IPsec", err, "pfkey_open")
	if err := r.apply(idle, "1"); err == nil {
		t.Error("applied by a kernel without IPsec: got no error")
	}
}

// TestBSDGovernor: powerd, which sets the clock by the load, is ended for a fixed clock and started again as
// it was, by the driver and by a guard.
func TestBSDGovernor(t *testing.T) {
	apart.Long(t, "takes longer than a package has")
	r := playBSD(t)
	h := host.Local()
	ctx := r.ctx
	powerd := func() string {
		if missing(filepath.Join(r.dir, "powerd.pid")) {
			return ""
		}
		return strings.TrimSpace(r.get("powerd.pid"))
	}
	t.Cleanup(func() {
		pid := powerd()
		if pid != "" {
			shell(ctx, h, `kill "$1"`, pid)
		}
	})
	const flags = "-b hadp -a hadp -n hadp"
	_, err := shell(ctx, h, `echo 1600 >"$1/sysctl/dev.cpu.0.freq"; powerd `+flags, r.dir)
	must(t, err)
	before, err := r.read("governor")
	if err != nil || before != "powerd "+flags {
		t.Fatalf("before: got %q, %v", before, err)
	}

	if facts, err := (FreeBSD{}).Facts(ctx, h); err != nil || facts["governor"] != "/usr/sbin/powerd "+flags {
		t.Errorf("facts: got %q, %v", facts["governor"], err)
	}

	script, err := undoing(ctx, h, FreeBSD{}, []record.Setting{{Knob: "governor", Value: before}})
	must(t, err)
	for _, undo := range []func() error{
		func() error { return r.apply("governor", before) },
		func() error { _, err := shell(ctx, h, script); return err }} {
		for value, mhz := range map[string]string{"performance": "2200", "powersave": "1600"} {
			must(t, r.apply("governor", value))
			v, err := r.read("governor")
			now := strings.TrimSpace(r.get("sysctl/dev.cpu.0.freq"))
			if v != value || err != nil || now != mhz || powerd() != "" {
				t.Errorf("%s: got %q, %v, %s MHz, powerd %s", value, v, err, now, powerd())
			}
		}

		for range 2 { // one that was undone can be undone again
			must(t, undo())
		}

		if v, err := r.read("governor"); v != before || err != nil {
			t.Errorf("undone: got %q, %v, want %q", v, err, before)
		}
	}

	for _, value := range []string{"schedutil", "powerd -P /etc/rc.conf", "powerd -v", "fixed 1; x",
		"powerd -a $(x)"} {
		wantUnsupported(t, value, r.apply("governor", value), "")
	}

	r.put("busy/dev.cpu.0.freq", "")
	wantUnsupported(t, "a time counter that depends on the clock", r.apply("governor", "fixed 1600"),
		"timecounter.hardware=")
	r.put("sysctl/dev.cpu.0.freq_levels", "2400/-1\n")
	_, err = r.read("governor")
	wantUnsupported(t, "a processor that chooses its clock", err, "epp=0")
	r.remove("sysctl/dev.cpu.0.freq_levels")
	_, err = r.read("governor")
	wantUnsupported(t, "no cpufreq", err, "virtual machine")
}

func TestBSDGovernorStates(t *testing.T) {
	levels := parseBSDLevels("2901/35000 2900/35000 x/1 -1/2 2000/21703 800/-1")
	if !slices.Equal(levels, []int{2901, 2900, 2000, 800}) {
		t.Errorf("levels: got %v", levels)
	}

	governor := func(said string) (string, error) { return bsdGovernor(levels, strings.Split(said, "\n")) }
	parses(t, governor, map[string]string{"2900": "performance", "800": "powersave", "2000": "fixed 2000",
		"-1": "", "": "", "x": "", "800\n/usr/sbin/powerd": "powerd",
		"800\npowerd -N -p 500": "powerd -N -p 500",
		"800\npowerd -v":        "", "800\npowerd\npowerd": "", "800\n/tmp/evil -a hadp": "",
		"800\npowerd -P /etc/passwd": "", "800\npowerd -a \x1b[31m": ""})
}

// TestBSDAdaptive: timeouts of states that somebody has chosen stay when the limit changes.
func TestBSDAdaptive(t *testing.T) {
	r := playBSD(t)
	r.put("pf/adaptive", "70000 80000\n")
	must(t, r.apply("conntrack_max", "5000"))
	got := r.get("pf/adaptive")
	if got != "70000 80000\n" {
		t.Errorf("adaptive timeouts: got %q, want what they were", got)
	}
}

// TestBSDLacks: what the system lacks, or what takes more than the running system, is refused conclusively,
// with what to do by hand.
func TestBSDLacks(t *testing.T) {
	r := playBSD(t)
	for _, tt := range []struct{ knob, value, words string }{
		{"queue", "fq_codel", "dnctl pipe"},
		{"napi_threaded", "on", "no such thing"},
		{"offload", "super", "LRO"},
		{"offload", "rx-gro=on", "rx-gro"},
		{"firewall", "10", "10 stateful"},
		{"firewall", "10 in a set stateful", "lists of rules alone"},
		{"sysctl:net.isr.numthreads", "net.isr.numthreads=4", "/boot/loader.conf"},
	} {
		wantUnsupported(t, tt.knob+"="+tt.value, r.apply(tt.knob, tt.value), tt.words)
	}

	_, err := r.read("sysctl:no.such")
	wantUnsupported(t, "a sysctl that is not there", err, "")
	r.put("pf/rules", "pass all\n")
	_, err = r.read("firewall")
	wantUnsupported(t, "rules without an anchor", err, "/etc/pf.conf")
	r.remove("pf")
	for _, knob := range []string{"firewall", "conntrack_max"} {
		_, err := r.read(knob)
		wantUnsupported(t, knob+" without pf", err, "")
	}
}

func TestBSDCounters(t *testing.T) {
	playBSD(t)
	got, err := FreeBSD{}.Counters(t.Context(), host.Local(), []string{"igc0", "wg0"})
	want := map[string]kernel.LinkCounters{"igc0": {
		RxBytes:   372538087,
		RxPackets: 372717,
		RxDropped: 2,
		TxBytes:   198573339,
		TxPackets: 213821,
		TxDropped: 4,
	},
		"wg0": {RxBytes: 700, RxPackets: 7, TxBytes: 800, TxPackets: 8}}
	must(t, err)
	same(t, want, got, "counters")
	if _, err := (FreeBSD{}).Counters(t.Context(), host.Local(), []string{"em9"}); err == nil {
		t.Error("counters of a device that it lacks: got no error")
	}
}

// What netstat of FreeBSD 12 and 16 prints: the columns differ, and an absent one is no zero.
func TestParseNetstat(t *testing.T) {
	got := parseNetstat(ofBSD(t, "netstat-ib.txt"))["em0"]
	want := map[string]uint64{"rx_packets": 372717, "rx_errors": 0, "rx_dropped": 0, "rx_bytes": 372538087,
		"tx_packets": 213821, "tx_errors": 0, "tx_bytes": 198573339, "tx_collisions": 0}
	same(t, want, got, "em0")
	all := parseNetstat(ofBSD(t, "netstat-ndi.txt"))
	want = map[string]uint64{"rx_packets": 20004846, "rx_errors": 0, "rx_dropped": 0, "tx_packets": 2,
		"tx_errors": 0, "tx_collisions": 0, "tx_dropped": 0}
	same(t, want, all["igb1"], "igb1")
	if _, ok := all["enc0"]; !ok || len(all) != 5 {
		t.Errorf("devices: got %v, want five, enc0 among them, which is down", all)
	}
}

func TestParseCapabilities(t *testing.T) {
	all := map[string]bool{"rx-checksum": true, "rx-checksum-ipv6": true, "tx-checksum-ipv4": true,
		"tx-checksum-ipv6": true, "tx-tcp-segmentation": true, "tx-tcp6-segmentation": true, "rx-lro": true}
	for _, name := range []string{"ifconfig-ix0.txt", "ifconfig-mce0.txt"} {
		same(t, all, parseCapabilities(ofBSD(t, name)), "%s", name)
	}
}

func TestBSDWays(t *testing.T) {
	playBSD(t)
	ways, own, err := FreeBSD{}.Ways(t.Context(), host.Local(), []netip.Addr{
		netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8:ffff::1"),
		netip.MustParseAddr("192.0.2.9")})
	want := []kernel.Way{{Device: "igc0", Via: netip.MustParseAddr("203.0.113.1")}, {}, {Device: "igc1"}}
	d := cmp.Diff(ways, want, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }))
	if d != "" ||
		err != nil {
		t.Errorf("ways: %v (-got +want):\n%s", err, d)
	}

	if len(own) != 0 { // the devices that are played have none
		t.Errorf("own addresses: got %v", own)
	}

	_, addresses, _ := strings.Cut(ofBSD(t, "route"), "\naddresses\n")
	if own = ownAddresses(addresses); fmt.Sprint(own) != "[203.0.113.2 2001:db8::2 192.0.2.1]" {
		t.Errorf("own addresses: got %v", own)
	}
}

// TestBSDGuard: a guard undoes, last first, what it was given when nobody keeps in touch with it, and leaves
// nothing; one that is dismissed does nothing; a second controller is refused, and what a reboot left is not
// taken for a guard.
func TestBSDGuard(t *testing.T) {
	apart.Long(t, "takes longer than a package has")
	r := playBSD(t)
	h := host.Local()
	ctx := r.ctx
	d := FreeBSD{}
	mtu := func(value string) record.Setting {
		return record.Setting{Knob: "link_mtu", Port: "igc0", Value: value}
	}
	undo := []record.Setting{mtu("1500"), mtu("1400")}
	must(t, d.Apply(ctx, h, mtu("9000")))
	name, err := d.Guard(ctx, h, "", undo, time.Second)
	must(t, err)
	t.Cleanup(func() { d.Dismiss(ctx, h, name) })
	if i, err := os.Stat(name); err != nil || i.Mode().Perm() != 0o700 {
		t.Errorf("the guard's folder: got %v, %v, want mode 0700", i, err)
	}

	if _, err := d.Guard(ctx, h, "", undo, time.Second); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("a second controller: got %v, want the name of the first one's guard", err)
	}

	if err := d.Free(ctx, h); err == nil || !strings.Contains(err.Error(), name) || check.HintOf(err) == "" {
		t.Errorf("a second controller asks: got %v, want the name of the first one's guard, and a hint", err)
	}

	if err := d.Free(ctx, h, "none", name); err != nil {
		t.Errorf("its own controller asks: got %v, want it free", err)
	}

	waitFor(30*time.Second, func() bool { return missing(name) })
	if v, err := d.Read(ctx, h, mtu("")); v != "1500" || !missing(name) {
		t.Errorf("after silence: got MTU %q, %v, want what was set first", v, err)
	}

	if err := d.Touch(ctx, h, name); err == nil {
		t.Error("a guard that is gone is kept in touch with")
	}

	name, err = d.Guard(ctx, h, "", undo[1:], time.Hour)
	must(t, err)
	time.Sleep(2500 * time.Millisecond)
	if !missing(name + "/touched") {
		t.Error("the guard does not notice that somebody keeps in touch")
	}

	// Its process dies, as in a reboot.
	_, err = shell(ctx, h, `read p <"$1/pid"; kill -9 "$p"`, name)
	must(t, err)
	if !waitFor(10*time.Second, func() bool { return d.Touch(ctx, h, name) != nil }) {
		t.Error("a guard whose process is gone is kept in touch with")
	}

	left := name
	name, err = d.Guard(ctx, h, "", undo[1:], time.Hour)
	if must(t, err); !missing(left) {
		t.Error("a guard that a reboot has ended stays")
	}

	if err := d.Dismiss(ctx, h, name); err != nil || !missing(name) {
		t.Errorf("dismiss: %v", err)
	}

	if err := d.Free(ctx, h); err != nil {
		t.Errorf("after that: got %v, want the router free", err)
	}

	got := r.get("if/igc0.mtu")
	if got != "1500\n" {
		t.Errorf("a guard that was dismissed has undone something: %q", got)
	}
}

// TestBSDWatch: the loop runs, hands over, and leaves nothing; its series are those of the probes.
func TestBSDWatch(t *testing.T) {
	r := playBSD(t)
	h := host.Local()
	ctx := r.ctx
	from := host.Monotonic()
	w, err := FreeBSD{}.Watch(ctx, h, time.Second)
	must(t, err)
	dir := w.(*shellWatch).dir
	time.Sleep(2500 * time.Millisecond)
	to := host.Monotonic()
	data, err := w.Collect(ctx, from, to)
	must(t, err)
	last := map[string]float64{}
	for _, s := range data.Samples {
		if s.Table == nil {
			t.Logf("%s: %s", s.Probe, s.Unavailable)
			continue
		}

		n := len(s.Table.T)
		if n < 2 || s.Table.T[0] < from-int64(time.Second) || s.Table.T[n-1] < to-int64(50*time.Millisecond) {
			t.Errorf("%s: %d samples at %v, want some from %d to %d", s.Probe, n, s.Table.T, from, to)
		}

		for i, name := range s.Table.Names {
			last[s.Probe+" "+name] = s.Table.V[i][n-1]
		}

		declared(t, s)
	}

	for name, want := range map[string]float64{
		"cpu cpu0/idle_ns": 2221637e9 / 127, "cpu cpu1/system_ns": 0, "cpu cpu0/softirq_ns": 10.5e9,
		"cpu cpu1/softirq_ns": 7380.25e9, "cpu cpu0/irq_ns": 3886e9 / 127,
		"cpu cpu/user_ns":        (1306 + 1270) * 1e9 / 127.,
		"softnet cpu0/processed": 1795, "softnet cpu/dropped": 5, "softnet cpu0/backlog": 3,
		"netdev igc0/rx_bytes": 372538087, "netdev igc0/tx_dropped": 4, "netdev wg0/tx_packets": 8,
		"conntrack entries": 1225, "conntrack max": 200000, "conntrack drop": 17,
		"conntrack insert_failed": 2,
		"memory total_bytes":      8469024768, "memory free_bytes": 4096000,
		"cpufreq policy0/frequency_hz": 2.2e9, "cpufreq policy0/hardware_limit_hz": 2.2e9,
		"thermal cpu0/temperature_c": 45, "thermal tz0/temperature_c": 27.9,
		"kthreads wg-crypt/kthread_cpu_ns": 5e9,
	} {
		if got, ok := last[name]; !ok || got < want*(1-1e-9) || got > want*(1+1e-9) {
			t.Errorf("%s: got %v, %v, want %v", name, got, ok, want)
		}
	}

	for _, name := range []string{"cpu cpu2/idle_ns", "thermal cpu1/temperature_c", "netdev lo0/rx_bytes",
		"softnet cpu0/time_squeeze"} {
		if v, ok := last[name]; ok {
			t.Errorf("%s, which there is not: got %v", name, v)
		}
	}

	c := data.Clock
	if c.BoundBefore <= 0 || c.BoundAfter <= 0 || len(data.Cost) != 1 ||
		data.Cost[0].CPUNs <= 0 {
		t.Errorf("clock and cost: got %+v, %+v", c, data.Cost)
	}

	if _, err := w.Collect(ctx, to, host.Monotonic()); err != nil {
		t.Errorf("collect again: %v", err)
	}

	if err := w.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}

	if !missing(dir) {
		t.Error("it leaves its folder")
	}

	if _, err := w.Collect(ctx, from, to); err == nil {
		t.Error("collect after close: got no error")
	}
}

// declared: a series has the name, scope, stems and units of the probe that it stands for.
func declared(t *testing.T, s record.Samples) {
	t.Helper()
	for _, p := range probe.All(probe.Root{}) {
		if p.Name != s.Probe {
			continue
		}

		known := map[string]record.Metric{}
		for _, m := range p.Metrics() {
			m.Doc = ""
			known[m.Name] = m
		}

		for _, m := range s.Metrics {
			m.Doc = ""
			if known[m.Name] != m || s.Scope != m.Scope {
				t.Errorf("%s: got %+v, want %+v", s.Probe, m, known[m.Name])
			}
		}

		for _, name := range s.Table.Names {
			stem := name[strings.LastIndexByte(name, '/')+1:]
			if known[stem].Name == "" {
				t.Errorf("%s: column %s is not declared", s.Probe, name)
			}
		}

		return
	}

	t.Errorf("there is no probe %s", s.Probe)
}

const bsdSampleText = "@ 1594339154.800000000\n{ sec = 1594339054, usec = 740932 } Thu Jul  9\n" +
	"0m0.01s 0m0.02s\n1m0.50s 0m0.10s\n==> netstat <==\nx\n==> pf <==\n"

// A sample amid which the clock was set, and one that was cut off, are left out.
func TestParseBSDSamples(t *testing.T) {
	later := strings.Replace(bsdSampleText, "9154.8", "9155.8", 1)
	set := strings.Replace(later, "sec = 1594339054", "sec = 1594339014", 1)
	after := strings.NewReplacer("9154.8", "9117.5", "sec = 1594339054",
		"sec = 1594339014").Replace(bsdSampleText)
	got := parseBSDSamples(bsdSampleText + later + set + after + "@ 1594339160.1\n{ sec")
	var at []int64
	for _, s := range got {
		at = append(at, s.at)
	}

	same(t, []int64{100059068000, 101059068000, 102759068000}, at, "times")
	if got[0].cpu != 60.63e9 || got[0].files["netstat"] != "x" {
		t.Errorf("first sample: got %+v", got[0])
	}
}

func TestReadCPTimes(t *testing.T) {
	got := readCPTimes(bsdSample{sysctl: parseSysctl(ofBSD(t, "sysctl.txt"))})
	if len(got) != 10 || got["cpu0/idle_ns"] != 2221637*1e9/127. {
		t.Errorf("got %+v, want the sum and one core, without softirqs", got)
	}
}

// TestBSDCores: a core whose thread moves packets all the time is found busy with softirqs, as the rules
// about CPUs read it; another idles.
func TestBSDCores(t *testing.T) {
	var samples []snapshot
	for i := range int64(3) {
		samples = append(samples, snapshot{
			at: i * 1e9,
			files: map[string]string{
				"sysctl": fmt.Sprintf("kern.clockrate: { hz = 1000, tick = 1000, profhz = 8128, stathz = 127 }\n"+
					"kern.cp_times: 9 0 %d 5 70 9 0 100 5 %d\n", 500+i*127, 70+i*127),
				"threads": fmt.Sprintf("if_io_tqg_0 0:0%d.98\nif_io_tqg_1 0:00.00\n", i+1)},
		})
	}

	data, err := bsdSeries(samples, 0)
	must(t, err)
	cores := metrics.CoresOf(data)
	if len(cores) != 2 {
		t.Fatalf("got %d cores, want 2", len(cores))
	}

	for i, want := range []float64{1, 0} {
		busy, ok := cores[i].Busy(0, 2e9)
		softirq, _ := cores[i].Softirq(0, 2e9)
		if !ok || math.Abs(busy-want) > .001 || math.Abs(softirq-want) > .001 {
			t.Errorf("%s: got %v busy, %v with softirqs, want %v", cores[i].Name, busy, softirq, want)
		}
	}
}

func FuzzParseBSD(f *testing.F) {
	for _, name := range []string{"netstat-ib.txt", "netstat-ndi.txt", "ifconfig-ix0.txt", "sysctl.txt",
		"composed.txt"} {
		f.Add(ofBSD(f, name))
	}

	f.Add(bsdSampleText + bsdSampleText)
	f.Add("1203 1203 0 300 300 300 300\n")
	f.Add("1600\n/usr/sbin/powerd -b hadp -a hadp -n hadp")
	f.Add("wg0 0 83 180 92\nwg0 1 - 0 148\n")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := parsePFRules(text); err != nil && got != "" {
			t.Errorf("rules of %q: got %q with error %v", text, got, err)
		}

		if l, err := parsePFLimits(text); err == nil && l.states < 0 {
			t.Errorf("limits of %q: got %+v", text, l)
		}

		for name := range parseNetstat(text) {
			if !deviceLike(name) {
				t.Errorf("device %q of %q", name, text)
			}
		}

		parseCapabilities(text)
		if n, err := parseBSDIdle(text); err != nil && n != "" {
			t.Errorf("idle policies of %q: got %q with error %v", text, n, err)
		}

		if state, err := bsdGovernor([]int{2200, 1600}, strings.Split(text, "\n")); err == nil &&
			check.Plain(state) != state {
			t.Errorf("clock of %q: got %q", text, state)
		}

		for name := range readPeers(text) {
			if check.Plain(name) != name {
				t.Errorf("peer %q of %q", name, text)
			}
		}

		ownAddresses(text)
		ways := parseWays(text, 2)
		if len(ways) != 2 {
			t.Errorf("%d ways", len(ways))
		}

		last := int64(-1)
		samples := parseBSDSamples(text)
		for _, s := range samples {
			if s.at <= last {
				t.Errorf("%q: time %d after %d", text, s.at, last)
			}

			last = s.at
		}

		whole := snapshot{at: 1, files: map[string]string{}}
		for _, name := range []string{"sysctl", "netstat", "netisr", "pf", "threads"} {
			whole.files[name] = text
		}

		data, err := bsdSeries(append([]snapshot{whole}, samples...), 0)
		must(t, err)
		for _, s := range data.Samples {
			if s.Table == nil {
				continue
			}

			for i, name := range s.Table.Names {
				if check.Plain(name) != name || len(s.Table.V[i]) != len(s.Table.T) {
					t.Errorf("column %q of %s: %d values at %d times", name, s.Probe, len(s.Table.V[i]),
						len(s.Table.T))
				}
			}
		}
	})
}
