package traffic

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// numaNodes are the NUMA nodes of cores, nil where the kernel knows none.
func numaNodes(cpus []int) []int {
	var nodes []int
	dirs, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*")
	for _, dir := range dirs {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
		if err != nil {
			continue
		}
		if slices.ContainsFunc(cpus, func(cpu int) bool {
			_, err := os.Stat(filepath.Join(dir, "cpu"+strconv.Itoa(cpu)))
			return err == nil
		}) {
			nodes = append(nodes, n)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// lastCPU is the core on which a thread of this process was last seen, -1 if the kernel does not say.
func lastCPU(tid int) int {
	b, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(tid) + "/stat")
	if err != nil {
		return -1
	}
	return cpuOf(string(b))
}

// cpuOf reads field 39 of a line of proc_pid_stat(5). The second field, in brackets, may hold anything.
func cpuOf(stat string) int {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 37 {
		return -1
	}
	n, err := strconv.Atoi(fields[36])
	if err != nil || n < 0 {
		return -1
	}
	return n
}
