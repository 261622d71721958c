package rig

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Machine describes this one in words.
func Machine() string {
	return fmt.Sprintf("%s, %d cores of %s, %s GB, Linux %s, %s (%s), %s, load average %s before the "+
		"first run", time.Now().Format("2 January 2006"), runtime.NumCPU(),
		after("/proc/cpuinfo", "model name"), gigabytes(), first("/proc/sys/kernel/osrelease"), hypervisor(),
		spectre(), runtime.Version(),
		strings.Fields(first("/proc/loadavg") + " unknown")[0])
}

func first(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}

// after is the value of the first line that begins with a key.
func after(file, key string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func gigabytes() string {
	kb, _ := strconv.ParseFloat(strings.TrimSuffix(after("/proc/meminfo", "MemTotal"), " kB"), 64)
	return fmt.Sprintf("%.0f", kb/1e6)
}

func hypervisor() string {
	if strings.Contains(" "+after("/proc/cpuinfo", "flags")+" ", " hypervisor ") {
		return "a virtual machine"
	}
	return "no virtual machine"
}

// spectre says how indirect calls are guarded, which dominates the cost of each packet.
func spectre() string {
	text, _, _ := strings.Cut(strings.TrimPrefix(first("/sys/devices/system/cpu/vulnerabilities/spectre_v2"),
		"Mitigation: "), ";")
	return strings.TrimSpace(text)
}

// Times are the machine's, in ticks of all cores.
type Times struct{ all, stolen float64 }

func MachineTimes() Times {
	f := strings.Fields(first("/proc/stat"))
	var t Times
	for i, text := range f[min(len(f), 1):] {
		v, _ := strconv.ParseFloat(text, 64)
		if i < 8 { // what follows is part of what came before
			t.all += v
		}
		if i == 7 {
			t.stolen = v
		}
	}
	return t
}

func (t Times) StolenSince(b Times) float64 {
	if t.all <= b.all {
		return 0
	}
	return (t.stolen - b.stolen) / (t.all - b.all)
}
