package probe

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// machine: memory and product, without anything that tells two of a kind apart.
func (f *facts) machine() {
	want := map[string]int{"MemTotal": 0, "SwapTotal": 1}
	sizes := []float64{nan, nan}
	if b, err := os.ReadFile(f.root.proc("meminfo")); err != nil || parsePairs(b, want, sizes) != nil ||
		sizes[0] != sizes[0] {
		f.missing["memory_bytes"] = notLinux
	} else {
		f.known["memory_bytes"] = strconv.FormatFloat(sizes[0]*1024, 'f', 0, 64)
		if sizes[1] == sizes[1] {
			f.known["swap_bytes"] = strconv.FormatFloat(sizes[1]*1024, 'f', 0, 64)
		}
	}
	product := readWord(f.root.proc("device-tree/model"))
	if product == "" {
		product = strings.TrimSpace(readWord(f.root.sys("class/dmi/id/sys_vendor")) + " " +
			readWord(f.root.sys("class/dmi/id/product_name")))
	}
	f.set("product", product, "the firmware does not name it")
	f.optional("bios_version", f.root.sys("class/dmi/id/bios_version"))
	f.optional("transparent_hugepages", f.root.sys("kernel/mm/transparent_hugepage/enabled"))
	f.optional("numa_nodes", f.root.sys("devices/system/node/online"))
}

// settingNames are the sysctls that change how packets move.
var settingNames = []string{
	"net.core.rmem_default", "net.core.rmem_max", "net.core.wmem_default", "net.core.wmem_max",
	"net.core.optmem_max",
	"net.core.netdev_budget", "net.core.netdev_budget_usecs", "net.core.netdev_max_backlog",
	"net.core.dev_weight",
	"net.core.default_qdisc", "net.core.busy_poll", "net.core.busy_read", "net.core.rps_sock_flow_entries",
	"net.core.flow_limit_cpu_bitmap", "net.core.gro_normal_batch", "net.core.bpf_jit_enable",
	"net.core.somaxconn",
	"net.ipv4.ip_forward", "net.ipv4.conf.all.rp_filter", "net.ipv4.ip_no_pmtu_disc",
	"net.ipv4.fib_multipath_hash_policy",
	"net.ipv4.tcp_congestion_control", "net.ipv4.tcp_available_congestion_control",
	"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_mem", "net.ipv4.udp_mem",
	"net.ipv4.tcp_sack", "net.ipv4.tcp_timestamps", "net.ipv4.tcp_window_scaling", "net.ipv4.tcp_ecn",
	"net.ipv4.tcp_mtu_probing", "net.ipv4.tcp_limit_output_bytes", "net.ipv4.tcp_notsent_lowat",
	"net.ipv4.tcp_autocorking",
	"net.ipv4.tcp_no_metrics_save", "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_min_tso_segs",
	"net.ipv6.conf.all.forwarding", "net.ipv6.conf.all.disable_ipv6",
	"net.netfilter.nf_conntrack_max", "net.netfilter.nf_conntrack_buckets",
	"kernel.sched_rt_runtime_us", "kernel.numa_balancing", "kernel.timer_migration", "kernel.dmesg_restrict",
	"kernel.unprivileged_bpf_disabled", "vm.swappiness",
}

// settings reads them in the process' own network namespace: a sysctl that is not there is missing with its
// reason.
func (f *facts) settings() {
	for _, name := range settingNames {
		path := f.root.proc("sys/" + strings.ReplaceAll(name, ".", "/"))
		b, err := os.ReadFile(path)
		switch {
		case os.IsNotExist(err):
			f.missing["sysctl:"+name] = "not in this kernel or network namespace"
		case err != nil:
			f.missing["sysctl:"+name] = err.Error()
		default:
			f.known["sysctl:"+name] = strings.Join(strings.Fields(string(b)), " ")
		}
	}
}

// devices: what each network device of the namespace is and does. lo is not on any path.
func (f *facts) devices() {
	if f.root.Proc != "" {
		return // not this process' namespace
	}
	list, err := net.Interfaces()
	if err != nil {
		f.missing["devices"] = err.Error()
		return
	}
	for _, dev := range list {
		if dev.Flags&net.FlagLoopback == 0 && dev.Flags&net.FlagUp != 0 {
			f.device(dev)
		}
	}
}

func (f *facts) device(dev net.Interface) {
	name := "device:" + dev.Name + ":"
	f.known[name+"mtu"] = strconv.Itoa(dev.MTU)
	if dir := f.root.device(dev.Name); dir != "" {
		f.optional(name+"tx_queue_len", filepath.Join(dir, "tx_queue_len"))
		f.optional(name+"duplex", filepath.Join(dir, "duplex"))
		// A device without a speed of its own says -1, or refuses to answer.
		if speed := readWord(filepath.Join(dir, "speed")); speed != "" && speed[0] != '-' {
			f.known[name+"speed_mbps"] = speed
		}
		if target, err := os.Readlink(filepath.Join(dir, "device/driver")); err == nil {
			f.known[name+"driver"] = filepath.Base(target)
		}
		for _, queue := range matches(filepath.Join(dir, "queues/rx-*")) {
			f.optional(name+filepath.Base(queue)+":rps_cpus", filepath.Join(queue, "rps_cpus"))
		}
		if lower := f.root.lowerDevices(dev.Name); len(lower) > 0 {
			f.known[name+"lower"] = strings.Join(lower, " ")
		}
	}
	f.offloads(name, dev.Name)
}

func (f *facts) offloads(name, device string) {
	features, err := kernel.Features(device)
	if err != nil {
		f.missing[name+"offloads"] = err.Error()
	} else {
		var on []string
		for feature, active := range features {
			if active {
				on = append(on, feature)
			}
		}
		slices.Sort(on)
		f.known[name+"offloads"] = strings.Join(on, " ")
	}
	if p, err := kernel.PauseFrames(device); err == nil {
		f.known[name+"pause"] = "autoneg=" + strconv.FormatBool(p.Autoneg) +
			" rx=" + strconv.FormatBool(p.Receive) + " tx=" + strconv.FormatBool(p.Transmit)
	}
	if stats, err := kernel.Qdiscs(device); err == nil {
		var kinds []string
		for _, q := range stats {
			kinds = append(kinds, string(q.Kind))
		}
		f.set(name+"qdisc", distinct(kinds), "none")
	}
}
