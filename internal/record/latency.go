package record

// These values are the spacings of probes. Isochronous probes are sent at equal intervals. The intervals of
// Exponential probes have an exponential distribution with the same mean, so that the probes cannot be
// synchronised with a periodic behaviour of the path (RFC 2330, section 11.1).
const (
	Isochronous = "isochronous"
	Exponential = "exponential"
)

// Latency holds the samples of a probe on one path. RTT has one entry per probe sent in the window, in the
// order of sending. An entry is the round-trip time in nanoseconds, or -1 for a lost probe.
type Latency struct {
	Probe      string `json:"probe,omitempty"` // "echo" (UDP; also if the field is absent) or "icmp"
	IntervalNs int64  `json:"interval_ns"`     // mean interval between probes
	Spacing    string `json:"spacing,omitempty"`
	Size       int    `json:"size"` // IP length of a probe in bytes
	// Stamps is "kernel" (the server's residence time is subtracted) or "user" (the tester's processing time
	// is included).
	Stamps       string  `json:"stamps"`
	Includes     string  `json:"includes,omitempty"` // the points between which a round trip is timed
	RTT          []int64 `json:"rtt_ns"`             // round-trip times, from the time stamps in Stamps
	UserRTT      []int64 `json:"user_ns"`            // round-trip times as seen by the process
	SentAt       []int64 `json:"sent_at_ns"`
	Late         []int64 `json:"late_ns"` // timer error: actual minus scheduled send time
	Duplicates   int64   `json:"duplicates"`
	EchoNs       []int64 `json:"echo_ns,omitempty"` // residence time in the echo process
	SkippedSlots int64   `json:"skipped_slots"`     // slots skipped because the probe was too late

	Ends map[string]EndUsage `json:"ends,omitempty"` // "near" and "far": usage of the probe's processes

	Details map[string]string `json:"details,omitempty"` // scheduling class, clocks, kind of echo
	Caveats []Caveat          `json:"caveats,omitempty"`
}

// Responsiveness holds the times of requests in the window while TCP loaded the path
// (draft-ietf-ippm-responsiveness). A foreign request uses a new connection. A loaded request uses a
// connection that carries the load, and waits behind the data queued there. The process measures the times
// itself, without kernel time stamps. A time of -1 means that no response arrived.
type Responsiveness struct {
	ForeignAt []int64 `json:"foreign_at_ns"` // start of each foreign connection
	Connect   []int64 `json:"connect_ns"`    // duration of the TCP handshake
	Exchange  []int64 `json:"exchange_ns"`   // time from request to response on the foreign connection
	LoadedAt  []int64 `json:"loaded_at_ns"`  // time when each loaded request was passed to its sender
	Loaded    []int64 `json:"loaded_ns"`     // time from LoadedAt to the response
	Skipped   int64   `json:"skipped"`       // loaded requests skipped because the last one was in progress
}
