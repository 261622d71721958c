package record

// Hop is a router on the path between two machines, with the round trips to it by ICMP, which show where on
// the path a load adds latency. A router that does not answer has a reason instead.
type Hop struct {
	Number int      `json:"number"` // 1 is the near end's neighbour
	Addr   string   `json:"addr"`
	Idle   *Latency `json:"idle,omitempty"`
	Loaded *Latency `json:"loaded,omitempty"`
	Silent string   `json:"silent,omitempty"`
}
