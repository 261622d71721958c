package registry_test

import (
	"cmp"
	"strings"
)

// kernelTest is the test of an entry on a real kernel, "package.TestName" with the package's folder below
// internal, or "" for one that has none; the conformance suite of its family runs besides. A knob's shows its
// effect on traffic or counters: that it is read back as it was set proves none.
func kernelTest(family, name string) string {
	if family == "tunnel" {
		return tunnelTest(name)
	}

	if family == "probe" {
		return probeTest(name)
	}
	return map[string]string{
		"topology forward":        "lab.TestUpCarriesAndLeavesNothing",
		"topology to-router":      "lab.TestUpCarriesAndLeavesNothing",
		"topology peer-to-router": "lab.TestUpCarriesAndLeavesNothing",
		"topology site-to-site":   "lab.TestUpCarriesAndLeavesNothing",
		"topology direct":         "lab.TestUpCarriesAndLeavesNothing",

		"knob link_mtu":   "registry.TestLinkMTUBoundsThePath",
		"knob queue":      "registry.TestQueueShapes",
		"knob txqueuelen": "lab.TestGuestEffects",
		"knob offload":    "lab/knob.TestOffloadDecidesPacketSize",
		"knob wan":        "lab.TestWANByDHCP",
		"knob nat":        "lab/knob.TestNATTranslates",
		"knob vlan":       "registry.TestVLANTagsBothEnds",
		"knob firewall":   "lab/knob.TestFirewallLetsTrafficPass",
		"knob ip_forward": "registry.TestIPForwardDecidesWhatPasses",
		"knob sysctl:":    "lab/knob.TestSysctlDecidesWhatPasses",
		"knob cpus":       "lab.TestGuestCoreEffects",

		"knob flowtable":         "lab.TestGuestEffects",
		"knob mss_clamp":         "lab/knob.TestMSSClampLowersSegments",
		"knob governor":          "lab/kernel.TestGovernors",
		"knob conntrack_max":     "lab.TestGuestEffects",
		"knob shape":             "lab/knob.TestPolicerAndShapeHoldTheirRate",
		"knob policer":           "lab/knob.TestPolicerAndShapeHoldTheirRate",
		"knob gro_flush_timeout": "lab/knob.TestGROFlushTimeoutMergesPackets",
		"knob napi_threaded":     "lab.TestGuestEffects",
		"knob cpu_count":         "lab.TestGuestCoreEffects",
		"knob irq_affinity":      "lab.TestGuestCoreEffects",
		"knob flow_export":       "lab.TestGuestEffects",
		"knob cpu_quota":         "lab/knob.TestCPUQuotaHoldsThreads",
		"knob fault":             "lab.TestGuestFaults",
		"knob idle_policies":     "lab.TestGuestEffects",
		"knob idle_tunnels":      "lab.TestGuestEffects",

		"engine native":         "trial/traffic.TestTCPEveryOpenerAndDirection",
		"engine iperf3":         "trial/traffic.TestIperf3EveryOpenerAndDirection",
		"engine xdp":            "registry.TestXDPCountsToThePacket",
		"engine responsiveness": "trial/traffic.TestResponsivenessEveryOpenerAndDirection",
		"engine flows":          "registry.TestFlowsCrossTheRouter",
		"engine requests":       "registry.TestRequestsTakeAsLongAsTheRateSays",

		"prober echo": "trial/traffic.TestEchoEveryOpenerAndFamily",
		"prober icmp": "trial/traffic.TestICMPEveryFamily",
	}[family+" "+name]
}

// tunnelTest is a tunnel's: one test goes over all kinds.
func tunnelTest(name string) string {
	return map[string]string{
		"wireguard":             "lab/tunnel.TestTunnelTellsWhatItResolvedTo",
		"wireguard-kernel":      "lab/tunnel.TestTunnelsComeUpCarryAndGo",
		"wireguard-userspace":   "lab/tunnel.TestTunnelsComeUpCarryAndGo",
		"esp":                   "lab/tunnel.TestTunnelsComeUpCarryAndGo",
		"esp-aes-gcm-256":       "lab/tunnel.TestTunnelsComeUpCarryAndGo",
		"esp-aes-cbc-sha256":    "lab/tunnel.TestTunnelsComeUpCarryAndGo",
		"esp-chacha20-poly1305": "lab/tunnel.TestTunnelsComeUpCarryAndGo",
		"esp-policy":            "lab/tunnel.TestTunnelsComeUpCarryAndGo",

		"openvpn":                       "lab/tunnel.TestTunnelsComeUpCarryAndGo",
		"openvpn-chacha20-poly1305":     "lab/tunnel.TestTunnelsComeUpCarryAndGo",
		"openvpn-tcp":                   "lab/tunnel.TestTunnelsComeUpCarryAndGo",
		"openvpn-tcp-chacha20-poly1305": "lab/tunnel.TestTunnelsComeUpCarryAndGo",
	}[name]
}

// probeTest is the test that makes the counters of a source move: named after it, unless it is below.
func probeTest(name string) string {
	return cmp.Or(map[string]string{
		"cpu":       "probe.TestCPUMoves",
		"link":      "probe.TestLinkSeesTheCarrierComeAndGo",
		"cpufreq":   "probe.TestCPUFreqMoves",
		"kernellog": "probe.TestKernelLogMoves",
		"guests":    "lab.TestProbesOfAGuest",
		"drops":     "lab.TestProbesOfAGuest",
		"xfrm":      "lab.TestProbesOfAGuest",
		"wireguard": "lab.TestProbesOfAGuest",
		"flows":     "probe.TestFlowsMove",
		"queues":    "probe.TestQueuesMove",
	}[name], "probe.Test"+strings.ToUpper(name[:1])+name[1:]+"Moves")
}
