package record

// MeterProbe is the name of the probe in Trial.Meter.
const MeterProbe = "meter"

// Meter describes an external meter of the power that a device draws during a run's trials.
type Meter struct {
	// At is the address of the meter as given by the user. It contains no password.
	At string `json:"at"`
	// Node is the node whose power the meter measures; "" means the device under test, or the machine that
	// runs the device under test.
	Node string `json:"node,omitempty"`
	// IdleW and LoadedW are readings in watts that the user typed in. If they are set, no meter is read.
	IdleW   float64 `json:"idle_w,omitempty"`
	LoadedW float64 `json:"loaded_w,omitempty"`
}

// TypedIn reports whether the user typed in the readings.
func (m Meter) TypedIn() bool { return m.IdleW > 0 || m.LoadedW > 0 }

// Metered returns the node whose power the meter measures.
func (r *Run) Metered() string {
	switch {
	case r.Meter != nil && r.Meter.Node != "":
		return r.Meter.Node
	case r.Tested().OwnMachine():
		return r.Tested().Name
	}
	return HostNode
}
