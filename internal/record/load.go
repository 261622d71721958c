package record

import (
	"errors"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// Load describes the traffic that an engine offers.
type Load struct {
	Protocol   string `json:"protocol"` // "tcp", "udp" or "echo" (latency probe)
	Direction  string `json:"direction"`
	Streams    int    `json:"streams"`
	IP         int    `json:"ip"`                    // 4 or 6
	PacketSize int    `json:"packet_size,omitempty"` // IP length in bytes, for UDP and echo
	// For UDP, Sizes replaces packet_size. It lists IP lengths that each flow repeats in this order. The n-th
	// flow starts with the n-th length.
	Sizes []int `json:"packet_sizes,omitempty"`
	// RateBps is the payload rate of all streams together, in equal shares; 0 means full rate.
	RateBps float64 `json:"rate_bps,omitempty"`
	// Congestion is the congestion control. Several names joined by "+" are assigned to the streams in turn.
	Congestion string `json:"congestion,omitempty"`
	MSS        int    `json:"mss,omitempty"`
	DSCP       int    `json:"dscp,omitempty"` // 0 to 63
	// Buffer is the size of the send and receive buffer of each TCP socket; 0 means that the kernel tunes it.
	Buffer  int    `json:"buffer_bytes,omitempty"`
	Tunnels int    `json:"tunnels,omitempty"` // stream n uses tunnel (n-1) mod Tunnels; 0 means no tunnel
	Opener  string `json:"opener"`            // "near" or "far": the end that opens connections
	Port    int    `json:"port"`              // first port of the listener
	Verify  bool   `json:"verify,omitempty"`
	UDPMode string `json:"udp_mode,omitempty"` // "exact" (also if the field is absent) or "count"
	GSO     string `json:"udp_gso,omitempty"`  // "off": pass UDP datagrams to the kernel one by one
	// Frames is the only transmit mode that the xdp engine may use; "" means the best mode that works.
	Frames   string        `json:"frames,omitempty"`
	Sink     string        `json:"sink,omitempty"` // the only receive mode that the xdp engine may use
	Warmup   time.Duration `json:"warmup_ns"`
	Duration time.Duration `json:"duration_ns"`
	Interval time.Duration `json:"interval_ns"` // interval of the series; for echo, mean time between probes
	// Spacing is Isochronous or Exponential. If it is empty, probes are Isochronous and flows are
	// Exponential.
	Spacing string `json:"spacing,omitempty"`
	Tag     string `json:"tag"` // random text that identifies the packets of this trial

	// This field and the next three are only for the engines flows and requests.
	FlowSize string `json:"flow_size,omitempty"` // level of the flow_size factor
	// ConnectionRate is the number of new connections per second, at intervals according to Spacing; 0 means
	// that each connection starts when the previous one has ended.
	ConnectionRate float64 `json:"connection_rate_hz,omitempty"`
	RequestSize    int     `json:"request_size,omitempty"`  // bytes
	ResponseSize   int     `json:"response_size,omitempty"` // bytes

	// Near and Far are the limits of the applications at the endpoints, for TCP with the native engine.
	Near EndLimits `json:"near,omitzero"`
	Far  EndLimits `json:"far,omitzero"`
}

// EndLimits holds limits that deliberately slow down the application at an endpoint; 0 means no limit. Rates
// apply to all streams together, and buffer sizes apply to each socket.
type EndLimits struct {
	ReadRateBps   float64 `json:"read_rate_bps,omitempty"`
	WriteRateBps  float64 `json:"write_rate_bps,omitempty"`
	ReceiveBuffer int     `json:"receive_buffer_bytes,omitempty"`
	SendBuffer    int     `json:"send_buffer_bytes,omitempty"`
}

// Limits returns the limits of the endpoint "near" or "far".
func (l Load) Limits(side string) EndLimits {
	if side == "far" {
		return l.Far
	}
	return l.Near
}

// Modes of counting UDP datagrams, and the value of Load.GSO that disables GSO.
const (
	UDPExact = factor.UDPExact // records the number and the time of each datagram
	UDPCount = factor.UDPCount // counts datagrams by length; several may be sent and received per system call
	GSOOff   = "off"
)

// These are the modes in which the xdp engine sends and counts frames, the best first.
const (
	FramesLive   = "live"      // test run of a BPF program in the kernel
	FramesPacket = "af_packet" // AF_PACKET sockets, which bypass the qdisc
	SinkDriver   = "driver"    // XDP program in the driver
	SinkSockets  = "sockets"
)

// SendersMargin is the time for which senders continue after the window. A receiver that reads its counters
// late at the window's end thus does not measure a pause.
const SendersMargin = 20 * time.Millisecond

// PacketSizes returns the IP lengths of the load's packets in bytes. Each flow repeats the lengths in this
// order.
func (l Load) PacketSizes() []int {
	if len(l.Sizes) > 0 {
		return l.Sizes
	}
	return []int{l.PacketSize}
}

// MeanSize returns the mean of the packet sizes, or 0 if sizes is empty.
func MeanSize(sizes []int) float64 {
	sum := 0
	for _, n := range sizes {
		sum += n
	}
	return float64(sum) / float64(max(len(sizes), 1))
}

// Goodput returns the rate of the payload received in the window, in bit/s, for each direction. If data is
// missing, err says what is missing.
func (t *Traffic) Goodput() (up, down float64, err error) {
	if len(t.Flows) == 0 {
		err = errors.New("the engine reported no flow")
	}

	for _, f := range t.Flows {
		if f.ReceiverNs <= 0 {
			err = errors.New("the receiver reported no window")
			continue
		}

		bps := float64(f.ReceivedBytes) * 8 / (float64(f.ReceiverNs) / 1e9)
		if f.Direction == Down {
			down += bps
		} else {
			up += bps
		}
	}
	return up, down, err
}
