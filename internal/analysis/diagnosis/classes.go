package diagnosis

// Classes of the rules about routers and machines.
const (
	SoftirqOneCore  = "softirq-one-core"
	SoftirqAllCores = "softirq-all-cores"
	VPNProcess      = "vpn-process"
	CryptoWorkers   = "crypto-workers"
	RuleList        = "rule-list"
	LogFlood        = "log-flood"
	OtherLoad       = "other-load"
	ClockDown       = "clock-down"
	Thermal         = "thermal"
	ConntrackFull   = "conntrack-full"
	ConnectionRate  = "connection-rate"
	WireguardQueue  = "wireguard-queue"
	OneTunnel       = "one-tunnel-one-core"
	BacklogBudget   = "backlog-budget"
	OffloadLost     = "offload-lost"
	GROPathology    = "gro-pathology"
	LinkLayer       = "link-layer"
	PCIeMemory      = "pcie-memory"
	TunnelBypassed  = "tunnel-bypassed"
	SharedCPU       = "shared-cpu"
	OneFlow         = "one-flow"

	InlineInspection = "inline-inspection"
	Unstable         = "unstable"
)
