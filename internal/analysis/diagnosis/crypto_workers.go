package diagnosis

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// cryptoWorkers are the kernel's workers that encrypt and decrypt, on all cores.
func cryptoWorkers() Rule {
	return Rule{Class: CryptoWorkers, Label: "all cores are full of the kernel's crypto workers",
		Means: "the workers of the kernel's tunnel take 30 % of the busy time or more, and every core is " +
			"busy for 82 %",
		Judge: func(o *Observation) Judgement {
			tunnel := o.tunnel()
			if tunnel == "" || inUserspace(tunnel) {
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
			return Judgement{Score: ramp(s.Slack.Busy, .60, .82, unlikely, 1.5) + o.wants() +
				ramp(share, .1, .3, -4, 2), Node: s.Node, Element: "workers",
				Text: fmt.Sprintf("the %s's crypto workers take %s of its CPU time, and no core has any left",
					s.Node, unit.Percent(share)),
				Facts: []evidence.Evidence{fact("kthread_cpu_ns", s.Node, "crypto workers", ns,
					unit.Percent(share)+" of the busy time was encrypting and decrypting"), s.coreFact()}}
		},
		Experiments: cpuDoses,
		Remedies: []Remedy{
			{System: "linux", Do: "use a cipher that the CPU has instructions for: AES-GCM by IPsec, where " +
				"AES is in hardware", Risk: "both ends change", Factor: "tunnel", Level: "esp-aes-gcm-256"},
			{Do: "a CPU with more or faster cores: WireGuard spreads its work over all", Risk: "price"},
			{System: "freebsd", Do: "leave net.inet.ipsec.async_crypto at 0",
				Risk: "switched on it took 64 % of the rate (netbenches)"},
		}}
}

// oneTunnelOneCore is a tunnel whose packets pass one core in a row while others idle.
func oneTunnelOneCore() Rule {
	return Rule{Class: OneTunnel, Label: "one tunnel is served by one core",
		Means: "the load passes one tunnel of the kernel's, one core is busy for 93 % of the window or " +
			"more, and another idles for 40 % or more",
		Judge: func(o *Observation) Judgement {
			tunnel := o.tunnel()
			if tunnel == "" || inUserspace(tunnel) || o.load().Tunnels > 1 {
				return Judgement{Score: absent}
			}
			s, why := o.ownSystem()
			switch {
			case why != "":
				return missing(why)
			case len(s.Cores) == 1:
				return Judgement{Score: absent}
			}
			return Judgement{Score: o.full(s, 3) + ramp(1-s.Slack.Busy, .15, .4, -4, .5), Node: s.Node,
				Element: s.Full.Name, GainAtMost: ratio(float64(len(s.Cores))*s.Full.Busy, s.Busy),
				Text: fmt.Sprintf("one tunnel's packets pass %s of the %s, which is full while %s idles "+
					"for %s",
					coreName(s.Full.Name), s.Node, coreName(s.Slack.Name), unit.Percent(1-s.Slack.Busy)),
				Facts: []evidence.Evidence{s.coreFact(), s.softirqFact(), fact("tunnels", s.Node, tunnel, 1,
					"all streams pass one tunnel")}}
		},
		Experiments: func(o *Observation, j Judgement) []Experiment {
			return append([]Experiment{{Class: j.Class, Factor: "tunnels", Doses: []string{"1", "2", "4"},
				Resource: []float64{1, 2, 4}, From: "tester", Expect: 1, Why: "more tunnels side by side " +
					"are served by more cores"}}, cpuDoses(o, j)...)
		},
		Remedies: append([]Remedy{{Do: "spread the traffic over several tunnels", Factor: "tunnels",
			Level: "2", Risk: "each flow stays on one"}}, spreadRemedies()...)}
}
