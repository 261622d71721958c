package probe

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Directions of pause frames: received and sent.
const (
	rx = iota
	tx
)

// pauseNames lists drivers' names for counters of received pause frames (IEEE 802.3x). A driver uses only the
// names on one of these lines. The counters of sent frames have the same names, with T for R.
var pauseNames = []string{
	"rx_flow_control_xon", "rx_flow_control_xoff", // igb, ixgbe, e1000e
	"link_xon_rx", "link_xoff_rx", // ixgbe, i40e
	"rx_pause_ctrl_phy", // mlx5
	"rx_pause_frames",   // bnxt, be2net, mvneta
	"rx_pause",          // mlx4, stmmac, atlantic
	"mac_rx_pause_frames", "rx_pause_frame", "Rx Pause Frames", "RxPause",
}

// driverWords selects some of a driver's counters, because there may be thousands. It selects counters of
// losses, errors and delays, and counters of packets by queue.
var driverWords = strings.Fields(`
	drop miss err discard no_buf nobuf out_of_buf fifo crc over pause flow_control xoff timeout reset busy
	stop full packets fail
`)

// driverCounters is the maximum number of counters of a device that get a column of their own.
const driverCounters = 256

// pauseStems lists the stems for the sums of the drivers' counters of pause frames.
var pauseStems = [...]string{rx: "rx_pause_frames_total", tx: "tx_pause_frames_total"}

func ethtool(Root) Probe {
	return Probe{
		Name:  "ethtool",
		Scope: record.ScopeNode,
		Slow:  true,
		Stems: []record.Metric{
			counter(pauseStems[rx], "count", "pause frames received: the neighbour asked this device to "+
				"wait"),
			counter(pauseStems[tx], "count", "pause frames sent: this device asked its neighbour to wait"),
		},
		Source: openEthtool,
	}
}

// ethtoolSampler reads the counters of drivers. In addition to the columns in pauseStems, it has a column
// "device/NAME" for each selected counter. NAME is the driver's name for the counter.
type ethtoolSampler struct {
	columns
	reader *kernel.NICStats
	known  []driver
	stems  []string // the drivers' names of the counters
}

// driver holds a device whose driver has counters. For each column, columns lists the names of the counters
// to add up.
type driver struct {
	device  string
	columns [][]string
	all     []string // all names at the last reading
	at      [][]int  // indexes of the counters by column
}

func openEthtool(Options) (Sampler, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, err
	}

	reader, err := kernel.OpenNICStats()
	if err != nil {
		return nil, err
	}

	s := &ethtoolSampler{reader: reader}
	for _, dev := range list {
		if dev.Flags&net.FlagLoopback != 0 {
			continue
		}

		names, _, err := reader.Read(dev.Name)
		if errors.Is(err, kernel.ErrUnsupported) || errors.Is(err, kernel.ErrAbsent) || err == nil &&
			len(names) == 0 {
			continue
		}

		if err != nil {
			return s, err
		}

		s.know(dev.Name, names)
	}

	if len(s.known) == 0 {
		return s, absent("no device's driver has counters of its own")
	}

	return s, nil
}

func (s *ethtoolSampler) know(dev string, all []string) {
	var own []string
	var pauses [len(pauseStems)][]string
	receiving := strings.NewReplacer("tx", "rx", "Tx", "Rx")
	for _, name := range all {
		received := receiving.Replace(name)
		if slices.Contains(pauseNames, received) {
			way := rx
			if received != name {
				way = tx
			}

			pauses[way] = append(pauses[way], name)
		}

		lower := strings.ToLower(name)
		if slices.ContainsFunc(driverWords, func(w string) bool { return strings.Contains(lower, w) }) {
			own = append(own, name)
		}
	}

	sortNatural(own)
	own = slices.Compact(own)
	d := driver{device: dev}
	for _, name := range own[:min(len(own), driverCounters)] {
		stem := labelled(name)
		s.columns = append(s.columns, dev+"/"+stem)
		if d.columns = append(d.columns, []string{name}); !slices.Contains(s.stems, stem) {
			s.stems = append(s.stems, stem)
		}
	}

	for way, names := range pauses {
		if len(names) > 0 {
			s.columns = append(s.columns, dev+"/"+pauseStems[way])
			d.columns = append(d.columns, names)
		}
	}

	s.known = append(s.known, d)
}

func (s *ethtoolSampler) Sample(dst []float64) error {
	fill(dst, nan)
	for i := range s.known {
		d := &s.known[i]
		if names, values, err := s.reader.Read(d.device); err == nil { // on an error, the values are missing
			d.find(names)
			for j, at := range d.at {
				dst[j] = sum(values, at)
			}
		}

		dst = dst[len(d.columns):]
	}
	return nil
}

// find looks up the counters of each column in the driver's list of names, which rarely changes.
func (d *driver) find(names []string) {
	if slices.Equal(names, d.all) {
		return
	}

	d.all, d.at = names, nil
	for _, wanted := range d.columns {
		var at []int
		for _, name := range wanted {
			at = append(at, slices.Index(names, name))
		}

		d.at = append(d.at, at)
	}
}

// sum adds the values at the given indexes. It returns NaN if an index is -1.
func sum(values []uint64, at []int) float64 {
	total := 0.0
	for _, i := range at {
		if i < 0 {
			return nan
		}

		total += float64(values[i])
	}
	return total
}

// Declared declares the counters under the names that the drivers use, because no fixed list could contain
// all of them.
func (s *ethtoolSampler) Declared() []record.Metric {
	return scoped(record.ScopeNode, counters("count", "the driver's own counter, as ethtool -S shows it",
		s.stems...))
}

func (s *ethtoolSampler) Close() error { return s.reader.Close() }
