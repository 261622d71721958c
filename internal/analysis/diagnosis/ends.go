package diagnosis

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
	Reordering    = "reordering"
	Fragmentation = "fragmentation"
	PMTUBlackHole = "pmtu-black-hole"
)

// pathRules are those about the path and the ends.
func pathRules() []Rule {
	return []Rule{linkRate(), shaper(), policer(), clientCPU(), serverCPU(), slowSender(), slowReader(),
		sendBuffer(), receiveWindow(), smallQueue(), bufferbloat(), randomLoss(), reordering(), fragmentation(),
		pmtuBlackHole()}
}
