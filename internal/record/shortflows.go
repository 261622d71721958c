package record

// ShortFlows is what the end that opens the connections saw of many flows, each on a TCP connection of its
// own, or of requests on connections that stay open. What began in the window is counted once: Started =
// Completed + Failed + Unfinished. Times of a flow run from its intended start.
type ShortFlows struct {
	// connections stay open: requests with their responses
	Kept bool `json:"kept,omitempty"`
	// of new connections, as asked for; absent where each stream goes on by itself
	RateHz    float64 `json:"rate_hz,omitempty"`
	Started   int64   `json:"started"`   // intended to start in the window
	Completed int64   `json:"completed"` // of these, by the window's end
	Failed    int64   `json:"failed"`    // refused, reset, wrongly answered
	// under way, or still to be begun, at the window's end
	Unfinished int64 `json:"unfinished"`
	// not connected within DueNs of the intended start, though the window left that time
	Tardy     int64            `json:"tardy,omitempty"`
	DueNs     int64            `json:"due_ns,omitempty"`
	Carried   int64            `json:"carried"`            // begun before the window, completed in it
	Failures  map[string]int64 `json:"failures,omitempty"` // of those failed, by what happened
	Asked     int64            `json:"asked_bytes"`        // payload of those completed, as asked for
	Confirmed int64            `json:"confirmed_bytes"`    // of these, counted by who received it
	// TCP handshakes of those started, from the call to the answer
	Connect []TimeCount `json:"connect"`
	Late    []TimeCount `json:"late"`    // how long after its intended time each was begun
	Classes []FlowClass `json:"classes"` // in ascending order of size
}

// FlowClass are the flows of a range of sizes.
type FlowClass struct {
	FromBytes int64       `json:"from_bytes"` // up to the next class
	Started   int64       `json:"started"`
	Times     []TimeCount `json:"times"` // of those completed
}

// TimeCount is how many flows took at least FromNs, and less than a sixty-fourth (or 64 ns) more.
type TimeCount struct {
	FromNs int64 `json:"from_ns"`
	Flows  int64 `json:"flows"`
}
