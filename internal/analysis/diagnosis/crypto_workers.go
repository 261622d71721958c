package diagnosis

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// cryptoWorkers describes kernel workers that fill all cores with encryption and decryption.
var cryptoWorkers = rule(CryptoWorkers, `
	label: the kernel's crypto workers saturate the CPU
	means: the crypto workers of an in-kernel tunnel take at least 30 % of the busy time, and \
		every core is busy for 82 %
	traits: at-capacity in-router in-guest
	kind: packet
	planted: cpu_quota
	linux: use a cipher that the CPU accelerates: IPsec with AES-GCM, if it has AES instructions
		risk: both ends must change
		plan: tunnel=esp-aes-gcm-256
	any: use a CPU with more or faster cores: WireGuard spreads over all
		risk: cost
	freebsd: leave net.inet.ipsec.async_crypto at 0
		risk: turning it on cost 64 % of the rate (netbenches)
`, func(o *Observation) Candidate {
	tunnel := o.tunnel()
	if tunnel == "" || factor.InUserspace(tunnel) {
		return excluded()
	}

	s := need(systemOf(o))
	ns := need(o.sumOf(s.Node, "kthreads", func(label string) bool {
		return strings.HasSuffix(label, "-crypt")
	}, "kthread_cpu_ns"))
	share := ratio(o.perSecond(ns)/1e9, s.Busy)
	return place{s.Node, "workers"}.candidate(requires("crypto-work", share, .1, .3).by(
		fact("kthread_cpu_ns", s.Node, "crypto workers", ns,
			"%h of the busy time was encryption and decryption", share)),
		requires("full-cores", s.Slack.Busy, .60, .82).by(s.coreFact())).
		text("the %s's crypto workers take %h of its CPU time and saturate every core", s.Node, share)
})
