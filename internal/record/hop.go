package record

// Hop is a router on the path between two machines. The round-trip times to it by ICMP show where on the
// path a load adds latency. Silent is the reason if it does not answer.
type Hop struct {
	Number int      `json:"number"` // 1 is the near endpoint's neighbour
	Addr   string   `json:"addr"`
	Idle   *Latency `json:"idle,omitempty"`
	Loaded *Latency `json:"loaded,omitempty"`
	Silent string   `json:"silent,omitempty"`
}
