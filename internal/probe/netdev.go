package probe

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// netdevMetrics lists the columns of /proc/net/dev in the kernel's order (net/core/net-procfs.c,
// dev_seq_printf_stats), with their names in rtnl_link_stats64. rx_dropped includes rx_missed_errors.
// rx_frame_errors includes length, overrun and CRC errors. tx_carrier_errors includes aborted, window and
// heartbeat errors.
var netdevMetrics = counters("count", "the device's counter of this name, from /proc/net/dev; some are "+
	"sums of several driver counters",
	strings.Fields(`
		rx_bytes rx_packets rx_errors rx_dropped rx_fifo_errors rx_frame_errors rx_compressed rx_multicast
		tx_bytes tx_packets tx_errors tx_dropped tx_fifo_errors tx_collisions tx_carrier_errors tx_compressed
	`)...)

const netdevValues = 16

// netdevLine holds the line of a device in /proc/net/dev. name refers to the parsed buffer.
type netdevLine struct {
	name   []byte
	values [netdevValues]uint64
}

// parseNetdev parses /proc/net/dev into reuse. Old kernels print no space between the colon and the first
// number.
func parseNetdev(b []byte, reuse []netdevLine) ([]netdevLine, error) {
	lines := reuse[:0]
	for l := range bytes.Lines(b) {
		colon := bytes.IndexByte(l, ':')
		if colon < 0 {
			continue // one of two heading lines
		}

		d := netdevLine{}
		d.name, _ = word(l[:colon])
		rest := l[colon+1:]
		for i := range d.values {
			var w []byte
			w, rest = word(rest)
			v, ok := number(w)
			if !ok {
				return nil, errors.New("parse /proc/net/dev: want \"name: 16 numbers\" per device")
			}

			d.values[i] = v
		}

		lines = append(lines, d)
	}
	return lines, nil
}

// DeviceCounters parses /proc/net/dev and returns the counters of each device. The keys are the metric names
// of the netdev probe.
func DeviceCounters(text []byte) (map[string]map[string]uint64, error) {
	lines, err := parseNetdev(text, nil)
	all := map[string]map[string]uint64{}
	for _, l := range lines {
		c := map[string]uint64{}
		for i, v := range l.values {
			c[netdevMetrics[i].Name] = v
		}

		all[string(l.name)] = c
	}

	return all, err
}

func netdev(root Root) Probe {
	metrics := slices.Clone(netdevMetrics)
	metrics[0].Unit, metrics[8].Unit = "bytes", "bytes"
	return Probe{
		Name:  "netdev",
		Scope: record.ScopeNode,
		Stems: metrics,
		Source: func(Options) (Sampler, error) {
			d, err := openDevices(root)
			return &netdevSampler{devices: d}, err
		},
	}
}

// devices holds an open /proc/net/dev, and the devices that it last listed.
type devices struct {
	text[[]netdevLine]
	names []string
}

func openDevices(root Root) (devices, error) {
	t, err := openText(root.proc("net/dev"), "the kernel has no network devices in /proc", parseNetdev)
	return devices{text: t}, err
}

// renew reads the file again and reports whether the list of devices has changed.
func (d *devices) renew() (changed bool, err error) {
	if err := d.update(); err != nil || slices.EqualFunc(d.now, d.names,
		func(l netdevLine, name string) bool { return string(l.name) == name }) {
		return false, err
	}

	d.names = make([]string, len(d.now))
	for i, l := range d.now {
		d.names[i] = string(l.name)
	}

	return true, nil
}

type netdevSampler struct {
	columns
	devices
}

func (s *netdevSampler) Sample(dst []float64) error {
	changed, err := s.renew()
	if err != nil {
		return err
	}

	if changed {
		s.columns = nil
		for _, name := range s.names {
			s.add(name, netdevMetrics)
		}
		return ErrColumns
	}

	for i := range s.now {
		for j, v := range s.now[i].values {
			dst[i*netdevValues+j] = float64(v)
		}
	}

	return nil
}
