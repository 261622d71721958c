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

// Classes of the rules about the path and the ends.
const (
	LinkRate      = "link-rate"
	Shaper        = "shaper"
	Policer       = "policer"
	ClientCPU     = "client-cpu"
	ServerCPU     = "server-cpu"
	SlowSender    = "slow-sender"
	SlowReader    = "slow-reader"
	SendBuffer    = "send-buffer"
	ReceiveWindow = "receive-window"
	SmallQueue    = "small-queue"
	Bufferbloat   = "bufferbloat"
	RandomLoss    = "random-loss"
	RuleDrop      = "rule-drop"
	Reordering    = "reordering"
	ReversePath   = "reverse-path"

	OptionsStripped  = "options-stripped"
	SmallSegments    = "small-segments"
	ConntrackInvalid = "conntrack-invalid"
	CrossTraffic     = "cross-traffic"
	ShaperBurst      = "shaper-burst"
	ShaperCPU        = "shaper-cpu"

	ChecksumErrors = "checksum-errors"
	ReplayWindow   = "replay-window"
	TCPInTCP       = "tcp-in-tcp"
	Fragmentation  = "fragmentation"
	PMTUBlackHole  = "pmtu-black-hole"
)
