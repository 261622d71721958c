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
	PacketSize int    `json:"packet_size,omitempty"` // IP length, UDP and echo
	// UDP, instead of packet_size: IP lengths that each flow repeats in this order, the n-th flow starting
	// with the n-th
	Sizes []int `json:"packet_sizes,omitempty"`
	// over all streams, payload bits, in equal shares; 0 = full rate
	RateBps float64 `json:"rate_bps,omitempty"`
	// of each stream; several joined by "+" are assigned in turn
	Congestion string `json:"congestion,omitempty"`
	MSS        int    `json:"mss,omitempty"`
	DSCP       int    `json:"dscp,omitempty"` // 0 to 63
	// send and receive buffer of each TCP socket; 0 = tuned by the kernel
	Buffer  int    `json:"buffer_bytes,omitempty"`
	Tunnels int    `json:"tunnels,omitempty"` // stream n uses tunnel (n-1) mod Tunnels; 0 = no tunnels
	Opener  string `json:"opener"`            // "near" or "far": who connects
	Port    int    `json:"port"`              // first port of the listening side
	Verify  bool   `json:"verify,omitempty"`
	UDPMode string `json:"udp_mode,omitempty"` // "exact" or "count"; exact if not given
	GSO     string `json:"udp_gso,omitempty"`  // "off": UDP datagrams are passed to the kernel one by one
	// engine xdp: the only permitted transmit mode; "" = the best mode that works
	Frames   string        `json:"frames,omitempty"`
	Sink     string        `json:"sink,omitempty"` // engine xdp: the only permitted receive mode, likewise
	Warmup   time.Duration `json:"warmup_ns"`
	Duration time.Duration `json:"duration_ns"`
	Interval time.Duration `json:"interval_ns"` // of the series; for echo, between probes
	// of probes: Isochronous (also if empty) or Exponential; of flows: Exponential (also if empty) or
	// Isochronous
	Spacing string `json:"spacing,omitempty"`
	Tag     string `json:"tag"` // random text that identifies this trial's packets

	// For the engines flows and requests.
	FlowSize string `json:"flow_size,omitempty"` // as the factor flow_size
	// new connections per second, spaced by Spacing; 0 = each starts when the previous one has ended
	ConnectionRate float64 `json:"connection_rate_hz,omitempty"`
	RequestSize    int     `json:"request_size,omitempty"`  // bytes
	ResponseSize   int     `json:"response_size,omitempty"` // bytes

	// Limits of the ends' applications, for TCP of the native engine.
	Near EndLimits `json:"near,omitzero"`
	Far  EndLimits `json:"far,omitzero"`
}

// EndLimits deliberately slow down the application at an end; 0 = no limit. Rates are of all streams
// together, buffers of each socket.
type EndLimits struct {
	ReadRateBps   float64 `json:"read_rate_bps,omitempty"`
	WriteRateBps  float64 `json:"write_rate_bps,omitempty"`
	ReceiveBuffer int     `json:"receive_buffer_bytes,omitempty"`
	SendBuffer    int     `json:"send_buffer_bytes,omitempty"`
}

// Limits returns the limits of a side, "near" or "far".
func (l Load) Limits(side string) EndLimits {
	if side == "far" {
		return l.Far
	}
	return l.Near
}

// Modes of counting UDP, and whether batches of datagrams are sent by UDP GSO.
const (
	UDPExact = factor.UDPExact // each datagram by its number and time
	UDPCount = factor.UDPCount // by length: several may be sent and received at once
	GSOOff   = "off"
)

// Modes in which the engine xdp sends and counts frames, best first.
const (
	FramesLive   = "live"      // the kernel's test run of a BPF program makes them
	FramesPacket = "af_packet" // a socket of AF_PACKET, bypassing the queueing discipline
	SinkDriver   = "driver"    // an XDP program
	SinkSockets  = "sockets"
)

// SendersMargin extends a load at its senders beyond the window, so that a receiver that reads its count late
// at the window's end does not see silence in between.
const SendersMargin = 20 * time.Millisecond

// PacketSizes returns the IP lengths of the load's packets, which each flow repeats in this order.
func (l Load) PacketSizes() []int {
	if len(l.Sizes) > 0 {
		return l.Sizes
	}
	return []int{l.PacketSize}
}

// MeanSize returns the mean of packet sizes; 0 if there are none.
func MeanSize(sizes []int) float64 {
	sum := 0
	for _, n := range sizes {
		sum += n
	}
	return float64(sum) / float64(max(len(sizes), 1))
}

// Goodput returns the payload per second of the window that arrived in each direction, in bit/s; err reports
// what is missing for it.
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
