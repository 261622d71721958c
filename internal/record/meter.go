package record

// MeterProbe is the probe's name in Trial.Meter.
const MeterProbe = "meter"

// Meter is an external meter of the power that a device draws during the trials of a run.
type Meter struct {
	// At is the address of the meter, as typed; it contains no password.
	At string `json:"at"`
	// Node is the node whose power it reads; "" = the device under test, or the machine that carries it.
	Node string `json:"node,omitempty"`
	// IdleW and LoadedW are watts that were typed in; then no meter is read.
	IdleW   float64 `json:"idle_w,omitempty"`
	LoadedW float64 `json:"loaded_w,omitempty"`
}

// TypedIn reports whether a human read it.
func (m Meter) TypedIn() bool { return m.IdleW > 0 || m.LoadedW > 0 }

// Metered returns the node that the run's meter measures.
func (r *Run) Metered() string {
	switch {
	case r.Meter != nil && r.Meter.Node != "":
		return r.Meter.Node
	case r.Tested().OwnMachine():
		return r.Tested().Name
	}
	return HostNode
}
