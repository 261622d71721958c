package probe

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// pauseNames are the drivers' names of the pause frames (IEEE 802.3x) that they received or sent; a driver
// has those of one line.
var pauseNames = map[string]string{
	"rx_flow_control_xon": "rx", "rx_flow_control_xoff": "rx", // igb, ixgbe, e1000e
	"tx_flow_control_xon": "tx", "tx_flow_control_xoff": "tx",
	"link_xon_rx": "rx", "link_xoff_rx": "rx", "link_xon_tx": "tx", "link_xoff_tx": "tx", // ixgbe, i40e
	"rx_pause_ctrl_phy": "rx", "tx_pause_ctrl_phy": "tx", // mlx5
	"rx_pause_frames": "rx", "tx_pause_frames": "tx", // bnxt, be2net, mvneta
	"rx_pause": "rx", "tx_pause": "tx", // mlx4, stmmac, atlantic
	"mac_rx_pause_frames": "rx", "mac_tx_pause_frames": "tx",
	"rx_pause_frame": "rx", "tx_pause_frame": "tx",
	"Rx Pause Frames": "rx", "Tx Pause Frames": "tx",
	"RxPause": "rx", "TxPause": "tx",
}

// driverWords choose among a driver's counters, of which there may be thousands: what was lost, refused or
// late, and how packets are spread over queues.
var driverWords = []string{"drop", "miss", "err", "discard", "no_buf", "nobuf", "out_of_buf", "fifo", "crc",
	"over", "pause", "flow_control", "xoff", "timeout", "reset", "busy", "stop", "full", "packets", "fail"}

// driverCounters bounds the columns of a device.
const driverCounters = 256

// Stems of the sums over a driver's own names.
const (
	rxPause = "rx_pause_frames_total"
	txPause = "tx_pause_frames_total"
)

func ethtool(Root) Probe {
	metrics := []record.Metric{
		counter(record.ScopeNode, rxPause, "count",
			"pause frames received: the neighbour asked this device to wait"),
		counter(record.ScopeNode, txPause, "count",
			"pause frames sent: this device asked its neighbour to wait"),
	}
	open := func() (Sampler, error) { return openEthtool(deviceNames, kernel.NICStats) }
	return entry{name: "ethtool", slow: true, metrics: metrics, open: open}
}

// ethtoolSampler reads the drivers' own counters. Each is a column "device/driver's name", beside the
// declared sums.
type ethtoolSampler struct {
	devices func() ([]string, error)
	stats   func(device string) (map[string]uint64, error)
	known   []driver
	columns []string
}

type driver struct {
	device   string
	names    []string
	receives []string // names that add up to rxPause
	sends    []string
}

func deviceNames() ([]string, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, dev := range list {
		if dev.Flags&net.FlagLoopback == 0 {
			names = append(names, dev.Name)
		}
	}
	return names, nil
}

func openEthtool(devices func() ([]string, error), stats func(string) (map[string]uint64, error)) (Sampler,
	error) {
	s := &ethtoolSampler{devices: devices, stats: stats}
	list, err := devices()
	if err != nil {
		return nil, err
	}
	for _, dev := range list {
		all, err := stats(dev)
		if errors.Is(err, kernel.ErrUnsupported) || errors.Is(err, kernel.ErrAbsent) || err == nil &&
			len(all) == 0 {
			continue
		}
		if err != nil {
			return nil, err
		}
		s.add(dev, all)
	}
	if len(s.known) == 0 {
		return nil, absent("no device's driver has counters of its own")
	}
	return s, nil
}

func (s *ethtoolSampler) add(dev string, all map[string]uint64) {
	d := driver{device: dev}
	for name := range all {
		switch pauseNames[name] {
		case "rx":
			d.receives = append(d.receives, name)
		case "tx":
			d.sends = append(d.sends, name)
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
	if len(d.receives) > 0 {
		s.columns = append(s.columns, dev+"/"+rxPause)
	}
	if len(d.sends) > 0 {
		s.columns = append(s.columns, dev+"/"+txPause)
	}
	s.known = append(s.known, d)
}

func (s *ethtoolSampler) Columns() []string { return s.columns }

func (s *ethtoolSampler) Sample(dst []float64) error {
	fill(dst, nan)
	for _, d := range s.known {
		all, err := s.stats(d.device)
		n := len(d.names)
		if err == nil {
			for i, name := range d.names {
				if v, ok := all[name]; ok {
					dst[i] = float64(v)
				}
			}
		}
		for _, names := range [][]string{d.receives, d.sends} {
			if len(names) == 0 {
				continue
			}
			dst[n] = sum(all, names)
			n++
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
	seen := map[string]bool{}
	var metrics []record.Metric
	for _, d := range s.known {
		for _, name := range d.names {
			if stem := labelled(name); !seen[stem] {
				seen[stem] = true
				metrics = append(metrics, counter(record.ScopeNode, stem, "count",
					"the driver's own counter, as ethtool -S shows it"))
			}
		}
	}
	return metrics
}

func (s *ethtoolSampler) Close() error { return nil }
