package probe

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// routecacheNames lists the columns of /proc/net/stat/rt_cache (net/ipv4/route.c, rt_cpu_seq_show) that
// are read, with the names that lnstat(8) uses. All other columns have been zero since Linux 3.6 removed
// the cache.
var routecacheNames = strings.Fields(`
	in_slow_tot in_slow_mc in_no_route in_brd in_martian_dst in_martian_src out_slow_tot out_slow_mc
`)

// routecache counts IPv4 route lookups and their failures.
func routecache(root Root) Probe {
	var metrics []record.Metric
	for i, doc := range []string{
		"packets received whose route was looked up, including packets that were refused",
		"multicast packets received whose route was looked up",
		"packets received without a route",
		"broadcast packets received",
		"packets received with an invalid (martian) destination",
		"packets received with an invalid (martian) source, including those that rp_filter refuses",
		"the machine's own packets whose route was looked up",
		"the machine's own multicast packets whose route was looked up",
	} {
		metrics = append(metrics, counter(routecacheNames[i], "count",
			doc+"; IPv4, all CPUs and network namespaces together (/proc/net/stat/rt_cache)"))
	}
	return namedProbe("routecache", record.ScopeHost, metrics, routecacheNames, []namedFile{
		{root.proc("net/stat/rt_cache"), parsePerCPU, "the kernel has no statistics of IPv4 routing", 1}})
}
