package diagnosis

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// cryptoWorkers returns the rule for kernel workers whose encryption and decryption fill all cores.
func cryptoWorkers() Rule {
	return Rule{Class: CryptoWorkers, Label: "the kernel's crypto workers saturate the CPU",
		Means: "the crypto workers of an in-kernel tunnel take at least 30 % of the busy time, and every " +
			"core is busy for 82 %",
		Judge: func(o *Observation) Judgement {
			tunnel := o.tunnel()
			if tunnel == "" || factor.InUserspace(tunnel) {
				return Judgement{Score: absent}
			}
			s, why := o.systemOf()
			if why != "" {
				return missing(why)
			}
			ns, ok := o.Sum(s.Node, "kthreads", "kthread_cpu_ns", func(label string) bool {
				return strings.HasSuffix(label, "-crypt")
			})
			if !ok {
				return missing("the CPU time of kernel threads was not read")
			}
			workers := o.perSecond(ns) / 1e9
			share := ratio(workers, s.Busy)
			cores := fmt.Sprintf("all %d cores", len(s.Cores))
			if len(s.Cores) == 1 {
				cores = "its only core"
			}
			facts := factList{fact("kthread_cpu_ns", s.Node, "crypto workers", ns,
				unit.Percent(share)+" of the busy time was encryption and decryption"), s.coreFact()}
			return Judgement{Node: s.Node, Element: "workers", Facts: facts,
				Terms: []Term{requires("crypto-work", degree(share, .1, .3)).by(facts[0]),
					requires("full-cores", degree(s.Slack.Busy, .60, .82)).by(facts[1])},
				Text: fmt.Sprintf("the %s's crypto workers take %s of its CPU time and saturate %s", s.Node,
					unit.Percent(share), cores)}
		},
		Experiments: cpuDoses,
		Remedies: []Remedy{
			{System: "linux", Do: "use a cipher that the CPU accelerates: IPsec with AES-GCM, if it has " +
				"AES instructions", Risk: "both ends must change", Factor: "tunnel",
				Level: "esp-aes-gcm-256"},
			{Do: "use a CPU with more or faster cores: WireGuard spreads over all", Risk: "cost"},
			{System: "freebsd", Do: "leave net.inet.ipsec.async_crypto at 0",
				Risk: "turning it on cost 64 % of the rate (netbenches)"},
		}}
}
