package record

// MeterProbe is the probe's name in Trial.Meter.
const MeterProbe = "meter"

// Meter tells from outside how much power a device draws while the trials of a run go on.
type Meter struct {
	// At says where it is read, as typed; it holds no password.
	At string `json:"at"`
	// Node is whose power it is; "" = of the device under test, or of the machine that carries it.
	Node string `json:"node,omitempty"`
	// IdleW and LoadedW are watts that were typed in. Such a meter is not read.
	IdleW   float64 `json:"idle_w,omitempty"`
	LoadedW float64 `json:"loaded_w,omitempty"`
}

// TypedIn reports whether a human read it.
func (m Meter) TypedIn() bool { return m.IdleW > 0 || m.LoadedW > 0 }

// Metered is the node whose power the run's meter tells.
func (r *Run) Metered() string {
	switch {
	case r.Meter != nil && r.Meter.Node != "":
		return r.Meter.Node
	case r.Tested().OwnMachine():
		return r.Tested().Name
	}
	return HostNode
}
