package driver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/routeros"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// same compares what is got with what is wanted.
func same(t testing.TB, want, got any, what string, args ...any) {
	t.Helper()
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf(what+" (-want +got):\n%s", append(args, diff)...)
	}
}

// rosSettings are some of each kind, in canonical states.
func rosSettings() []record.Setting {
	return labtest.SettingsOf(`link_mtu.wan=1400
link_mtu.odd "$name\=9000
queue.wan=fq_codel limit 2048 flows 1024 target 5ms interval 100ms memory_limit 32m ecn
queue.lan=cake bandwidth 300M diffserv4 dual-srchost rtt 50ms nat nowash ack-filter overhead 18 mpu 64 noatm
queue.wan=pfifo limit 100
queue.wan=noqueue
ip_forward=ipv6
firewall=300 stateful log
firewall=20 in a set
nat.wan=masquerade
flowtable=off`)
}

// ros is the driver.
var ros driver.RouterOS

// unchanged wants a device to have the configuration that it had before.
func unchanged(t *testing.T, before map[string][]map[string]string, d *routeros.Device) {
	t.Helper()
	same(t, before, d.Config(), "configuration")
}

// TestRouterOS: the driver does what every driver must with a device that speaks the console, and leaves its
// configuration as it was.
func TestRouterOS(t *testing.T) {
	t.Parallel()
	d := routeros.New()
	before := d.Config()
	labtest.DriverSuite(t, ros, d, rosSettings(), "lan", "wan")
	unchanged(t, before, d)
}

// TestRouterOSRules: each setting is made of the rules that it says, ahead of the router's own but behind
// those that RouterOS makes.
func TestRouterOSRules(t *testing.T) {
	d := routeros.New()
	ctx := t.Context()
	apply := func(knob, value string) {
		t.Helper()
		must(t, ros.Apply(ctx, d, record.Setting{Knob: knob, Value: value}))
	}
	apply("firewall", "257 stateful")
	apply("flowtable", "off")
	apply("nat", "masquerade")
	var chains, fast []string
	rules := map[string]int{}
	for _, r := range d.Config()["/ip/firewall/filter"] {
		if r["chain"] == "forward" {
			chains = append(chains, r["action"])
		}

		if r["action"] == "fasttrack-connection" {
			fast = append(fast, r["comment"]+"|"+r["disabled"])
		}

		if r["chain"] == "chokepoint" {
			rules[r["action"]]++
		}
	}

	same(t, []string{"passthrough", "jump", "fasttrack-connection", "fasttrack-connection"}, chains,
		"chain forward")
	same(t, map[string]int{"return": 1, "drop": 257}, rules, "our chain")
	same(t, []string{"chokepoint off:def \"conf\" $1|yes", "not used|yes"}, fast, "FastTrack")
	nat := d.Config()["/ip/firewall/nat"]
	if len(nat) != 1 || nat[0]["out-interface"] != "wan" {
		t.Errorf("address translation: got %v, want one rule", nat)
	}
}

// TestRouterOSRefuses: what the router lacks, or has of its own, is unsupported, with what can be done.
func TestRouterOSRefuses(t *testing.T) {
	d := routeros.New()
	ctx := t.Context()
	d.Tables["/ip/firewall/nat"] = []map[string]string{{".id": "*FF", "chain": "srcnat",
		"action": "masquerade"}}
	d.Tables["/queue/interface"][0]["queue"] = "red"
	d.Tables["/queue/type"] = append(d.Tables["/queue/type"], map[string]string{"name": "red", "kind": "red"})
	for _, s := range []record.Setting{{Knob: "nat"}, {Knob: "queue", Port: "lan"}, {Knob: "conntrack_max"},
		{Knob: "link_mtu", Port: "bridge"}, {Knob: "cpu_quota"}} {
		if _, err := ros.Read(ctx, d, s); !errors.Is(err, host.ErrUnsupported) {
			t.Errorf("read %s: got %v, want %v", s.Knob, err, host.ErrUnsupported)
		}
	}

	for _, s := range []record.Setting{{Knob: "firewall", Value: "10 in a map"},
		{Knob: "nat", Value: "forward"},
		{Knob: "queue", Port: "wan", Value: "tbf rate 50M burst 128k limit 256k"},
		{Knob: "queue", Port: "wan", Value: "cake ingress"}} {
		if err := ros.Apply(ctx, d, s); !errors.Is(err, host.ErrUnsupported) {
			t.Errorf("apply %s=%s: got %v, want %v", s.Knob, s.Value, err, host.ErrUnsupported)
		}
	}

	for _, s := range []record.Setting{{Knob: "link_mtu", Port: "wan", Value: "1500; /system/reboot"},
		{Knob: "ip_forward", Value: "on; /system/reboot"}, {Knob: "queue", Port: "wan", Value: "pfifo; x"},
		{Knob: "firewall", Value: "1}"}, {Knob: "flowtable", Value: "on;"}} {
		if err := ros.Apply(ctx, d, s); err == nil {
			t.Errorf("apply %s=%s: got no error", s.Knob, s.Value)
		}
	}
}

func TestRouterOSFacts(t *testing.T) {
	got, err := ros.Facts(t.Context(), routeros.New())
	want := map[string]string{"os": "routeros", "distribution": "routeros",
		"distribution_version": "7.20.8 (long-term)", "memory_bytes": "1073741824",
		"device_mode": "advanced", "device_mode:scheduler": "yes", "device_mode:routerboard": "no",
		"device_mode:flagged": "no", "cpu_frequency_set": "1400MHz",
		"device:lan:mtu": "1500", "device:lan:type": "ether", "device:lan:queue": "only-hardware-queue",
		"device:wan:mtu": "1500", "device:wan:type": "ether", "device:wan:queue": "ethernet-default",
		"device:bridge:mtu": "1500", "device:bridge:type": "bridge", "device:bridge:queue": "no-queue",
		"device:office:mtu": "1420", "device:office:type": "wg"}
	must(t, err)
	same(t, want, got, "facts")
}

func TestRouterOSCheck(t *testing.T) {
	d := routeros.New()
	for version, want := range map[string]check.State{"7.20.8 (long-term)": check.Yes,
		"7.24rc1": check.Yes, "7.16.2 (stable)": check.No, "6.49.10": check.No, "": check.No} {
		d.Tables["/system/resource"][0]["version"] = version
		a := ros.Check(t.Context(), d)
		if a.State != want {
			t.Errorf("%q: got %v (%s), want %v", version, a.State, a.Reason, want)
		}
	}

	if a := (driver.Linux{}).Check(t.Context(), d); a.State != check.No {
		t.Errorf("driver linux: got %v (%s), want no", a.State, a.Reason)
	}

	for name, h := range map[string]host.Host{"a shell's machine": labtest.NewHost("pc", nil, nil),
		"this machine": host.Local()} {
		a := ros.Check(t.Context(), h)
		if a.State != check.No {
			t.Errorf("%s: got %v (%s), want no", name, a.State, a.Reason)
		}
	}
}

func TestRouterOSWays(t *testing.T) {
	d := routeros.New()
	to := []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("203.0.113.1")}
	ways, own, err := ros.Ways(t.Context(), d, to)
	must(t, err)
	same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	diff := cmp.Diff(ways, []kernel.Way{{Device: "lan", Source: netip.MustParseAddr("192.0.2.1")},
		{Device: "wan", Via: netip.MustParseAddr("198.51.100.254")}}, same)
	if diff != "" {
		t.Errorf("ways (-got +want):\n%s", diff)
	}

	if len(own) != 2 {
		t.Errorf("own addresses: got %v, want two", own)
	}
}

// guarded makes settings on a device one after the other, each behind a guard that undoes all.
func guarded(t *testing.T, d *routeros.Device) (name string, before map[string][]map[string]string) {
	t.Helper()
	before = d.Config()
	var undo []record.Setting
	for _, s := range rosSettings() {
		old := s
		var err error
		if old.Value, err = ros.Read(t.Context(), d, s); err != nil {
			t.Fatal(err)
		}

		undo = append(undo, old)
		if name, err = ros.Guard(t.Context(), d, name, undo, 45*time.Second); err != nil {
			t.Fatal(err)
		}

		must(t, ros.Apply(t.Context(), d, s))
	}

	if d.Config()["/interface"][1]["mtu"] != "1400" {
		t.Fatal("nothing was set")
	}

	return name, before
}

// TestRouterOSGuard: it undoes all when nobody has kept in touch with it, and after a reboot, and leaves
// nothing; as long as somebody does, it does nothing.
func TestRouterOSGuard(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(d *routeros.Device){
		"silence": func(d *routeros.Device) { d.Pass(2 * time.Minute) },
		"reboot":  (*routeros.Device).Reboot,
		"reboot with a clock that is kept": func(d *routeros.Device) {
			d.Reboot()
			for _, e := range d.Tables["/system/scheduler"] {
				e["due"] = "0s"
			}

			d.Pass(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) { rosGuard(t, end) })
	}
}

func rosGuard(t *testing.T, end func(*routeros.Device)) {
	d := routeros.New()
	guard, before := guarded(t, d)
	for range 10 {
		d.Pass(20 * time.Second)
		must(t, ros.Touch(t.Context(), d, guard))
	}

	if d.Config()["/interface"][1]["mtu"] != "1400" {
		t.Fatal("it has undone something although somebody kept in touch")
	}

	if _, err := ros.Guard(t.Context(), d, "", nil, time.Minute); err == nil {
		t.Error("a second controller was let in")
	}

	if err := ros.Free(t.Context(), d); err == nil || check.HintOf(err) == "" {
		t.Errorf("a second controller asks: got %v, want an error with a hint", err)
	}

	if err := ros.Free(t.Context(), d, guard); err != nil {
		t.Errorf("its own controller asks: got %v, want it free", err)
	}

	end(d)
	diff := cmp.Diff(before, d.Config())
	if diff != "" || len(d.Logged) > 0 {
		t.Errorf("log %q, configuration (-before +after):\n%s", d.Logged, diff)
	}

	if err := ros.Touch(t.Context(), d, guard); err == nil {
		t.Error("a guard that is gone is kept in touch with")
	}
}

// TestRouterOSGuardDismissed: it undoes nothing any more, and is gone.
func TestRouterOSGuardDismissed(t *testing.T) {
	d := routeros.New()
	guard, _ := guarded(t, d)
	must(t, ros.Dismiss(t.Context(), d, guard))
	d.Pass(time.Hour)
	if d.Config()["/interface"][1]["mtu"] != "1400" || len(d.Config()["/system/scheduler"]) > 0 ||
		len(d.Config()["/system/script"]) > 0 {
		t.Errorf("got %v", d.Config())
	}

	if err := ros.Dismiss(t.Context(), d, "chokepoint-guard-x"); err == nil {
		t.Error("what is no guard was dismissed")
	}
}

// TestRouterOSGuardTriesAgain: what could not be undone is tried again, and the rest is undone meanwhile.
func TestRouterOSGuardTriesAgain(t *testing.T) {
	d := routeros.New()
	_, before := guarded(t, d)
	d.Stuck = "/queue/interface/set"
	d.Pass(2 * time.Minute)
	left := d.Config()
	d.Stuck = ""
	if left["/interface"][1]["mtu"] != "1500" || len(left["/system/scheduler"]) == 0 || len(d.Logged) == 0 {
		t.Errorf("queues cannot be set: got %v, log %q", left, d.Logged)
	}

	d.Pass(2 * time.Minute)
	unchanged(t, before, d)
}

// TestRouterOSGuardThatCannotBe: without a scheduler nothing is guarded, and nothing of it stays.
func TestRouterOSGuardThatCannotBe(t *testing.T) {
	d := routeros.New()
	before := d.Config()
	d.Broken = "start-time=startup"
	_, err := ros.Guard(t.Context(), d, "", rosSettings()[:1], time.Minute)
	if err == nil {
		t.Fatal("got no error")
	}

	unchanged(t, before, d)
}

// TestRouterOSHostile: whatever a router prints harms nothing and reaches nobody as it is.
func TestRouterOSHostile(t *testing.T) {
	for name, said := range map[string]string{
		"nothing": "", "no JSON": "x\x1b[2Jchokepoint-done", "escapes": "\x1b]0;title\a\x1b[31m",
		"deep":   strings.Repeat("[", 1<<16) + "chokepoint-done",
		"binary": "\x00\xff\xfe" + strings.Repeat("\x80", 1000),
		"objects": `[{"name":{"a":[[1]]},"rx-byte":-1},{"name":"lan","rx-byte":"` + strings.Repeat("9", 400) +
			"\"}]chokepoint-done",
		"megabytes": strings.Repeat("y", 3<<20),
	} {
		h := saying(said)
		_, err := ros.Counters(t.Context(), h, []string{"lan"})
		if err == nil || check.Plain(err.Error()) != err.Error() || len(err.Error()) > 2000 {
			t.Errorf("%s: got %.200q, want a plain error", name, err)
		}

		a := ros.Check(t.Context(), h)
		if a.State == check.Yes ||
			check.Plain(a.Reason) != a.Reason {
			t.Errorf("%s: check: got %v, %.200q", name, a.State, a.Reason)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := ros.Watch(ctx, h, time.Second); err == nil {
			t.Errorf("%s: watch: got no error", name)
		}

		cancel()
	}
}

// saying is a router that answers the same to everything.
type saying string

func (s saying) Name() string                                     { return "router" }
func (s saying) ReadFile(context.Context, string) ([]byte, error) { return nil, host.ErrUnsupported }
func (s saying) WriteFile(context.Context, string, []byte) error  { return host.ErrUnsupported }
func (s saying) Start(context.Context, host.Command) (host.Process, error) {
	return &said{strings.NewReader(string(s))}, nil
}

type said struct{ r io.Reader }

func (s *said) Stdout() io.Reader         { return s.r }
func (s *said) Stderr() io.Reader         { return strings.NewReader("") }
func (s *said) Wait() (host.Usage, error) { return host.Usage{}, nil }
func (s *said) Kill() error               { return nil }

// TestRouterOSRestrictions: what device-mode forbids is said in words, with what lifts it, and what it allows
// is not.
func TestRouterOSRestrictions(t *testing.T) {
	t.Parallel()
	d := routeros.New()
	for _, tt := range []struct {
		mode, scheduler, routerboard, flagged string
		says, hint                            string
	}{
		{"advanced", "yes", "yes", "no", "device-mode advanced, cpu-frequency 1400MHz", ""},
		{"basic", "yes", "no", "no", "device-mode basic, cpu-frequency 1400MHz; routerboard=no: its " +
			"clock, cpu-frequency, cannot be set, not by hand either", "routerboard=yes"},
		{"home", "no", "no", "no", "device-mode home, cpu-frequency 1400MHz; scheduler=no: no guard can " +
			"be left there, so nothing is set; routerboard=no: its clock, cpu-frequency, cannot be set, " +
			"not by hand either", "scheduler=yes routerboard=yes"},
		{"advanced", "yes", "yes", "yes", "device-mode advanced, cpu-frequency 1400MHz; flagged=yes: " +
			"RouterOS found traces of an intruder and schedules nothing new: no guard can be left there, " +
			"so nothing is set; look through its configuration first", "flagged=no"},
	} {
		maps.Copy(d.Tables["/system/device-mode"][0], map[string]string{"mode": tt.mode,
			"scheduler": tt.scheduler, "routerboard": tt.routerboard, "flagged": tt.flagged})
		facts, err := ros.Facts(t.Context(), d)
		must(t, err)
		want := tt.says
		if tt.hint != "" {
			want += "; by hand: /system/device-mode/update " + tt.hint + ", and within 5 minutes press " +
				"its reset or mode button, or cut its power; it then reboots"
		}

		got := ros.Restrictions(facts)
		if got != want {
			t.Errorf("%+v: got %q, want %q", tt, got, want)
		}

		before := d.Config()
		_, err = ros.Guard(t.Context(), d, "", rosSettings()[:1], time.Minute)
		_, asked := ros.Read(t.Context(), d, rosSettings()[0])
		forbidden := tt.scheduler == "no" || tt.flagged == "yes"
		for _, err := range []error{err, asked} {
			if errors.Is(err, host.ErrUnsupported) != forbidden || forbidden &&
				!strings.HasSuffix(err.Error(), want) {
				t.Errorf("%+v: guard, or ask: got %v, want it %t, with the reason if not", tt, err,
					!forbidden)
			}
		}

		if forbidden {
			unchanged(t, before, d)
		} else {
			for _, menu := range []string{"/system/scheduler", "/system/script"} {
				d.Tables[menu] = nil
			}
		}
	}
}

// TestRouterOSClock: it is never set; the reason says what the owner types, and nothing that device-mode
// forbids.
func TestRouterOSClock(t *testing.T) {
	d := routeros.New()
	const set, allow = "/system/routerboard/settings/set cpu-frequency=VALUE (now %s), VALUE being ",
		"/system/device-mode/update routerboard=yes, and within 5 minutes press its reset or mode button"
	for _, tt := range []struct{ knob, value, now, allowed, want string }{
		{"governor", "performance", "1400MHz", "no", set + "the greatest of those that F1 shows there"},
		{"governor", "powersave", "1400MHz", "yes", set + "the least of those that F1 shows there"},
		{"governor", "schedutil", "1400MHz", "yes", set + "auto of those that F1 shows there"},
		{"cpu_quota", "50%", "1400MHz", "yes", set + "700MHz or the nearest of those that F1 shows there"},
		{"cpu_quota", "50%", "auto", "no", set + "the nearest to 50% of the greatest of those that F1 shows"},
		{"governor", "performance", "", "no", "it has no cpu-frequency; its clock is measured as found"},
	} {
		d.Tables["/system/device-mode"][0]["routerboard"] = tt.allowed
		d.Tables["/system/routerboard/settings"] = []map[string]string{{"cpu-frequency": tt.now}}
		before := d.Config()
		s := record.Setting{Knob: tt.knob, Value: tt.value}
		_, err := ros.Read(t.Context(), d, s)
		wrong := ros.Apply(t.Context(), d, s)
		want := strings.Replace(tt.want, "%s", tt.now, 1)
		for _, err := range []error{err, wrong} {
			switch {
			case !errors.Is(err, host.ErrUnsupported), !strings.Contains(err.Error(), want),
				tt.now != "" && !strings.Contains(err.Error(), "; /system/reboot; then leave "+tt.knob),
				strings.Contains(err.Error(), allow) != (tt.allowed == "no" && tt.now != ""):
				t.Errorf("%+v: got %v", tt, err)
			}
		}

		unchanged(t, before, d)
	}

	// What the reason says does it, once device-mode allows it.
	step := host.Command{Path: "/system/routerboard/settings/set cpu-frequency=700MHz"}
	for allowed, want := range map[string]string{"no": "", "yes": "700MHz"} {
		d.Tables["/system/routerboard/settings"][0]["cpu-frequency"] = ""
		d.Tables["/system/device-mode"][0]["routerboard"] = allowed
		_, err := host.Run(t.Context(), d, step)
		got := d.Tables["/system/routerboard/settings"][0]["cpu-frequency"]
		if err != nil || got != want {
			t.Errorf("routerboard=%s: got %q, %v, want %q", allowed, got, err, want)
		}
	}
}

// TestRouterOSTunnelByHand: the commands that are advised make the tunnel's end, and neither hold nor show a
// private key.
func TestRouterOSTunnelByHand(t *testing.T) {
	d := routeros.New()
	own := netip.MustParsePrefix("198.19.0.2/24")
	other := netip.MustParsePrefix("198.19.0.1/24")
	text := ros.TunnelByHand("wireguard-kernel", own, other)
	shown := ""
	commands := regexp.MustCompile(`/(interface|ip)/[^;]*add [^;]*|:put \[[^]]*\]`)
	for _, line := range commands.FindAllString(text, -1) {
		out, err := host.Run(t.Context(), d, host.Command{Path: line})
		must(t, err)
		shown += string(out)
	}

	wg := d.Tables["/interface/wireguard"]
	peers := d.Tables["/interface/wireguard/peers"]
	made := wg[len(wg)-1]
	peer := peers[len(peers)-1]
	addresses := d.Tables["/ip/address"]
	if made["name"] != "chokepoint-wg" || made["listen-port"] != "51820" ||
		peer["interface"] != made["name"] || peer["allowed-address"] != "198.19.0.1/32" ||
		addresses[len(addresses)-1]["address"] != own.String() {
		t.Errorf("%s\nmade %v with peer %v and addresses %v", text, made, peer, addresses)
	}

	if shown != made["public-key"]+"\n" || strings.Contains(text, "private") {
		t.Errorf("%s\nshows %q, want the public key alone", text, shown)
	}

	if text := ros.TunnelByHand("openvpn", own, other); text != "" {
		t.Errorf("openvpn: got %q, want nothing", text)
	}
}

// TestRouterOSPeers: what WireGuard's peers have moved is read at both ends of a time, without their keys.
func TestRouterOSPeers(t *testing.T) {
	d := routeros.New()
	h := driver.Heard{Host: d, All: &bytes.Buffer{}}
	w, err := ros.Watch(t.Context(), h, time.Second)
	must(t, err)
	from := host.Monotonic()
	d.Tables["/interface/wireguard/peers"][0]["rx"] = "1005427"
	got, err := w.Collect(t.Context(), from, host.Monotonic())
	must(t, errors.Join(err, w.Close(t.Context())))
	i := slices.IndexFunc(got.Samples, func(s record.Samples) bool { return s.Probe == "wireguard" })
	peers := got.Samples[i].Table
	if peers == nil {
		t.Fatalf("got %+v, want a table", got.Samples[i])
	}

	for column, want := range map[string][]float64{"office.peer0/rx_bytes": {5427, 1005427},
		"office.peer0/tx_bytes": {1472, 1472}, "office.peer0/handshake_age_ns": {83e9, 83e9},
		"office.peer1/tx_bytes": {0, 0}, "office.peer2/tx_bytes": {740, 740},
		"office.peer2/handshake_age_ns": nil, "office.peer3/rx_bytes": nil} {
		same(t, want, peers.Column(column), "%s", column)
	}

	if _, err := ros.Facts(t.Context(), h); err != nil {
		t.Fatal(err)
	}

	said := h.All.String()
	if strings.Contains(said, routeros.WireGuardSecret) || !strings.Contains(said, "5427") {
		t.Errorf("the router was made to print a key: %q", said)
	}
}
