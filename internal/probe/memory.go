package probe

import "github.com/chokepoint-lab/chokepoint/internal/record"

// memoryNames lists the lines of /proc/meminfo (fs/proc/meminfo.c, in KiB) and of /proc/vmstat that are read,
// with their stems.
var memoryNames = [...]struct {
	name, stem string
	vmstat     bool
	doc        string
}{
	{"MemTotal", "total_bytes", false, "total memory"},
	{"MemFree", "free_bytes", false, "unused memory"},
	{"MemAvailable", "available_bytes", false, "memory available to programs without swapping"},
	{"Buffers", "buffers_bytes", false, "memory that caches block devices"},
	{"Cached", "cached_bytes", false, "memory that caches files"},
	{"Slab", "slab_bytes", false, "memory of kernel objects, including queued packets"},
	{"SUnreclaim", "slab_unreclaimable_bytes", false, "part of slab_bytes that cannot be reclaimed"},
	{"SwapTotal", "swap_total_bytes", false, "swap space"},
	{"SwapFree", "swap_free_bytes", false, "unused swap space"},
	{"oom_kill", "oom_kills", true, "processes killed because memory ran out"},
	{"pgmajfault", "major_faults", true, "page faults that had to read from disk"},
	{"allocstall_normal", "direct_reclaims", true, "allocations that had to free memory first"},
}

func memory(root Root) Probe {
	var metrics []record.Metric
	var names []string
	for _, n := range memoryNames {
		m := level(n.stem, "bytes", n.doc+", from /proc/meminfo")
		if n.vmstat {
			m = counter(n.stem, "count", n.doc+", from /proc/vmstat")
		}

		metrics, names = append(metrics, m), append(names, n.name)
	}

	return namedProbe("memory", record.ScopeHost, metrics, names, []namedFile{
		{root.proc("meminfo"), parsePairs, "no memory statistics; is /proc mounted?", 1024},
		{root.proc("vmstat"), parsePairs, "", 1},
	})
}
