package record

// Hop describes a router on the path. The round-trip times of ICMP probes to the hops show where on the path
// a load adds latency. If a hop does not answer, Silent is the reason.
type Hop struct {
	Number int      `json:"number"` // position on the path; the near endpoint's neighbour has 1
	Addr   string   `json:"addr"`
	Idle   *Latency `json:"idle,omitempty"`
	Loaded *Latency `json:"loaded,omitempty"`
	Silent string   `json:"silent,omitempty"`
}
