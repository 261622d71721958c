package rig

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/probe"
)

// Machine returns a short description of this machine.
func Machine() string {
	facts := probe.Fingerprint(probe.Root{}).Facts
	known := func(fact string) string { return cmp.Or(facts[fact], "unknown") }
	bytes, _ := strconv.ParseFloat(facts["memory_bytes"], 64)
	virtual := "no virtual machine"
	if facts["hypervisor"] != "" {
		virtual = "a virtual machine"
	}

	// The protection of indirect calls dominates the cost of each packet.
	guard, _, _ := strings.Cut(strings.TrimPrefix(known("mitigation:spectre_v2"), "Mitigation: "), ";")
	return fmt.Sprintf("%s, %d cores of %s, %.0f GB, Linux %s, %s (%s), %s, load average %s before the "+
		"first run", time.Now().Format("2 January 2006"), runtime.NumCPU(), known("cpu_model"),
		bytes/1024e6, known("kernel"), virtual, guard, runtime.Version(), firstLine("/proc/loadavg")[0])
}

// firstLine returns a file's first line, with single spaces.
func firstLine(file string) []string {
	b, _ := os.ReadFile(file)
	line, _, _ := strings.Cut(string(b), "\n")
	return append(strings.Fields(line), "unknown")
}

// Times are the machine's times, in ticks of all cores.
type Times struct{ all, stolen float64 }

func MachineTimes() Times {
	var t Times
	for i, text := range firstLine("/proc/stat")[1:] {
		v, _ := strconv.ParseFloat(text, 64)
		if i < 8 { // the rest is part of earlier columns
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
