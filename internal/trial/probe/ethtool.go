package probe

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Ways of frames.
const (
	rx = iota
	tx
)

// pauseNames are the drivers' names of the pause frames (IEEE 802.3x) that they received or sent; a driver
// has those of one line.
var pauseNames = map[string]int{
	"rx_flow_control_xon": rx, "rx_flow_control_xoff": rx, // igb, ixgbe, e1000e
	"tx_flow_control_xon": tx, "tx_flow_control_xoff": tx,
	"link_xon_rx": rx, "link_xoff_rx": rx, "link_xon_tx": tx, "link_xoff_tx": tx, // ixgbe, i40e
	"rx_pause_ctrl_phy": rx, "tx_pause_ctrl_phy": tx, // mlx5
	"rx_pause_frames": rx, "tx_pause_frames": tx, // bnxt, be2net, mvneta
	"rx_pause": rx, "tx_pause": tx, // mlx4, stmmac, atlantic
	"mac_rx_pause_frames": rx, "mac_tx_pause_frames": tx,
	"rx_pause_frame": rx, "tx_pause_frame": tx, "Rx Pause Frames": rx, "Tx Pause Frames": tx,
	"RxPause": rx, "TxPause": tx,
}

// driverWords choose among a driver's counters, of which there may be thousands: what was lost, refused or
// late, and how packets are spread over queues.
var driverWords = []string{"drop", "miss", "err", "discard", "no_buf", "nobuf", "out_of_buf", "fifo", "crc",
	"over", "pause", "flow_control", "xoff", "timeout", "reset", "busy", "stop", "full", "packets", "fail"}

// driverCounters bounds the columns of a device.
const driverCounters = 256

// pauseStems are the sums over a driver's own names.
var pauseStems = [...]string{rx: "rx_pause_frames_total", tx: "tx_pause_frames_total"}

func ethtool(Root) Probe {
	return entry{name: "ethtool", scope: record.ScopeNode, slow: true, metrics: []record.Metric{
		counter(pauseStems[rx], "count", "pause frames received: the neighbour asked this device to wait"),
		counter(pauseStems[tx], "count", "pause frames sent: this device asked its neighbour to wait"),
	}, open: openEthtool}
}

// ethtoolSampler reads the drivers' own counters. Each is a column "device/driver's name", beside the
// declared sums.
type ethtoolSampler struct {
	columns
	known []driver
}

type driver struct {
	device string
	names  []string
	pauses [len(pauseStems)][]string // names that add up to each of pauseStems
}

func openEthtool(Options) (Sampler, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	s := &ethtoolSampler{}
	for _, dev := range list {
		if dev.Flags&net.FlagLoopback != 0 {
			continue
		}
		all, err := kernel.NICStats(dev.Name)
		if errors.Is(err, kernel.ErrUnsupported) || errors.Is(err, kernel.ErrAbsent) || err == nil &&
			len(all) == 0 {
			continue
		}
		if err != nil {
			return nil, err
		}
		s.know(dev.Name, all)
	}
	if len(s.known) == 0 {
		return nil, absent("no device's driver has counters of its own")
	}
	return s, nil
}

func (s *ethtoolSampler) know(dev string, all map[string]uint64) {
	d := driver{device: dev}
	for name := range all {
		if way, ok := pauseNames[name]; ok {
			d.pauses[way] = append(d.pauses[way], name)
		}
		lower := strings.ToLower(name)
		if slices.ContainsFunc(driverWords, func(w string) bool { return strings.Contains(lower, w) }) {
			d.names = append(d.names, name)
		}
	}
	sortNatural(d.names)
	d.names = d.names[:min(len(d.names), driverCounters)]
	for _, name := range d.names {
		s.columns = append(s.columns, dev+"/"+labelled(name))
	}
	for way, names := range d.pauses {
		if len(names) > 0 {
			s.columns = append(s.columns, dev+"/"+pauseStems[way])
		}
	}
	s.known = append(s.known, d)
}

func (s *ethtoolSampler) Sample(dst []float64) error {
	fill(dst, nan)
	for _, d := range s.known {
		all, _ := kernel.NICStats(d.device) // none, and no value, while it cannot be read
		n := len(d.names)
		for i, name := range d.names {
			if v, ok := all[name]; ok {
				dst[i] = float64(v)
			}
		}
		for _, names := range d.pauses {
			if len(names) > 0 {
				dst[n] = sum(all, names)
				n++
			}
		}
		dst = dst[n:]
	}
	return nil
}

// sum adds the named counters; NaN if one is missing.
func sum(all map[string]uint64, names []string) float64 {
	total := 0.0
	for _, name := range names {
		v, ok := all[name]
		if !ok {
			return nan
		}
		total += float64(v)
	}
	return total
}

// Declared adds the drivers' own names, which no list could hold, to the declared metrics.
func (s *ethtoolSampler) Declared() []record.Metric {
	var stems []string
	for _, d := range s.known {
		for _, name := range d.names {
			if stem := labelled(name); !slices.Contains(stems, stem) {
				stems = append(stems, stem)
			}
		}
	}
	return scoped(record.ScopeNode, counters("count", "the driver's own counter, as ethtool -S shows it",
		stems...))
}

func (s *ethtoolSampler) Close() error { return nil }
