package record

// trafficFactors are the factors that describe what is sent over a path; all others describe the path
// itself.
var trafficFactors = [...]string{
	"streams", "direction", "protocol", "packet_size", "frame_size", "rate", "congestion", "engine", "copy",
}

// Path returns the factors without those of the traffic. Cells with equal paths share an idle latency:
// their packets pass the same devices with the same settings.
func (f Factors) Path() Factors {
	p := f.Clone()
	for _, name := range trafficFactors {
		delete(p, name)
	}
	return p
}
