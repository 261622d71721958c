package record

// Spacing of probes. Isochronous probes are sent at equal intervals. With Exponential, intervals are
// exponentially distributed with the same mean, so that probes cannot be synchronised with a periodic
// behaviour of the path (RFC 2330, §11.1).
const (
	Isochronous = "isochronous"
	Exponential = "exponential"
)

// Latency holds the samples of a probe on one path. RTT has one entry per probe sent in the window, in
// order: nanoseconds, or -1 for a lost probe.
type Latency struct {
	Probe      string `json:"probe,omitempty"` // "echo" (UDP, also if absent) or "icmp"
	IntervalNs int64  `json:"interval_ns"`     // mean interval
	Spacing    string `json:"spacing,omitempty"`
	Size       int    `json:"size"` // IP length in bytes
	// "kernel" (the server's residence time is subtracted) or "user" (includes the tester's processing)
	Stamps       string  `json:"stamps"`
	Includes     string  `json:"includes,omitempty"` // the points between which a round trip is timed
	RTT          []int64 `json:"rtt_ns"`             // by the time stamps in Stamps
	UserRTT      []int64 `json:"user_ns"`            // as seen by the process, for comparison
	SentAt       []int64 `json:"sent_at_ns"`
	Late         []int64 `json:"late_ns"` // actual minus scheduled send time: the probe's own timer error
	Duplicates   int64   `json:"duplicates"`
	EchoNs       []int64 `json:"echo_ns,omitempty"` // residence time in the echo process
	SkippedSlots int64   `json:"skipped_slots"`     // slots skipped because the probe was too late

	Ends map[string]EndUsage `json:"ends,omitempty"` // "near" and "far": usage of the probe's processes

	Details map[string]string `json:"details,omitempty"` // scheduling class, clocks, kind of echo
	Caveats []Caveat          `json:"caveats,omitempty"`
}

// Responsiveness holds the times of requests in the window while TCP loaded the path
// (draft-ietf-ippm-responsiveness). Foreign requests use a new connection. Loaded requests use a
// connection that carries the load, and wait behind the data queued there. Times are measured by the
// process; -1 means no answer.
type Responsiveness struct {
	ForeignAt []int64 `json:"foreign_at_ns"` // start of each foreign connection
	Connect   []int64 `json:"connect_ns"`    // TCP handshake
	Exchange  []int64 `json:"exchange_ns"`   // from request to response on that connection
	LoadedAt  []int64 `json:"loaded_at_ns"`  // time when each loaded request was passed to its sender
	Loaded    []int64 `json:"loaded_ns"`     // from then to the response
	Skipped   int64   `json:"skipped"`       // loaded requests skipped: the last one was in progress
}
