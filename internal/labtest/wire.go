package labtest

import (
	"net/netip"
	"strconv"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Wire emulates the kernels of a fake lab. It carries packets along the chain of nodes and counts them on
// every port that they pass.
type Wire struct {
	topology record.Topology

	mu       sync.Mutex
	counters map[record.TopoPort]*kernel.LinkCounters
	tunnels  map[int]*tunnel.Counters // counters of the tunnels by slot
	innerMTU map[int]int
	mtu      map[record.TopoPort]int
	detour   map[string]bool // injected fault: nodes whose counters do not grow
	past     bool            // injected fault: packets bypass the tunnels
}

// NewWire returns the wire of a topology. All links have an MTU of 1500 bytes.
func NewWire(t record.Topology) *Wire {
	w := &Wire{
		topology: t,
		counters: map[record.TopoPort]*kernel.LinkCounters{},
		tunnels:  map[int]*tunnel.Counters{},
		innerMTU: map[int]int{},
		mtu:      map[record.TopoPort]int{},
		detour:   map[string]bool{},
	}
	for _, l := range t.Links {
		for _, p := range l.Ends {
			w.counters[p] = &kernel.LinkCounters{}
			w.mtu[p] = 1500
		}
	}
	return w
}

// Detour makes packets avoid a node, so that its counters stop growing.
func (w *Wire) Detour(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.detour[node] = true
}

// PastTunnels makes packets bypass all tunnels, so that their counters stop growing.
func (w *Wire) PastTunnels() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.past = true
}

// SetMTU sets the MTU of a port, or of all ports of a node if port is empty.
func (w *Wire) SetMTU(node, port, text string) {
	mtu, err := strconv.Atoi(text)
	if err != nil {
		return
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.mtu {
		if p.Node == node && (port == "" || p.Port == port) {
			w.mtu[p] = mtu
		}
	}
}

// slotOf returns the slot of the path that leads to an address.
func slotOf(to netip.Addr) int {
	if to.Is4() {
		b := to.As4()
		if b[0] == 198 && b[1] == 19 {
			return int(b[2]) % 64
		}
		return 0
	}

	if b := to.As16(); b[6] == 1 || b[6] == 2 {
		return int(b[7])
	}
	return 0
}

// PathMTU returns the length in bytes of the largest IP packet that the path to an address carries.
func (w *Wire) PathMTU(to netip.Addr) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	inner := w.innerMTU[slotOf(to)]
	if inner > 0 {
		return inner
	}

	least := 0
	for _, mtu := range w.mtu {
		if least == 0 || mtu < least {
			least = mtu
		}
	}

	return least
}

// Carry counts packets and bytes on the path with address to. They go from the near to the far endpoint,
// or back if up is false.
func (w *Wire) Carry(up bool, to netip.Addr, packets, bytes uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tunnels[slotOf(to)]
	if t != nil && !w.past {
		if up {
			t.Sent += bytes
		} else {
			t.Received += bytes
		}
	}

	for _, l := range w.topology.Links {
		from := l.Ends[0]
		into := l.Ends[1]
		if !up {
			from, into = into, from
		}

		if !w.detour[from.Node] {
			w.counters[from].TxPackets += packets
			w.counters[from].TxBytes += bytes
		}

		if !w.detour[into.Node] {
			w.counters[into].RxPackets += packets
			w.counters[into].RxBytes += bytes
		}
	}
}

// read returns the counters of a device.
func (w *Wire) read(node, device string) (kernel.LinkCounters, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.counters[record.TopoPort{Node: node, Port: device}]
	if c == nil {
		return kernel.LinkCounters{}, false
	}

	return *c, true
}
