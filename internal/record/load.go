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
	// For UDP, instead of packet_size: the IP lengths that each flow repeats in this order. The n-th flow
	// starts with the n-th length.
	Sizes []int `json:"packet_sizes,omitempty"`
	// payload rate of all streams together, in equal shares; 0 means full rate
	RateBps float64 `json:"rate_bps,omitempty"`
	// congestion control; several joined by "+" are assigned to the streams in turn
	Congestion string `json:"congestion,omitempty"`
	MSS        int    `json:"mss,omitempty"`
	DSCP       int    `json:"dscp,omitempty"` // 0 to 63
	// send and receive buffer of each TCP socket; 0 means tuned by the kernel
	Buffer  int    `json:"buffer_bytes,omitempty"`
	Tunnels int    `json:"tunnels,omitempty"` // stream n uses tunnel (n-1) mod Tunnels; 0 means no tunnel
	Opener  string `json:"opener"`            // "near" or "far": the end that connects
	Port    int    `json:"port"`              // first port of the listener
	Verify  bool   `json:"verify,omitempty"`
	UDPMode string `json:"udp_mode,omitempty"` // "exact" (also if absent) or "count"
	GSO     string `json:"udp_gso,omitempty"`  // "off": pass UDP datagrams to the kernel one by one
	// engine xdp: the only transmit mode allowed; "" means the best one that works
	Frames   string        `json:"frames,omitempty"`
	Sink     string        `json:"sink,omitempty"` // engine xdp: the only receive mode allowed
	Warmup   time.Duration `json:"warmup_ns"`
	Duration time.Duration `json:"duration_ns"`
	Interval time.Duration `json:"interval_ns"` // of the series; for echo, mean time between probes
	// Probes: Isochronous (also if empty) or Exponential. Flows: Exponential (also if empty) or Isochronous.
	Spacing string `json:"spacing,omitempty"`
	Tag     string `json:"tag"` // random text that identifies the packets of this trial

	// Only for engines flows and requests.
	FlowSize string `json:"flow_size,omitempty"` // level of the factor flow_size
	// new connections per second, spaced by Spacing; 0 means that each starts when the previous one has ended
	ConnectionRate float64 `json:"connection_rate_hz,omitempty"`
	RequestSize    int     `json:"request_size,omitempty"`  // bytes
	ResponseSize   int     `json:"response_size,omitempty"` // bytes

	// Limits of the applications at the endpoints, for TCP with the native engine.
	Near EndLimits `json:"near,omitzero"`
	Far  EndLimits `json:"far,omitzero"`
}

// EndLimits deliberately slows down the application at an endpoint; 0 means no limit. Rates are for all
// streams together, and buffer sizes for each socket.
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

// Modes to count UDP datagrams, and the value of Load.GSO.
const (
	UDPExact = factor.UDPExact // records number and time of each datagram
	UDPCount = factor.UDPCount // counts by length: several may be sent and received at once
	GSOOff   = "off"
)

// Modes of engine xdp to send and count frames, best first.
const (
	FramesLive   = "live"      // the kernel's test run of a BPF program
	FramesPacket = "af_packet" // AF_PACKET sockets, bypassing the qdisc
	SinkDriver   = "driver"    // an XDP program in the driver
	SinkSockets  = "sockets"
)

// SendersMargin is the time for which senders continue after the window. A receiver that reads its
// counters late at the window's end thus does not measure a pause.
const SendersMargin = 20 * time.Millisecond

// PacketSizes returns the IP lengths of the load's packets in bytes. Each flow repeats them in this order.
func (l Load) PacketSizes() []int {
	if len(l.Sizes) > 0 {
		return l.Sizes
	}
	return []int{l.PacketSize}
}

// MeanSize returns the mean of packet sizes, or 0 if there are none.
func MeanSize(sizes []int) float64 {
	sum := 0
	for _, n := range sizes {
		sum += n
	}
	return float64(sum) / float64(max(len(sizes), 1))
}

// Goodput returns the payload received in the window per second and direction, in bit/s. err reports what
// is missing to compute it.
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
