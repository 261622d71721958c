package probe

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// A machine with a cpufreq policy, sensors and RAPL, as files.
func hardwareTree(t *testing.T) Root {
	return tree(t, map[string]string{
		"sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq":           "1800000\n",
		"sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq":           "2400000\n",
		"sys/devices/system/cpu/cpufreq/policy0/stats/time_in_state":        "600000 12\n1800000 34\n",
		"sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count":  "3\n",
		"sys/devices/system/cpu/cpu10/thermal_throttle/core_throttle_count": "4\n",
		"sys/class/thermal/thermal_zone0/type":                              "x86_pkg_temp\n",
		"sys/class/thermal/thermal_zone0/temp":                              "41500\n",
		"sys/class/thermal/cooling_device0/type":                            "Processor\n",
		"sys/class/thermal/cooling_device0/cur_state":                       "2\n",
		"sys/class/thermal/cooling_device0/max_state":                       "10\n",
		"sys/class/hwmon/hwmon1/name":                                       "nct 6775\n",
		"sys/class/hwmon/hwmon1/temp2_input":                                "-1500\n",
		"sys/class/hwmon/hwmon1/power1_input":                               "12500000\n",
		"sys/class/hwmon/hwmon1/power1_average":                             "1\n",
		"sys/class/hwmon/hwmon1/power2_average":                             "7000000\n",
		"sys/class/powercap/rapl-like:0/name":                               "package-0\n",
		"sys/class/powercap/rapl-like:0/energy_uj":                          "9000000\n",
		"sys/class/powercap/rapl-like:0/max_energy_range_uj":                "10000000\n",
	})
}

func TestHardwareSourcesOfATree(t *testing.T) {
	root := hardwareTree(t)
	tests := []struct {
		probe Probe
		want  map[string]float64
	}{
		{cpufreq(root), map[string]float64{"policy0/frequency_hz": 1.8e9, "policy0/limit_hz": 2.4e9,
			"policy0@600000000/time_ns": 12e7, "policy0@1800000000/time_ns": 34e7}},
		{thermal(root), map[string]float64{"zone0.x86_pkg_temp/temperature_c": 41.5,
			"hwmon1.nct_6775.temp2/temperature_c": -1.5,
			"cooling0.Processor/cooling_state":    2, "cooling0.Processor/cooling_limit": 10,
			"cpu0/core_throttles": 3, "cpu10/core_throttles": 4}},
		{power(root), map[string]float64{"rapl-like:0.package-0/energy_j": 9,
			"hwmon1.nct_6775.power1/power_w": 12.5,
			"hwmon1.nct_6775.power2/power_w": 7}},
	}
	for _, tt := range tests {
		d := cmp.Diff(sample(t, open(t, tt.probe)), tt.want)
		if d != "" {
			t.Errorf("%s (-got +want):\n%s", tt.probe.Name, d)
		}
	}
}

func TestEnergyGoesOnWhenItsCounterStartsAgain(t *testing.T) {
	root := hardwareTree(t)
	s := open(t, power(root))
	const c = "rapl-like:0.package-0/energy_j"
	if got := sample(t, s)[c]; got != 9 {
		t.Errorf("first: got %v J, want 9", got)
	}

	write(t, root.sys("class/powercap/rapl-like:0/energy_uj"), "2000000\n")
	if got := sample(t, s)[c]; got != 12 {
		t.Errorf("after the wrap at 10 J: got %v J, want 12", got)
	}
}

// An absent source is a reason, never a zero.
func TestAbsentSources(t *testing.T) {
	root := tree(t, nil)
	for _, p := range All(root) {
		if slices.Contains([]string{"qdisc", "queues", "link", "ethtool"}, p.Name) {
			continue // not files
		}

		s, err := p.Open(Options{})
		if err == nil {
			t.Errorf("%s: got columns %v on an empty machine", p.Name, s.Columns())
			continue
		}

		if !errors.Is(err, host.ErrUnsupported) || len(err.Error()) < 20 {
			t.Errorf("%s: got %v, want a reason that is conclusive", p.Name, err)
		}

		a := p.Check()
		if a.State != check.No || a.Reason == "" {
			t.Errorf("%s: check: got %v %q, want no with a reason", p.Name, a.State, a.Reason)
		}
	}
}

// Every column's stem is declared, with a unit, in one scope per probe.
func TestColumnsAreDeclared(t *testing.T) {
	hardware := hardwareTree(t)
	for i, p := range All(Root{}) {
		scope := p.Scope
		stems := map[string]bool{}
		s, err := p.Open(Options{})
		if err != nil {
			p = All(hardware)[i]
			if s, err = p.Open(Options{}); err != nil {
				continue
			}
		}
		defer s.Close()
		metrics := p.Metrics()
		if d, ok := s.(Declarer); ok {
			metrics = append(metrics, d.Declared()...)
		}

		for _, m := range metrics {
			stems[m.Name] = true
			if m.Scope != scope || m.Unit == "" || m.Doc == "" || strings.Contains(m.Name, "/") {
				t.Errorf("%s: incomplete declaration %+v", p.Name, m)
			}
		}

		seen := map[string]bool{}
		for _, c := range s.Columns() {
			if !stems[c[strings.LastIndexByte(c, '/')+1:]] || seen[c] {
				t.Errorf("%s: column %s is not declared, or there twice", p.Name, c)
			}

			seen[c] = true
		}
	}
}

func TestByScope(t *testing.T) {
	list := All(Root{})
	machine := Names(ByScope(list, record.ScopeHost))
	want := []string{"cpu", "softirq", "softnet", "memory", "pressure", "cpufreq", "thermal", "power",
		"kernellog", "foreign", "guests", "clock", "drops", "routecache", "kthreads"}
	if d := cmp.Diff(machine, want); d != "" {
		t.Errorf("host scope (-got +want):\n%s", d)
	}

	own := Names(ByScope(list, record.ScopeNode))
	if d := cmp.Diff(own, []string{"netdev", "qdisc", "link", "ethtool", "snmp", "conntrack", "xfrm",
		"wireguard", "flows", "queues", "filter"}); d != "" {
		t.Errorf("node scope (-got +want):\n%s", d)
	}
}

func TestLinkReadsTheDevicesFolder(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/net/dev": "x\ny\n wan: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n lan: 1 " +
			"2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
		"sys/class/net/wan/ifindex":          "3\n",
		"sys/class/net/wan/carrier_changes":  "7\n",
		"sys/class/net/wan/operstate":        "lowerlayerdown\n",
		"sys/class/net/wan/lower_eth0/dummy": "",
	})
	counts := open(t, netdev(root))
	s := open(t, link(root))
	if got := sample(t, counts); got["wan/tx_carrier_errors"] != 15 || got["lan/rx_bytes"] != 1 {
		t.Errorf("got %v, want 15 carrier errors of wan, 1 byte of lan", got)
	}

	got := sample(t, s)
	if got["wan/carrier_changes"] != 7 || got["wan/oper_up"] != 0 {
		t.Errorf("got %v, want 7 changes, down", got)
	}

	if _, ok := got["lan/oper_up"]; ok {
		t.Error("lan: got a state although sysfs does not have the device")
	}

	d := cmp.Diff(lowerDevices(root.device("wan")), []string{"eth0"})
	if d != "" {
		t.Errorf("lower devices (-got +want):\n%s", d)
	}

	write(t, root.proc("net/dev"), "x\ny\n lan: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")
	if _, ok := sample(t, counts)["wan/rx_bytes"]; ok {
		t.Error("wan: got a count after it has gone")
	}

	if _, ok := sample(t, s)["wan/oper_up"]; ok {
		t.Error("wan: got a state after it has gone")
	}
}

// A value that is lost for good costs one new description, not one at every sample.
func TestLinkGivesUpAFileWithoutValue(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/net/dev":                      "x\ny\n wan: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
		"sys/class/net/wan/ifindex":         "3\n",
		"sys/class/net/wan/carrier_changes": "7\n",
	})
	s := open(t, link(root))
	sample(t, s)
	write(t, root.sys("class/net/wan/carrier_changes"), "\n")
	if err := s.Sample(make([]float64, 1)); !errors.Is(err, ErrColumns) {
		t.Errorf("value lost: got %v, want columns anew", err)
	}

	dst := []float64{0}
	for range 2 {
		if err := s.Sample(dst); err != nil || dst[0] == dst[0] {
			t.Errorf("without value: got %v, %v; want none and no error", dst, err)
		}
	}
}

func TestSoftirqLeavesOutCoresThatNeverRan(t *testing.T) {
	root := tree(t, map[string]string{"proc/softirqs": "   CPU0 CPU1\nNET_RX: 5 0\nTIMER: 1 0\n"})
	s := open(t, softirq(root))
	if _, ok := sample(t, s)["cpu1/net_rx"]; ok {
		t.Error("got a column of a core that never ran a softirq")
	}

	write(t, root.proc("softirqs"), "   CPU0 CPU1\nNET_RX: 5 1\nTIMER: 1 0\n")
	got := sample(t, s)
	if got["cpu1/net_rx"] != 1 || got["cpu/net_rx"] != 6 {
		t.Errorf("got %v, want core 1 with its first softirq", got)
	}

	v := got["cpu0/rcu"]
	if v == v {
		t.Errorf("row that is missing: got %v, want no value", v)
	}
}

func TestFingerprintKeepsIdentityOut(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/cpuinfo": "processor : 0\nmodel name : ARMv8\nSerial : 0123456789abcdef\n",
		"proc/cmdline": "root=UUID=secret-uuid mitigations=off hostname=secret-host " +
			"isolcpus=1-3\n",
		"proc/sys/kernel/hostname":      "secret-host\n",
		"proc/sys/kernel/osrelease":     "6.6.1\n",
		"proc/meminfo":                  "MemTotal: 1000 kB\n",
		"sys/class/dmi/id/sys_vendor":   "Vendor\n",
		"sys/class/dmi/id/product_name": "Box\n",
		"sys/class/dmi/id/board_serial": "secret-serial\n",
	})
	e := Fingerprint(root)
	want := map[string]string{"boot:mitigations": "off", "boot:isolcpus": "1-3", "product": "Vendor Box",
		"memory_bytes": "1024000", "kernel": "6.6.1", "cpu_model": "ARMv8", "cpu_threads": "1"}
	for name, value := range want {
		if e.Facts[name] != value {
			t.Errorf("%s: got %q, want %q", name, e.Facts[name], value)
		}
	}

	for name, value := range e.Facts {
		if strings.Contains(value, "secret") || strings.Contains(value, "0123456789abcdef") {
			t.Errorf("%s: got %q, which identifies the machine", name, value)
		}
	}

	if e.Missing["clocksource"] == "" || e.Missing["timer_hz"] == "" {
		t.Errorf("missing: got %v, want reasons for clocksource and timer_hz", e.Missing)
	}
}

func TestSortNatural(t *testing.T) {
	names := []string{"zone10", "zone2", "cpu1x10", "cpu1x9", "zone02b", "a"}
	sortNatural(names)
	d := cmp.Diff(names, []string{"a", "cpu1x9", "cpu1x10", "zone2", "zone02b", "zone10"})
	if d != "" {
		t.Errorf("(-got +want):\n%s", d)
	}
}

func TestUnreadableIsNotAbsent(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "stat"), 0o755); err != nil {
		t.Fatal(err)
	}

	// Reading a folder fails otherwise than by its absence.
	if _, err := cpu(Root{Proc: dir}).Open(Options{}); err == nil ||
		errors.Is(err, host.ErrUnsupported) {
		t.Errorf("got %v, want an error that is not conclusive", err)
	}
}
