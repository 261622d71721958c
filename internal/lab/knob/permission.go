package knob

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Permission determines which kernel settings may be changed on a node. It is needed because plans may come
// from other people but run as root. The zero value permits machineSysctls. Other values permit additional
// settings, whose names are separated by commas.
type Permission string

const (
	// OfNamespace permits net.* in a network namespace that belongs to the lab.
	OfNamespace Permission = "net"
	// OfGuest permits all kernel settings on a machine that belongs to the lab.
	OfGuest Permission = "all"
)

// machineSysctls lists the Linux and FreeBSD settings that may be changed on a machine that does not belong
// to the lab. They affect how fast packets are processed, and writing the previous value restores them. The
// list deliberately omits settings that open the machine to others (rp_filter, route_localnet,
// accept_redirects, ip_unprivileged_port_start, bridge-nf-call-iptables), contain secrets (tcp_fastopen_key,
// stable_secret), trigger an action (route.flush), or lose state when written (disable_ipv6).
const machineSysctls = `
net.core: busy_poll busy_read default_qdisc dev_weight dev_weight_rx_bias dev_weight_tx_bias flow_limit_cpu_bitmap
	flow_limit_table_len gro_normal_batch high_order_alloc_disable max_skb_frags netdev_budget
	netdev_budget_usecs netdev_max_backlog netdev_tstamp_prequeue optmem_max rmem_default rmem_max
	rps_sock_flow_entries skb_defer_max somaxconn txrehash wmem_default wmem_max
net.ipv4: fib_multipath_hash_policy fib_multipath_use_neigh ip_default_ttl ip_early_demux ip_local_port_range
	ip_no_pmtu_disc ipfrag_high_thresh ipfrag_low_thresh ipfrag_max_dist ipfrag_time
	tcp_adv_win_scale tcp_app_win tcp_autocorking tcp_backlog_ack_defer tcp_base_mss tcp_comp_sack_delay_ns
	tcp_comp_sack_nr tcp_comp_sack_slack_ns tcp_congestion_control tcp_dsack tcp_early_demux
	tcp_early_retrans tcp_ecn tcp_ecn_fallback tcp_fack tcp_fastopen tcp_fin_timeout tcp_frto
	tcp_limit_output_bytes tcp_low_latency tcp_max_orphans tcp_max_reordering tcp_max_syn_backlog
	tcp_max_tw_buckets tcp_mem tcp_min_rtt_wlen tcp_min_tso_segs tcp_moderate_rcvbuf tcp_mtu_probe_floor
	tcp_mtu_probing tcp_no_metrics_save tcp_no_ssthresh_metrics_save tcp_notsent_lowat tcp_pacing_ca_ratio
	tcp_pacing_ss_ratio tcp_probe_interval tcp_probe_threshold tcp_recovery tcp_reordering
	tcp_retrans_collapse tcp_rmem tcp_rto_max_ms tcp_rto_min_us tcp_sack tcp_shrink_window
	tcp_slow_start_after_idle tcp_thin_linear_timeouts tcp_timestamps tcp_tso_rtt_log tcp_tso_win_divisor
	tcp_tw_reuse tcp_window_scaling tcp_wmem udp_early_demux udp_mem udp_rmem_min udp_wmem_min
net.ipv4.neigh.default: gc_interval gc_stale_time gc_thresh1 gc_thresh2 gc_thresh3
net.ipv6: auto_flowlabels fib_multipath_hash_policy ip6frag_high_thresh ip6frag_low_thresh ip6frag_time
net.ipv6.neigh.default: gc_interval gc_stale_time gc_thresh1 gc_thresh2 gc_thresh3
net.ipv6.route: gc_interval gc_thresh gc_timeout max_size
net: nf_conntrack_max
net.netfilter: nf_conntrack_acct nf_conntrack_buckets nf_conntrack_checksum nf_conntrack_frag6_high_thresh
	nf_conntrack_frag6_low_thresh nf_conntrack_frag6_timeout nf_conntrack_generic_timeout
	nf_conntrack_icmp_timeout nf_conntrack_icmpv6_timeout nf_conntrack_max
	nf_conntrack_tcp_timeout_close nf_conntrack_tcp_timeout_close_wait nf_conntrack_tcp_timeout_established
	nf_conntrack_tcp_timeout_fin_wait nf_conntrack_tcp_timeout_last_ack nf_conntrack_tcp_timeout_syn_recv
	nf_conntrack_tcp_timeout_syn_sent nf_conntrack_tcp_timeout_time_wait nf_conntrack_timestamp
	nf_conntrack_udp_timeout nf_conntrack_udp_timeout_stream nf_flowtable_tcp_timeout
	nf_flowtable_udp_timeout
net.isr: bindthreads dispatch maxqlimit maxthreads numthreads
net.route: netisr_maxqlen
net.inet.ip: intr_queue_maxlen maxfragpackets maxfragsperpacket redirect
net.inet6.ip6: intr_queue_maxlen maxfragpackets maxfragsperpacket redirect
net.inet.ipsec: async_crypto
net.inet.tcp: delacktime delayed_ack initcwnd_segments mssdflt recvbuf_auto recvbuf_max recvspace rfc1323
	sendbuf_auto sendbuf_inc sendbuf_max sendspace tso
net.inet.tcp.cc: abe algorithm
net.inet.tcp.ecn: enable
net.inet.tcp.sack: enable
net.inet.udp: maxdgram recvspace
`

// Sysctl returns an error if a kernel setting may not be changed on a node. Two names of the same file, one
// with dots and one with slashes, are equivalent.
func (p Permission) Sysctl(name, node string) error {
	path, err := kernel.SysctlPath(name)
	if err != nil || p == OfGuest {
		return err
	}

	plain := dotted(path)
	switch {
	case p == OfNamespace && strings.HasPrefix(path, "/proc/sys/net/"):
		return nil
	case p == OfNamespace:
		return ofMachine(name, node)
	case slices.Contains(slices.Concat(sysctlNames(machineSysctls), strings.Split(string(p), ",")), plain):
		return nil
	}

	return check.WithHint(cannot("kernel setting %s on %s: the machine is not the lab's, and allow_sysctl "+
		"of the lab file does not name it", name, node), "a plan may come from anybody; if you want it set "+
		"there, write allow_sysctl: ["+plain+"] into the lab file")
}

// ofMachine returns the error for a kernel setting of the machine that hosts a lab.
func ofMachine(name, node string) error {
	return check.WithHint(cannot("kernel setting %s on %s: it belongs to the whole machine, which a lab "+
		"leaves alone", name, node),
		"set it on the machine before the run, or take a lab whose node has a kernel of its own, such as vm")
}

// sysctlNames returns the full names of the settings in a table whose lines begin with "PREFIX:".
func sysctlNames(table string) (names []string) {
	prefix := ""
	for _, word := range strings.Fields(table) {
		if p, ok := strings.CutSuffix(word, ":"); ok {
			prefix = p
			continue
		}

		names = append(names, prefix+"."+word)
	}
	return names
}

// Permit returns a permission that adds the given kernel settings. It returns an error if a name is invalid.
func Permit(names []string) (Permission, error) {
	var plain []string
	for _, name := range names {
		path, err := kernel.SysctlPath(name)
		if err != nil || strings.ContainsFunc(name, notInName) || !strings.ContainsAny(name, "./") {
			return "", check.WithHint(fmt.Errorf("%q is no kernel setting", check.Plain(name)),
				"its name as sysctl(8) writes it, such as kernel.timer_migration")
		}

		plain = append(plain, dotted(path))
	}
	return Permission(strings.Join(plain, ",")), nil
}

// notInName reports whether r is invalid in the name of a setting. A shell might interpret such a character.
func notInName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		strings.ContainsRune("._-/%", r))
}

// dotted returns the name of a setting with dots as separators, or with slashes if one of its parts contains
// a dot.
func dotted(path string) string {
	name := strings.TrimPrefix(path, "/proc/sys/")
	if strings.Contains(name, ".") {
		return name
	}
	return strings.ReplaceAll(name, "/", ".")
}
