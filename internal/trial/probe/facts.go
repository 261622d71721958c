package probe

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const notLinux = "not told by this kernel"

// kernel: version, timer, and the boot choices that change speed.
func (f *facts) kernel() {
	release := readWord(f.root.proc("sys/kernel/osrelease"))
	f.set("kernel", release, notLinux)
	f.word("kernel_version", f.root.proc("sys/kernel/version"), notLinux)
	f.set("os", runtime.GOOS, "")
	f.set("agent_arch", runtime.GOARCH, "")
	f.set("go_version", runtime.Version(), "")
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

// bootChoices are the boot parameters that change how fast packets move; the rest of the command line may
// identify the machine.
var bootChoices = []string{"mitigations", "isolcpus", "nohz_full", "nohz", "rcu_nocbs", "preempt",
	"threadirqs",
	"nosmt", "intel_pstate", "amd_pstate", "cpufreq.default_governor", "processor.max_cstate",
	"intel_idle.max_cstate", "idle", "clocksource", "irqaffinity", "psi", "retbleed", "spectre_v2"}

// configFacts are the build choices of the kernel that matter.
var configFacts = map[string]string{
	"CONFIG_HZ": "timer_hz", "CONFIG_IRQ_TIME_ACCOUNTING": "irq_time_accounting",
	"CONFIG_PREEMPT_DYNAMIC": "preempt_dynamic", "CONFIG_PREEMPT_RT": "preempt_rt",
	"CONFIG_NO_HZ_FULL": "no_hz_full", "CONFIG_RETPOLINE": "retpoline",
	"CONFIG_MITIGATION_RETPOLINE": "retpoline",
}

// maxConfig bounds the reading of a kernel's configuration.
const maxConfig = 1 << 20

func (f *facts) kernelConfig(release string) {
	text, err := f.configText(release)
	if err != nil {
		f.missing["timer_hz"] = err.Error()
		return
	}
	for _, l := range strings.Split(text, "\n") {
		key, value, _ := strings.Cut(l, "=")
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
		b, err := os.ReadFile("/boot/config-" + filepath.Base(release))
		if err == nil {
			return string(b[:min(len(b), maxConfig)]), nil
		}
	}
	return "", errors.New("neither /proc/config.gz nor /boot has the kernel's configuration")
}

// cpu: model, cores, clock, and the instructions that ciphers use.
func (f *facts) cpu() {
	b, err := os.ReadFile(f.root.proc("cpuinfo"))
	if err != nil {
		f.missing["cpu_model"] = err.Error()
	}
	c := parseCPUInfo(string(b))
	model := c.model
	if model == "" {
		model = readWord(f.root.proc("device-tree/model"))
	}
	f.set("cpu_model", model, "the kernel does not name it")
	if c.threads > 0 {
		f.known["cpu_threads"] = strconv.Itoa(c.threads)
	}
	if c.cores > 0 {
		f.known["cpu_cores"] = strconv.Itoa(c.cores)
	}
	f.set("cpu_flags", strings.Join(c.flags, " "), "none of those that matter to us")
	f.optional("cpu_online", f.root.sys("devices/system/cpu/online"))
	f.optional("cpu_smt", f.root.sys("devices/system/cpu/smt/control"))
	if c.microcode != "" {
		f.known["cpu_microcode"] = c.microcode
	}
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
	f.optional("turbo_off", f.root.sys("devices/system/cpu/intel_pstate/no_turbo"))
	f.optional("boost", f.root.sys("devices/system/cpu/cpufreq/boost"))
	f.optional("idle_driver", f.root.sys("devices/system/cpu/cpuidle/current_driver"))
	f.optional("idle_governor", f.root.sys("devices/system/cpu/cpuidle/current_governor"))
}

// distinct joins the different words of a list.
func distinct(words []string) string {
	slices.Sort(words)
	return strings.Join(slices.Compact(words), " ")
}

// cpuInfo is what we take of /proc/cpuinfo.
type cpuInfo struct {
	model, microcode string
	threads, cores   int
	flags            []string
	virtual          bool
}

// cpuFlags are the instructions that ciphers and checksums are built on, by the spelling of x86, arm and
// mips kernels.
var cpuFlags = []string{"aes", "pclmulqdq", "ssse3", "sse4_2", "avx", "avx2", "avx512f", "vaes", "vpclmulqdq",
	"sha_ni", "bmi2", "adx",
	"asimd", "neon", "pmull", "sha1", "sha2", "sha512", "crc32", "atomics", "sve", "vfpv4", "dsp", "mips16"}

// parseCPUInfo reads /proc/cpuinfo, whose keys differ by architecture (arch/*/kernel: show_cpuinfo,
// c_show).
func parseCPUInfo(text string) cpuInfo {
	var c cpuInfo
	cores := map[string]bool{}
	physical := ""
	for _, l := range strings.Split(text, "\n") {
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
			c.model = firstOf(c.model, value) // arm32's "Processor : ARMv7 …"
		case "physical id":
			physical = value
		case "core id":
			cores[physical+"/"+value] = true
		case "model name", "cpu model", "uarch", "Model", "Hardware":
			c.model = firstOf(c.model, value)
		case "microcode":
			c.microcode = firstOf(c.microcode, value)
		case "flags", "Features", "isa", "ASEs implemented":
			if c.flags == nil {
				c.flags, c.virtual = chooseFlags(value)
			}
		}
	}
	c.cores = len(cores)
	return c
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func chooseFlags(value string) (flags []string, virtual bool) {
	for _, w := range strings.Fields(value) {
		if slices.Contains(cpuFlags, w) || strings.HasPrefix(w, "rv") {
			flags = append(flags, w)
		}
		virtual = virtual || w == "hypervisor"
	}
	return flags, virtual
}
