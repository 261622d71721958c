package kernel

import "testing"

func TestQuotaTimes(t *testing.T) {
	for q, want := range map[Quota][2]uint64{2500: {2500, 10_000}, 10_000: {10_000, 10_000},
		1000: {1000, 10_000}, 500: {1000, 20_000}, 100: {1000, 100_000}, 700: {1000, 14_286}} {
		quota, period := q.times()
		if quota != want[0] || period != want[1] {
			t.Errorf("%d hundredths: got %d of %d µs, want %v", q, quota, period, want)
		}

		back := quotaOf(quota, period)
		if back != q {
			t.Errorf("%d hundredths come back as %d", q, back)
		}
	}
}

const twoHierarchies = `29 23 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
31 23 0:28 /sub /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 23 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
`

func TestCgroupTexts(t *testing.T) {
	m := cgroupMount{false, "/sub", "/sys/fs/cgroup/cpu"}
	reads(t, "mount", m)(cpuMount(twoHierarchies))
	reads(t, "directory", "/sys/fs/cgroup/cpu/x")(m.at("/sub/x"))
	for _, out := range []string{"/other", "/subway", "/../sub"} {
		if got, err := m.at(out); err == nil {
			t.Errorf("directory of %s: got %s, want it refused", out, got)
		}
	}

	reads(t, "unified mount", cgroupMount{true, "/", "/sys/fs/cgroup"})(
		cpuMount("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"))
	const text = "4:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/c:d\n"
	for controller, want := range map[string]string{"cpu": "/a", "": "/c:d"} {
		reads(t, "path of "+controller, want)(cgroupPath(text, controller))
	}

	for line, want := range map[string]string{"qemu\x00-name\x00router,debug-threads=on\x00": "router",
		"qemu\x00-name\x00../x\x00": "", "qemu\x00-name": "", "qemu\x00": ""} {
		if guest, ok := guestOf(line); ok != (want != "") || ok && guest != want {
			t.Errorf("guest of %q: got %q, %v, want %q", line, guest, ok, want)
		}
	}

	for comm, want := range map[string]int{"CPU 0/TCG": 0, "CPU 11/KVM": 11, "ALL CPUs/TCG": 0, "worker": -1,
		"CPU x/KVM": -1} {
		if n, ok := vcpuOf(comm); ok != (want >= 0) || ok && n != want {
			t.Errorf("vCPU of %q: got %d, %v, want %d", comm, n, ok, want)
		}
	}
}

func FuzzCgroupTexts(f *testing.F) {
	f.Add(twoHierarchies)
	f.Add("2500 10000\n")
	f.Add("4:cpu:/a\n0::/b\n")
	f.Fuzz(func(t *testing.T, text string) {
		if q, err := parseMax(text); err != nil && q != 0 {
			t.Errorf("an error comes with %d, want nothing", q)
		}

		if p, err := cgroupPath(text, "cpu"); err != nil && p != "" {
			t.Errorf("an error comes with %q, want nothing", p)
		}

		if m, err := cpuMount(text); err != nil && m != (cgroupMount{}) {
			t.Errorf("an error comes with %+v, want nothing", m)
		}

		vcpuOf(text)
		guestOf(text)
	})
}
