package probe

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// VerbEnvironment is the verb that reads a node's environment.
var VerbEnvironment = host.Verb(host.FamilyProbe, "environment")

// Environment reads the environment of a node. It contains the facts that readers need to compare the node's
// results with results from other machines. It contains nothing that identifies the machine.
func Environment(ctx context.Context, agent host.Agent, node string) (record.Environment, error) {
	var e record.Environment
	if err := agent.Invoke(ctx, VerbEnvironment, struct{}{}, &e); err != nil {
		return record.Environment{}, fmt.Errorf("read environment of node %s: %w", node, err)
	}

	e.Node = node
	return e, nil
}

// ServeEnvironment returns the node's handler for Environment.
func ServeEnvironment(root Root) host.Handler {
	return host.Answering(func(context.Context, struct{}) (record.Environment, error) {
		return Fingerprint(root), nil
	})
}

// Fingerprint reads the environment of this machine and network namespace. It does not set Node. Facts
// never contain host names, serial numbers, boot ids or hardware addresses.
func Fingerprint(root Root) record.Environment {
	f := facts{
		root:    root,
		missing: map[string]string{},
		known: map[string]string{"os": runtime.GOOS,
			"agent_arch": unit.Arch(runtime.GOARCH), "go_version": runtime.Version()},
	}
	f.kernel()
	f.cpu()
	f.machine()
	f.settings()
	f.devices()
	e := record.Environment{Facts: f.known, Missing: f.missing}
	if root.Proc == "" && runtime.GOOS == "linux" {
		e.Inventory = inventory(root)
	}

	return e
}

// facts collects the known facts, and the reasons why others are missing.
type facts struct {
	root           Root
	known, missing map[string]string
}

// set records a fact. If value is empty, it records why the fact is missing.
func (f *facts) set(name, value, why string) {
	if value == "" {
		f.missing[name] = why
		return
	}

	f.known[name] = value
}

// word records the first line of a file as a fact. If the file has none, it records why the fact is
// missing.
func (f *facts) word(name, path, why string) {
	f.set(name, readWord(path), fmt.Sprintf("%s cannot be read: %s", path, why))
}

// optional records a fact if value is not empty.
func (f *facts) optional(name, value string) {
	if value != "" {
		f.known[name] = value
	}
}

// KernelRelease returns the output of uname -r, or "" if uname fails.
func KernelRelease() string {
	var u unix.Utsname
	unix.Uname(&u)
	return unix.ByteSliceToString(u.Release[:])
}

// file records the first line of a file as a fact, or nothing if the file has none.
func (f *facts) file(name, path string) { f.optional(name, readWord(path)) }

const notLinux = "not reported by this kernel"

// kernel records the distribution, the kernel's version and build options, and the boot parameters that
// affect performance.
func (f *facts) kernel() {
	text, _ := os.ReadFile("/etc/os-release") // the file may be missing
	more, _ := os.ReadFile("/etc/openwrt_release")
	maps.Copy(f.known, SystemFacts(string(text)+"\n"+string(more))) // more contains OpenWrt's exact version
	release := readWord(f.root.proc("sys/kernel/osrelease"))
	if runtime.GOOS != "linux" {
		release = KernelRelease()
	}

	f.set("kernel", release, notLinux)
	f.word("kernel_version", f.root.proc("sys/kernel/version"), notLinux)
	f.word("machine", f.root.proc("sys/kernel/arch"), "the kernel is older than 6.1")
	f.word("clocksource", f.root.sys("devices/system/clocksource/clocksource0/current_clocksource"), notLinux)
	f.kernelConfig(release)
	for _, word := range strings.Fields(readWord(f.root.proc("cmdline"))) {
		key, value, _ := strings.Cut(word, "=")
		if slices.Contains(bootChoices, key) {
			f.known["boot:"+key] = value
		}
	}

	for _, path := range matches(f.root.sys("devices/system/cpu/vulnerabilities/*")) {
		f.word("mitigation:"+filepath.Base(path), path, notLinux)
	}
}

// bootChoices lists the boot parameters that affect packet processing. Other parameters are not recorded,
// because they may identify the machine.
var bootChoices = strings.Fields(`
	mitigations isolcpus nohz_full nohz rcu_nocbs preempt threadirqs nosmt intel_pstate amd_pstate
	cpufreq.default_governor processor.max_cstate intel_idle.max_cstate idle clocksource irqaffinity psi
	retbleed spectre_v2
`)

// configFacts maps build options of the kernel to the names of facts.
var configFacts = map[string]string{
	"CONFIG_HZ": "timer_hz", "CONFIG_IRQ_TIME_ACCOUNTING": "irq_time_accounting",
	"CONFIG_PREEMPT_DYNAMIC": "preempt_dynamic", "CONFIG_PREEMPT_RT": "preempt_rt",
	"CONFIG_NO_HZ_FULL": "no_hz_full", "CONFIG_RETPOLINE": "retpoline",
	"CONFIG_MITIGATION_RETPOLINE": "retpoline",
}

// maxConfig limits the size of the kernel's build configuration, in bytes.
const maxConfig = 1 << 20

func (f *facts) kernelConfig(release string) {
	text, err := f.configText(release)
	if err != nil {
		f.missing["timer_hz"] = err.Error()
		return
	}

	for l := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(l), "=")
		if name, ok := configFacts[key]; ok {
			f.known[name] = value
		}
	}

	if f.known["timer_hz"] == "" {
		f.missing["timer_hz"] = "the kernel's configuration does not say"
	}
}

func (f *facts) configText(release string) (string, error) {
	if packed, err := os.Open(f.root.proc("config.gz")); err == nil {
		defer packed.Close()
		z, err := gzip.NewReader(packed)
		if err != nil {
			return "", err
		}

		b, err := io.ReadAll(io.LimitReader(z, maxConfig))
		return string(b), err
	}

	if f.root.Proc == "" && release != "" {
		if b, err := os.ReadFile("/boot/config-" + filepath.Base(release)); err == nil {
			return string(b[:min(len(b), maxConfig)]), nil
		}
	}
	return "", errors.New("neither /proc/config.gz nor /boot has the kernel's configuration")
}

// cpu records the model, cores, frequency scaling, and instruction set extensions for ciphers.
func (f *facts) cpu() {
	b, err := os.ReadFile(f.root.proc("cpuinfo"))
	if err != nil {
		f.missing["cpu_model"] = err.Error()
	}

	c := parseCPUInfo(string(b))
	f.set("cpu_model", cmp.Or(c.model, readWord(f.root.proc("device-tree/model"))),
		"the kernel does not name it")
	for name, n := range map[string]int{"cpu_threads": c.threads, "cpu_cores": c.cores} {
		if n > 0 {
			f.known[name] = strconv.Itoa(n)
		}
	}

	f.set("cpu_flags", strings.Join(c.flags, " "), "none of those that matter to us")
	f.optional("cpu_microcode", c.microcode)
	f.frequency()
	hypervisor := readWord(f.root.sys("hypervisor/type"))
	if hypervisor == "" && c.virtual {
		hypervisor = "yes, unnamed"
	}

	f.set("hypervisor", hypervisor, "none seen: real hardware, or one that hides")
}

func (f *facts) frequency() {
	var governors, drivers []string
	for _, dir := range matches(f.root.sys("devices/system/cpu/cpufreq/policy*")) {
		governors = append(governors, readWord(filepath.Join(dir, "scaling_governor")))
		drivers = append(drivers, readWord(filepath.Join(dir, "scaling_driver")))
	}

	const why = "no frequency scaling (no cpufreq policy)"
	f.set("governor", distinct(governors), why)
	f.set("frequency_driver", distinct(drivers), why)
}

// distinct joins the distinct words with spaces, sorted.
func distinct(words []string) string {
	slices.Sort(words)
	return strings.Join(slices.Compact(words), " ")
}

// cpuInfo holds the values in /proc/cpuinfo that are used.
type cpuInfo struct {
	model, microcode string
	threads, cores   int
	flags            []string
	virtual          bool
}

// cpuFlags lists instruction set extensions for ciphers and checksums, as kernels for x86, arm and mips
// spell them.
var cpuFlags = strings.Fields(`
	aes pclmulqdq ssse3 sse4_2 avx avx2 avx512f vaes vpclmulqdq sha_ni bmi2 adx asimd neon pmull sha1 sha2
	sha512 crc32 atomics sve vfpv4 dsp mips16
`)

// parseCPUInfo parses /proc/cpuinfo. Its keys differ between architectures (show_cpuinfo and c_show in
// arch/*/kernel).
func parseCPUInfo(text string) cpuInfo {
	var c cpuInfo
	cores := map[string]bool{}
	physical := ""
	for l := range strings.Lines(text) {
		key, value, ok := strings.Cut(l, ":")
		if !ok {
			continue
		}

		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "processor":
			if _, err := strconv.Atoi(value); err == nil {
				c.threads++
				continue
			}

			c.model = cmp.Or(c.model, value) // arm32 has "Processor : ARMv7 …"
		case "physical id":
			physical = value
		case "core id":
			cores[physical+"/"+value] = true
		case "model name", "cpu model", "uarch", "Model", "Hardware":
			c.model = cmp.Or(c.model, value)
		case "microcode":
			c.microcode = cmp.Or(c.microcode, value)
		case "flags", "Features", "isa", "ASEs implemented":
			if c.flags != nil {
				continue // another core's, which are the same
			}

			words := strings.Fields(value)
			c.virtual = slices.Contains(words, "hypervisor")
			c.flags = slices.DeleteFunc(words, func(w string) bool {
				return !slices.Contains(cpuFlags, w) && !strings.HasPrefix(w, "rv")
			})
		}
	}

	c.cores = len(cores)
	return c
}

// machine records the memory size and the product name. It omits everything that differs between machines
// of the same type.
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

	dmi := strings.TrimSpace(readWord(f.root.sys("class/dmi/id/sys_vendor")) + " " +
		readWord(f.root.sys("class/dmi/id/product_name")))
	f.set("product", cmp.Or(readWord(f.root.proc("device-tree/model")), dmi), "the firmware does not name it")
	for name, file := range sysFacts {
		f.file(name, f.root.sys(file))
	}
}

// sysFacts maps facts about the machine to the files in /sys that contain them.
var sysFacts = map[string]string{
	"bios_version": "class/dmi/id/bios_version", "boost": "devices/system/cpu/cpufreq/boost",
	"cpu_online": "devices/system/cpu/online", "cpu_smt": "devices/system/cpu/smt/control",
	"idle_driver":           "devices/system/cpu/cpuidle/current_driver",
	"idle_governor":         "devices/system/cpu/cpuidle/current_governor",
	"numa_nodes":            "devices/system/node/online",
	"transparent_hugepages": "kernel/mm/transparent_hugepage/enabled",
	"turbo_off":             "devices/system/cpu/intel_pstate/no_turbo",
}

// settingNames lists the sysctls that affect packet processing.
var settingNames = strings.Fields(`
	net.core.rmem_default net.core.rmem_max net.core.wmem_default net.core.wmem_max net.core.optmem_max
	net.core.netdev_budget net.core.netdev_budget_usecs net.core.netdev_max_backlog net.core.dev_weight
	net.core.default_qdisc net.core.busy_poll net.core.busy_read net.core.rps_sock_flow_entries
	net.core.flow_limit_cpu_bitmap net.core.gro_normal_batch net.core.bpf_jit_enable net.core.somaxconn
	net.ipv4.ip_forward net.ipv4.conf.all.rp_filter net.ipv4.ip_no_pmtu_disc
	net.ipv4.fib_multipath_hash_policy net.ipv4.tcp_congestion_control
	net.ipv4.tcp_available_congestion_control net.ipv4.tcp_rmem net.ipv4.tcp_wmem net.ipv4.tcp_mem
	net.ipv4.udp_mem net.ipv4.tcp_sack net.ipv4.tcp_timestamps net.ipv4.tcp_window_scaling net.ipv4.tcp_ecn
	net.ipv4.tcp_mtu_probing net.ipv4.tcp_limit_output_bytes net.ipv4.tcp_notsent_lowat
	net.ipv4.tcp_autocorking net.ipv4.tcp_no_metrics_save net.ipv4.tcp_slow_start_after_idle
	net.ipv4.tcp_min_tso_segs net.ipv6.conf.all.forwarding net.ipv6.conf.all.disable_ipv6
	net.netfilter.nf_conntrack_max net.netfilter.nf_conntrack_buckets kernel.sched_rt_runtime_us
	kernel.numa_balancing kernel.timer_migration kernel.dmesg_restrict kernel.unprivileged_bpf_disabled
	vm.swappiness
`)

// settings records the sysctls of this network namespace, or why they are missing.
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

// devices records the properties of all network devices in this namespace that are up, except loopback.
func (f *facts) devices() {
	if f.root.Proc != "" {
		return // /sys shows another namespace
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
	dir := f.root.device(dev.Name)
	if dir != "" {
		f.file(name+"tx_queue_len", filepath.Join(dir, "tx_queue_len"))
		f.file(name+"duplex", filepath.Join(dir, "duplex"))
		// If a device has no speed, the file contains -1 or reading it fails.
		speed := readWord(filepath.Join(dir, "speed"))
		if speed != "" && speed[0] != '-' {
			f.known[name+"speed_mbps"] = speed
		}

		if target, err := os.Readlink(filepath.Join(dir, "device/driver")); err == nil {
			f.known[name+"driver"] = filepath.Base(target)
		}

		f.pcie(name, filepath.Join(dir, "device"))
		for _, queue := range matches(filepath.Join(dir, "queues/rx-*")) {
			f.file(name+filepath.Base(queue)+":rps_cpus", filepath.Join(queue, "rps_cpus"))
		}

		f.optional(name+"lower", strings.Join(lowerDevices(dir), " "))
	}

	f.offloads(name, dev.Name)
}

// pcie records the current and maximum PCIe link of a card, such as "8.0 GT/s PCIe x4 of 16.0 GT/s PCIe
// x4".
func (f *facts) pcie(name, dir string) {
	state := func(which string) string {
		return readWord(filepath.Join(dir, which+"_link_speed")) + " x" +
			readWord(filepath.Join(dir, which+"_link_width"))
	}
	now := state("current")
	most := state("max")
	if now != " x" && most != " x" {
		f.known[name+"pcie"] = now + " of " + most
	}
}

func (f *facts) offloads(name, device string) {
	features, err := kernel.Features(device)
	if err != nil {
		f.missing[name+"offloads"] = err.Error()
	} else {
		maps.DeleteFunc(features, func(_ string, active bool) bool { return !active })
		f.known[name+"offloads"] = strings.Join(slices.Sorted(maps.Keys(features)), " ")
	}

	if p, err := kernel.PauseFrames(device); err == nil {
		f.known[name+"pause"] = fmt.Sprintf("autoneg=%t rx=%t tx=%t", p.Autoneg, p.Receive, p.Transmit)
	}
}
