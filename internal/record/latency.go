package record

// Spacing of probes. Isochronous ones are Interval apart; the gaps of the others are exponentially
// distributed with that mean, so that no period of the path can be hit or missed by all of them (RFC 2330,
// §11.1).
const (
	Isochronous = "isochronous"
	Exponential = "exponential"
)

// Latency holds the samples of a probe on one path. RTT has one entry per probe sent in the window, in order:
// nanoseconds, or -1 for a lost one.
type Latency struct {
	Probe      string `json:"probe,omitempty"` // "echo" (UDP, also if absent) or "icmp"
	IntervalNs int64  `json:"interval_ns"`     // mean
	Spacing    string `json:"spacing,omitempty"`
	Size       int    `json:"size"` // IP length
	// "kernel" (server residence subtracted) or "user" (includes tester)
	Stamps       string  `json:"stamps"`
	Includes     string  `json:"includes,omitempty"` // between which points a round trip was timed
	RTT          []int64 `json:"rtt_ns"`             // see Stamps
	UserRTT      []int64 `json:"user_ns"`            // as seen by the process, for comparison
	SentAt       []int64 `json:"sent_at_ns"`
	Late         []int64 `json:"late_ns"` // send time - scheduled time: the probe's own timer error
	Duplicates   int64   `json:"duplicates"`
	EchoNs       []int64 `json:"echo_ns,omitempty"` // residence in the echo process
	SkippedSlots int64   `json:"skipped_slots"`     // slots for which the probe was too late

	Ends map[string]EndUsage `json:"ends,omitempty"` // "near" and "far": the probe's own processes

	Details map[string]string `json:"details,omitempty"` // scheduling class, clocks, kind of echo
	Caveats []Caveat          `json:"caveats,omitempty"`
}

// Responsiveness holds the times of requests in the window while TCP loaded the path
// (draft-ietf-ippm-responsiveness): foreign ones on a separate connection, loaded ones on a connection that
// carries the load, behind the data queued there. Times are the process's; -1 = not answered.
type Responsiveness struct {
	ForeignAt []int64 `json:"foreign_at_ns"` // when each foreign connection was started
	Connect   []int64 `json:"connect_ns"`    // TCP handshake
	Exchange  []int64 `json:"exchange_ns"`   // request to response on that connection
	LoadedAt  []int64 `json:"loaded_at_ns"`  // when each loaded request was passed to its sender
	Loaded    []int64 `json:"loaded_ns"`     // from then to its response
	Skipped   int64   `json:"skipped"`       // loaded requests not made: the previous one was in progress
}
