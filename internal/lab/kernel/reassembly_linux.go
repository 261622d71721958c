package kernel

import (
	"os"
	"strconv"
	"strings"
)

// Reassembly is how much of the memory for fragments, 0…1, a network namespace uses for packets of which
// some are missing; of IPv4 or IPv6, whichever is more, and 0 where the kernel does not tell. Above 1 it
// takes none that is new until others are whole or have timed out (net/ipv4/inet_fragment.c,
// inet_frag_create; after 30 s, of IPv6 60).
func Reassembly() (used float64) {
	for file, limit := range map[string]string{"sockstat": "net.ipv4.ipfrag_high_thresh",
		"sockstat6": "net.ipv6.ip6frag_high_thresh"} {
		text, _ := os.ReadFile("/proc/thread-self/net/" + file)
		most, _ := ReadSysctl(limit)
		_, held, _ := strings.Cut(string(text), "FRAG") // FRAG: inuse 0 memory 0
		_, held, _ = strings.Cut(held, "memory ")
		if h, err := strconv.ParseFloat(strings.TrimSpace(held), 64); err == nil {
			if m, err := strconv.ParseFloat(most, 64); err == nil && m > 0 {
				used = max(used, h/m)
			}
		}
	}
	return used
}
