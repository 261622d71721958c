package agent

import "golang.org/x/sys/unix"

func setHostname(name string) error { return unix.Sethostname([]byte(name)) }

// separate reports whether isolated verbs run in child processes.
const separate = true

// unfragmented returns a socket option that forbids fragmentation by the sender and by routers.
// IP_PMTUDISC_PROBE (ip(7)) sets DF and ignores the cached path MTU, so that a packet of every size is sent.
func unfragmented(ip6 bool) (level, name, value int) {
	if ip6 {
		return unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	return unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
}
