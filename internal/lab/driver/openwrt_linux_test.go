package driver_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// installed finds a program of this machine.
func installed(t *testing.T, name string) string {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		if path, err := filepath.EvalSymlinks(filepath.Join(dir, name)); err == nil {
			return path
		}
	}

	t.Skipf("skip: no %s here", name)
	return ""
}

func put(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o755))
}

// openWrtRoot is a root with the folders of OpenWrt: BusyBox' ash with OpenWrt's applets, the real tc and
// nft, and the stand-ins of testdata/openwrt for OpenWrt's own programs. What is to be mounted is by where.
func openWrtRoot(t *testing.T) (root string, binds map[string]string) {
	if os.Geteuid() != 0 {
		t.Skip("skip: needs root to make a network namespace")
	}

	root = t.TempDir()
	binds = map[string]string{"proc": "/proc", "dev/null": "/dev/null"}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		must(t, err)
		return string(b)
	}
	own := func(name string) string { return read(filepath.Join("testdata/openwrt", name)) }
	for path, text := range map[string]string{
		"usr/bin/busybox": read(installed(t, "busybox")), "usr/sbin/tc": read(installed(t, "tc")),
		"usr/libexec/nft": read(installed(t, "nft")), "usr/sbin/nft": own("nft"), "usr/sbin/uci": own("uci"),
		"usr/sbin/fw4": own("fw4"), "usr/bin/ubus": own("ubus"), "usr/lib/sqm/run.sh": own("sqm"),
		"etc/init.d/packet_steering": own("packet_steering"), "dev/null": "", "proc/x": "", "sys/x": "",
		"tmp/run/x": "", "etc/openwrt_release": "DISTRIB_ID='OpenWrt'\nDISTRIB_RELEASE='24.10.2'\n",
		"etc/os-release":     "NAME=\"OpenWrt\"\nID=\"openwrt\"\n",
		"etc/config/network": "network.@globals[0].packet_steering=1\nnetwork.lan.ipaddr=192.168.1.1\n",
		"etc/config/firewall": "firewall.@defaults[0].input=REJECT\nfirewall.@zone[0].name=lan\n" +
			"firewall.@zone[1].name=wan\nfirewall.@zone[1].masq=1\n",
	} {
		put(t, filepath.Join(root, path), text)
	}

	for from, to := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib",
		"lib64": "usr/lib64", "var": "tmp"} {
		must(t, os.Symlink(to, filepath.Join(root, from)))
	}

	for applet := range strings.FieldsSeq(own("applets")) {
		must(t, os.Symlink("busybox", filepath.Join(root, "usr/bin", applet)))
	}

	libraries, err := filepath.Glob("/usr/lib/*-linux-gnu*") // Debian's, and where its loader is
	must(t, err)
	for _, dir := range append(libraries, "/usr/lib64") {
		if _, err := os.Stat(dir); err == nil {
			must(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
			binds[dir] = dir
		}
	}

	loaders, err := filepath.Glob("/usr/lib/ld-*")
	must(t, err)
	for _, l := range loaders {
		to, err := filepath.EvalSymlinks(l)
		must(t, err)
		must(t, os.Symlink(strings.Replace(to, "/lib/", "/usr/lib/", 1), filepath.Join(root, l)))
	}

	return root, binds
}

// onRouter runs f on a thread of its own in a network namespace, with the devices lan and wan, and with a
// root as OpenWrt's; thread and namespaces end with f. sysfs is the namespace's unless settle has made
// another.
func onRouter(t *testing.T, settle func(root string), f func(t *testing.T, h host.Host)) {
	root, binds := openWrtRoot(t)
	if settle != nil {
		settle(root)
	}

	_, err := os.Stat(filepath.Join(root, "sys/class"))
	t.Run("router", func(t *testing.T) {
		t.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
		t.Setenv("TMPDIR", "/tmp")
		runtime.LockOSThread() // never unlocked: the thread is thrown away
		must(t, unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_NEWNET))
		for _, port := range []string{"lan", "wan"} {
			must(t, kernel.AddVeth(kernel.VethEnd{Name: port}, kernel.VethEnd{Name: port + "-far"}, 1))
			must(t, kernel.Up(port))
			must(t, kernel.Up(port+"-far"))
		}

		must(t, unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		for to, from := range binds {
			must(t, unix.Mount(from, filepath.Join(root, to), "", unix.MS_BIND|unix.MS_REC, ""))
		}

		if err != nil {
			must(t, unix.Mount("sysfs", filepath.Join(root, "sys"), "sysfs", 0, ""))
		}

		must(t, unix.Chroot(root))
		must(t, unix.Chdir("/"))
		f(t, shelled(t))
	})
}

// shelled returns a host that takes commands alone, of no more bytes than dropbear does (MAX_CMD_LEN).
func shelled(t *testing.T) host.Host {
	return host.ByCommand("router", func(ctx context.Context, c host.Command) (host.Process, error) {
		size := len("exec")
		for _, word := range append([]string{c.Path}, c.Args...) {
			size += 1 + len(host.Quote(word))
		}

		if size > 9000 {
			t.Errorf("a command has %d bytes, want 9000 at most: %q", size, c.Args)
		}

		return host.Local().Start(ctx, c)
	})
}

// says returns what a script of the router prints.
func says(t *testing.T, h host.Host, script string) string {
	t.Helper()
	out, err := host.Run(labtest.Context(t), h, host.Command{Path: "sh", Args: []string{"-c", script}})
	must(t, err)
	return strings.TrimSpace(string(out))
}

const (
	stagedChanges = "uci changes firewall; uci changes network"
	startOpenWrt  = "fw4 reload; /usr/lib/sqm/run.sh start wan"
)

func settingOf(text string) record.Setting { return labtest.SettingsOf(text)[0] }

// TestOpenWrt is the conformance of driver openwrt, by BusyBox' ash and no other applets than OpenWrt's.
func TestOpenWrt(t *testing.T) {
	t.Run("governor", testGovernor)
	onRouter(t, nil, func(t *testing.T, h host.Host) {
		have := says(t, h, "command -v stat timeout setsid nohup od; true")
		if have != "" {
			t.Errorf("there is %q, which OpenWrt lacks", have)
		}

		says(t, h, startOpenWrt)
		settings := labtest.SettingsOf(`link_mtu=1400
link_mtu.wan=1300
txqueuelen.lan=77
ip_forward=ipv4
sysctl:net.ipv4.ip_default_ttl=net.ipv4.ip_default_ttl=33
queue.wan=pfifo limit 50
queue.lan=tbf rate 300M burst 128k limit 256k
queue.wan=sqm
firewall=10
firewall=20 in a set stateful
firewall=off
mss_clamp=pmtu
mss_clamp=1360
mss_clamp=off
flowtable=on
flowtable=hardware
flowtable=off
nat.wan=off
nat.wan=masquerade
cpus.lan=0
cpus.lan=off`)
		labtest.DriverSuite(t, driver.OpenWrt{}, h, settings, "lan", "wan")
		left := says(t, h, stagedChanges)
		if left != "" {
			t.Errorf("changes staged in uci: got %q, want none", left)
		}

		says(t, h, "ip addr add 198.51.100.1/24 dev lan; ip addr add 2001:db8::1/64 dev wan")
		to := []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::7")}
		ways, own, err := driver.OpenWrt{}.Ways(labtest.Context(t), h, to)
		if err != nil || ways[0].Device != "lan" || ways[1].Device != "wan" || len(own) != 2 {
			t.Errorf("ways to %v: got %v and %v, %v, want one by each device", to, ways, own, err)
		}

		facts, err := driver.OpenWrt{}.Facts(labtest.Context(t), h)
		for name, want := range map[string]string{"distribution": "openwrt",
			"distribution_release": "24.10.2", "product": "Example AX6000", "uci:network.packet_steering": "1", "sqm:wan": "on"} {
			if facts[name] != want || err != nil {
				t.Errorf("fact %s: got %q, %v, want %q", name, facts[name], err, want)
			}
		}

		for _, text := range []string{"offload.lan=wire", "shape.wan=50M", "irq_affinity.lan=0"} {
			_, err := driver.OpenWrt{}.Read(labtest.Context(t), h, settingOf(text))
			if !errors.Is(err, host.ErrUnsupported) || !strings.Contains(err.Error(), "; by hand: ") {
				t.Errorf("read %s: got %v, want that it is unsupported, and what to do", text, err)
			}
		}
	})
}

// TestOpenWrtGuard: what was set is undone when nobody keeps in touch, and uci has nothing of it.
func TestOpenWrtGuard(t *testing.T) {
	onRouter(t, nil, func(t *testing.T, h host.Host) {
		ctx := labtest.Context(t)
		d := driver.OpenWrt{}
		says(t, h, startOpenWrt)
		var undo []record.Setting
		var found []string
		wanted := []string{"flowtable=hardware", "nat.wan=off", "queue.wan=bfifo limit 9000",
			"link_mtu.lan=1400", "cpus.lan=0"}
		for _, text := range wanted {
			s := settingOf(text)
			var err error
			s.Value, err = d.Read(ctx, h, s)
			must(t, err)
			undo = append(undo, s)
			found = append(found, s.Value)
		}

		same(t, []string{"off", "masquerade", "sqm", "1500", "off"}, found, "as found")
		says(t, h, "uci set firewall.@defaults[0].flow_offloading=1")
		if _, err := d.Guard(ctx, h, "", undo, time.Second); err == nil || check.HintOf(err) == "" {
			t.Errorf("guard where somebody's changes are staged: got %v, want an error and what to do", err)
		}

		says(t, h, "uci revert firewall.@defaults[0].flow_offloading")
		name, err := d.Guard(ctx, h, "", undo, 3*time.Second)
		must(t, err)
		for _, text := range wanted {
			must(t, d.Apply(ctx, h, settingOf(text)))
		}

		if got := says(t, h, stagedChanges); strings.Count(got, "\n") != 2 {
			t.Errorf("staged: got %q, want both options of flow offload and one of masquerading", got)
		}

		for end := time.Now().Add(30 * time.Second); d.Touch(ctx, h, name) == nil; {
			if time.Now().After(end) {
				t.Fatal("the guard is still there")
			}

			time.Sleep(4 * time.Second) // of silence
		}

		for _, s := range undo {
			if got, err := d.Read(ctx, h, s); got != s.Value || err != nil {
				t.Errorf("%s after silence: got %q, %v, want %q", s.Knob, got, err, s.Value)
			}
		}

		left := says(t, h, stagedChanges)
		if left != "" {
			t.Errorf("changes staged in uci after silence: got %q, want none", left)
		}
	})
}

// TestOpenWrtOffloading: what is read is what fw4 has made, and what is refused leaves nothing.
func TestOpenWrtOffloading(t *testing.T) {
	onRouter(t, nil, func(t *testing.T, h host.Host) {
		ctx := labtest.Context(t)
		d := driver.OpenWrt{}
		read := func(want string) {
			t.Helper()
			if got, err := d.Read(ctx, h, settingOf("flowtable")); got != want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
		apply := func(level string) error { return d.Apply(ctx, h, settingOf("flowtable="+level)) }
		says(t, h, "touch /etc/no-hardware; fw4 reload")
		read("off")
		must(t, apply("hardware"))
		read("on") // fw4 has fallen back
		must(t, apply("off"))
		read("off")
		// Found so, it is put back as it was, not as it looks.
		says(t, h, "echo firewall.@defaults[0].flow_offloading=1 >>/etc/config/firewall\n"+
			"echo firewall.@defaults[0].flow_offloading_hw=1 >>/etc/config/firewall; fw4 reload")
		read("on")
		must(t, apply("off"))
		read("off")
		must(t, apply("on"))
		read("on")
		if left := says(t, h, stagedChanges); left != "" {
			t.Errorf("changes staged in uci: got %q, want none", left)
		}

		says(t, h, "uci set network.lan.ipaddr=192.168.2.1; uci set firewall.@zone[0].input=DROP")
		if err := apply("off"); err == nil {
			t.Error("where somebody's changes of the firewall are staged: got no error")
		}

		says(t, h, "uci revert firewall.@zone[0].input")
		must(t, apply("off")) // those of the network do not matter
		says(t, h, "touch /etc/no-offload; uci revert firewall.@defaults[0].flow_offloading")
		says(t, h, "sed -i /flow_offloading/d /etc/config/firewall; fw4 reload")
		err := apply("on")
		if !errors.Is(err, host.ErrUnsupported) || !strings.Contains(err.Error(), "kmod-nft-offload") {
			t.Errorf("where nft refuses a flow table: got %v, want that it is unsupported and why", err)
		}

		read("off")
		if left := says(t, h, stagedChanges); strings.Contains(left, "firewall") {
			t.Errorf("changes staged in uci after a refusal: got %q, want none", left)
		}
	})
}

// TestOpenWrtSteering: the devices below a port are steered by OpenWrt's service where that has a word for
// it, and what was found is put back whatever it is.
func TestOpenWrtSteering(t *testing.T) {
	onRouter(t, func(root string) { // a switch behind eth0, with lan1 in a bridge, and eth1
		sys := filepath.Join(root, "sys")
		for path, text := range map[string]string{"eth0/device/x": "", "eth0/queues/rx-0/rps_cpus": "2\n",
			"eth0/threaded": "0\n", "eth0/queues/rx-1/rps_cpus": "2\n", "eth1/device/x": "",
			"eth1/queues/rx-0/rps_cpus": "2\n", "lan1/lower_eth0/x": "", "lan1/queues/rx-0/rps_cpus": "0\n",
			"br-lan/lower_lan1/x": "", "br-lan/queues/rx-0/rps_cpus": "0\n", "ppp0/queues/rx-0/rps_cpus": "0\n"} {
			put(t, filepath.Join(sys, "class/net", path), text)
		}

		for _, cpu := range []string{"cpu0", "cpu1", "cpu2", "cpu3"} {
			put(t, filepath.Join(sys, "devices/system/cpu", cpu, "x"), "")
		}
	}, func(t *testing.T, h host.Host) {
		d := driver.OpenWrt{}
		for _, tt := range []struct{ first, setting, want, masks, staged string }{
			{"", "cpus.br-lan", "1", "2 2 2 0", ""},
			{"", "cpus.br-lan=off", "off", "0 0 0 0", "0"},
			{"", "cpus.eth1=off", "off", "0 0 0 0", "0"},
			{"", "cpus.br-lan=1", "1", "2 2 2 0", ""},
			{"", "cpus.eth1=0-3", "0-3", "f f f 0", "2"},
			{"", "cpus.eth1=1", "1", "2 2 2 0", ""},
			{"", "cpus.eth1=0,2", "unsupported", "2 2 2 0", ""},
			{"", "cpus.ppp0=0,2", "0,2", "2 2 2 5", ""}, // which the service leaves alone
			{"cd /sys/class/net/eth0/queues; echo 0000,00000001 >rx-0/rps_cpus; echo 4 >rx-1/rps_cpus",
				"cpus.lan1", "masks 1 4", "0000,00000001 4 2 5", ""},
			{"", "cpus.lan1=off", "off", "0 0 0 5", "0"},
			{"", "cpus.lan1=masks 1 4", "masks 1 4", "1 4 2 5", ""},
			{"touch /etc/no-steering", "cpus.lan1=0,2", "0,2", "5 5 2 5", ""},
			{"rm -r /etc/no-steering /sys/devices/system/cpu/cpu[123]", "cpus.eth1=0", "0", "5 5 1 5", ""},
			{"", "napi_threaded.br-lan=on", "on", "5 5 1 5", ""},
		} {
			ctx := labtest.Context(t)
			says(t, h, tt.first)
			s := settingOf(tt.setting)
			err := error(nil)
			if s.Value != "" {
				err = d.Apply(ctx, h, s)
			}

			got := "unsupported"
			if !errors.Is(err, host.ErrUnsupported) {
				must(t, err)
				got, err = d.Read(ctx, h, s)
				must(t, err)
			}

			masks := strings.Join(strings.Fields(says(t, h, "cd /sys/class/net; "+
				"cat eth0/queues/rx-[01]/rps_cpus eth1/queues/rx-0/rps_cpus ppp0/queues/rx-0/rps_cpus")), " ")
			staged := strings.Trim(says(t, h, "uci changes network | sed s/.*=//"), "'")
			same(t, []string{tt.want, tt.masks, tt.staged}, []string{got, masks, staged},
				"%s: state, masks and what is staged", tt.setting)
		}
	})
}

// TestIsOpenWrt: OpenWrt is known by its release or by what it is called, and by uci.
func TestIsOpenWrt(t *testing.T) {
	if a := (driver.OpenWrt{}).Check(labtest.Context(t), host.Local()); a.State != check.No {
		t.Errorf("this machine: got %v, want no", a)
	}

	onRouter(t, nil, func(t *testing.T, h host.Host) {
		for _, tt := range []struct {
			change string
			want   check.State
		}{{"", check.Yes}, {"rm /etc/openwrt_release", check.Yes},
			{"echo ID=turrisos >/etc/os-release", check.Yes}, {"echo ID=debian >/etc/os-release", check.No},
			{"touch /etc/openwrt_release; rm /usr/sbin/uci", check.No}} {
			says(t, h, tt.change)
			a := (driver.OpenWrt{}).Check(labtest.Context(t), h)
			if a.State != tt.want {
				t.Errorf("after %q: got %v (%s), want %v", tt.change, a.State, a.Reason, tt.want)
			}
		}
	})
}

// testGovernor: clock domains as the kernel shows them, read and set by the shell in the order of their
// numbers.
func testGovernor(t *testing.T) {
	domains := map[int]string{0: "ondemand", 4: "schedutil", 10: "powersave"}
	onRouter(t, func(root string) {
		must(t, os.MkdirAll(filepath.Join(root, "sys/class/net"), 0o755))
		for i, now := range domains {
			put(t, filepath.Join(root, "sys/devices/system/cpu/cpufreq", "policy"+strconv.Itoa(i),
				"scaling_governor"), now+"\n")
		}
	}, func(t *testing.T, h host.Host) {
		ctx := labtest.Context(t)
		d := driver.OpenWrt{}
		before, err := d.Read(ctx, h, settingOf("governor"))
		want := "each ondemand schedutil powersave"
		if before != want || err != nil {
			t.Errorf("got %q (%v), want %q", before, err, want)
		}

		for _, level := range []string{"performance", before} {
			must(t, d.Apply(ctx, h, settingOf("governor="+level)))
			if now, err := d.Read(ctx, h, settingOf("governor")); now != level || err != nil {
				t.Errorf("set to %s: got %q (%v)", level, now, err)
			}
		}
	})
	onRouter(t, func(root string) {
		must(t, os.MkdirAll(filepath.Join(root, "sys/class/net"), 0o755))
	}, func(t *testing.T, h host.Host) {
		ctx := labtest.Context(t)
		d := driver.OpenWrt{}
		if got, err := d.Read(ctx, h, settingOf("governor")); !errors.Is(err, host.ErrUnsupported) {
			t.Errorf("without cpufreq: got %q (%v), want ErrUnsupported", got, err)
		}

		if err := d.Apply(ctx, h, settingOf("governor=performance")); err == nil {
			t.Error("set without cpufreq: got no error")
		}
	})
}

// TestInventorySteersNoTerminal: a router that means no good names a device as it likes.
func TestInventorySteersNoTerminal(t *testing.T) {
	h := saying("part devices\nlink wan\x1b]0;owned\a\u202e|virtual|||1500||2\n")
	v, err := driver.Linux{}.Inventory(t.Context(), h)
	if err != nil || len(v.Devices) != 1 || v.Devices[0].Name != "wan]0;owned" {
		t.Errorf("got %+v, %v; want a name without what steers", v, err)
	}
}

// TestInventory: what BusyBox' ash and nft print is read as netlink's answers are, and nothing is missing
// without a reason.
func TestInventory(t *testing.T) {
	onRouter(t, nil, func(t *testing.T, h host.Host) {
		says(t, h, `nft -f - <<E
table inet edge {
 counter acct { }
 set m4 { type ipv4_addr; flags dynamic,timeout; timeout 1m; }
 chain forward {
  type filter hook forward priority filter - 5; policy drop
  limit rate over 2 mbytes/second burst 10 kbytes drop
  ct state invalid counter drop
  ct state vmap { established : accept, related : accept }
  tcp flags syn / syn,rst tcp option maxseg size set rt mtu
  log prefix "x drop " limit rate 10/minute
  numgen random mod 100 < 3 drop
  reset tcp option window
  counter name acct
  update @m4 { ip saddr limit rate over 10/second } drop
  quota over 100 mbytes drop
  ct count over 20 reject
 }
}
E
tc qdisc replace dev wan root tbf rate 20mbit burst 16k limit 30k; brctl addbr br9
brctl addif br9 lan; ifconfig br9 up
while [ "$(cat /sys/class/net/br9/operstate)" = down ]; do sleep 0.1; done # linkwatch takes its time`)
		byText, err := driver.Linux{}.Inventory(labtest.Context(t), h)
		must(t, err)
		byNetlink := probe.Fingerprint(probe.Root{}).Inventory
		diff := cmp.Diff(byNetlink.Filter, byText.Filter)
		if diff != "" || len(byText.Filter.Rules) != 10 {
			t.Errorf("packet filter (-netlink +text):\n%s", diff)
		}

		for _, dev := range []string{"lan", "wan", "br9"} {
			a := byNetlink.Device(dev)
			b := byText.Device(dev)
			if a == nil || b == nil || a.Master != b.Master || a.MTU != b.MTU || a.RateBps() != b.RateBps() ||
				len(a.Queues) != len(b.Queues) {
				t.Errorf("%s by netlink: %+v, by text: %+v", dev, a, b)
			}
		}

		d := byText.Device("lan")
		if d.Kind != "virtual" || d.Master != "br9" {
			t.Errorf("lan: %+v", d)
		}

		if byText.XFRM != nil || byText.Missing["xfrm"] == "" {
			t.Errorf("associations %v, missing %v: BusyBox' ip does not list them", byText.XFRM,
				byText.Missing)
		}
	})
}
