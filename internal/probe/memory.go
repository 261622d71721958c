package probe

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// memoryNames lists the lines of /proc/meminfo (fs/proc/meminfo.c, in KiB) and of /proc/vmstat that are read,
// with their stems. Those of /proc/meminfo end in _bytes.
var memoryNames = [...]struct{ name, stem, doc string }{
	{"MemTotal", "total_bytes", "total memory"},
	{"MemFree", "free_bytes", "unused memory"},
	{"MemAvailable", "available_bytes", "memory available to programs without swapping"},
	{"Buffers", "buffers_bytes", "memory that caches block devices"},
	{"Cached", "cached_bytes", "memory that caches files"},
	{"Slab", "slab_bytes", "memory of kernel objects, including queued packets"},
	{"SUnreclaim", "slab_unreclaimable_bytes", "part of slab_bytes that cannot be reclaimed"},
	{"SwapTotal", "swap_total_bytes", "swap space"},
	{"SwapFree", "swap_free_bytes", "unused swap space"},
	{"oom_kill", "oom_kills", "processes killed because memory ran out"},
	{"pgmajfault", "major_faults", "page faults that had to read from disk"},
	{"allocstall_normal", "direct_reclaims", "allocations that had to free memory first"},
}

func memory(root Root) Probe {
	var metrics []record.Metric
	var names []string
	for _, n := range memoryNames {
		m := counter(n.stem, "count", n.doc+", from /proc/vmstat")
		if strings.HasSuffix(n.stem, "_bytes") {
			m = level(n.stem, "bytes", n.doc+", from /proc/meminfo")
		}

		metrics, names = append(metrics, m), append(names, n.name)
	}

	return namedProbe("memory", record.ScopeHost, metrics, names, []namedFile{
		{root.proc("meminfo"), parsePairs, "no memory statistics; is /proc mounted?", 1024},
		{root.proc("vmstat"), parsePairs, "", 1},
	})
}
