package record

// OneWay is how long packets of the load itself were on their way, in one direction: those that carry the
// time they were sent. It exists only where one clock tells both times.
type OneWay struct {
	Direction string        `json:"direction"`
	Counts    []DelayCounts `json:"counts"` // in ascending order
}

// DelayCounts is how many packets took at least FromNs, and less than the next.
type DelayCounts struct {
	FromNs  int64 `json:"from_ns"`
	Packets int64 `json:"packets"`
}
