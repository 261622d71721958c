package knob

import (
	"strings"
	"testing"
)

// TestMachineSysctls: of a machine that is not the lab's, a plan reaches nothing that opens it to others,
// holds a secret, runs a program or cannot be restored, by whatever name.
func TestMachineSysctls(t *testing.T) {
	for _, name := range []string{
		"kernel.core_pattern", "kernel/core_pattern", "kernel.modprobe", "kernel.hotplug", "vm.swappiness",
		"fs.suid_dumpable", "net/../kernel/core_pattern", "net.ipv4/../../kernel/core_pattern",
		"net//core/rmem_max", "net", "net.", "net.core", "net/core.rmem_max", "all", "",
		"net.core.rmem_max ", "NET.core.rmem_max", "net.core.bpf_jit_enable", "net.core.bpf_jit_harden",
		"net.ipv4.ip_unprivileged_port_start", "net.ipv4.conf.all.rp_filter", "net.ipv4.ping_group_range",
		"net.ipv4.conf.eth0.route_localnet", "net/ipv4/conf/eth0.5/accept_source_route",
		"net.ipv4.tcp_fastopen_key", "net.ipv4.route.flush", "net.ipv4.tcp_syncookies",
		"net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.all.stable_secret", "net.ipv6.conf.all.accept_ra",
		"net.bridge.bridge-nf-call-iptables", "net.netfilter.nf_log.2", "net.netfilter.nf_conntrack_helper",
		"kern.securelevel", "security.bsd.see_other_uids", "net.link.bridge.pfil_member",
		"net.inet.ip.sourceroute", "net.inet.ip.accept_sourceroute",
	} {
		if err := Permission("").Sysctl(name, "router"); err == nil {
			t.Errorf("%q: want a refusal", name)
		}
	}

	for _, name := range []string{"net.ipv4.tcp_rmem", "net/ipv4/tcp_rmem", "net.core.netdev_budget",
		"net.netfilter.nf_conntrack_max", "net.isr.dispatch", "net.inet.tcp.cc.algorithm"} {
		if err := Permission("").Sysctl(name, "router"); err != nil {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

// TestPermit: what a machine's owner writes is allowed by any spelling, and cannot say more than it names.
func TestPermit(t *testing.T) {
	p, err := Permit([]string{"kernel/timer_migration", "dev.cpu.0.freq", "net/ipv4/conf/eth0.5/rp_filter"})
	if err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]bool{"kernel.timer_migration": true, "kernel/timer_migration": true,
		"dev.cpu.0.freq": true, "net/ipv4/conf/eth0.5/rp_filter": true, "net.ipv4.tcp_rmem": true,
		"kernel.core_pattern": false, "net.ipv4.conf.eth0.rp_filter": false} {
		if err := p.Sysctl(name, "router"); (err == nil) != want {
			t.Errorf("%s: got %v, want allowed: %v", name, err, want)
		}
	}

	for _, name := range []string{string(OfGuest), string(OfNamespace), "", "*", "kernel.a,kernel.b",
		"kernel.*",
		"kernel.x'; reboot", "kernel.a b", "../etc/passwd", "net/../kernel/core_pattern"} {
		if p, err := Permit([]string{name}); err == nil {
			t.Errorf("%q: got %q, want an error", name, p)
		}
	}
}

// TestMachineSysctlsAreNames: a table that is written wrong would allow nothing.
func TestMachineSysctlsAreNames(t *testing.T) {
	names := sysctlNames(machineSysctls)
	if len(names) < 100 {
		t.Fatalf("got %d names", len(names))
	}

	for _, name := range names {
		if !strings.HasPrefix(name, "net.") || strings.Contains(name, "..") {
			t.Errorf("%q is none of the network", name)
		}
	}
}
