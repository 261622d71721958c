package probe

import (
	"bytes"
	"errors"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// netdevStems are the columns of /proc/net/dev in the kernel's order (net/core/net-procfs.c,
// dev_seq_printf_stats), named as in rtnl_link_stats64. rx_dropped includes rx_missed_errors,
// rx_frame_errors includes length, overrun and CRC errors, tx_carrier_errors includes aborted, window and
// heartbeat errors.
var netdevStems = [...]struct{ stem, unit string }{
	{"rx_bytes", "bytes"}, {"rx_packets", "count"}, {"rx_errors", "count"}, {"rx_dropped", "count"},
	{"rx_fifo_errors", "count"}, {"rx_frame_errors", "count"}, {"rx_compressed", "count"},
	{"rx_multicast", "count"},
	{"tx_bytes", "bytes"}, {"tx_packets", "count"}, {"tx_errors", "count"}, {"tx_dropped", "count"},
	{"tx_fifo_errors", "count"}, {"tx_collisions", "count"}, {"tx_carrier_errors", "count"},
	{"tx_compressed", "count"},
}

// netdevLine is one device of /proc/net/dev; name points into the text.
type netdevLine struct {
	name   []byte
	values [len(netdevStems)]uint64
}

var errNetdev = errors.New("parse /proc/net/dev: want \"name: 16 numbers\" per device")

// parseNetdev reads /proc/net/dev, appending to reuse. Old kernels print no blank between the colon and the
// first number.
func parseNetdev(b []byte, reuse []netdevLine) ([]netdevLine, error) {
	lines := reuse[:0]
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
		colon := bytes.IndexByte(l, ':')
		if colon < 0 {
			continue // the two lines of headings
		}
		d := netdevLine{name: trim(l[:colon])}
		rest := l[colon+1:]
		for i := range d.values {
			var w []byte
			w, rest = word(rest)
			v, ok := number(w)
			if !ok {
				return nil, errNetdev
			}
			d.values[i] = v
		}
		lines = append(lines, d)
	}
	return lines, nil
}

func netdev(root Root) Probe {
	var metrics []record.Metric
	for _, s := range netdevStems {
		metrics = append(metrics, counter(record.ScopeNode, s.stem, s.unit,
			"of the device, from /proc/net/dev; includes what its driver adds up"))
	}
	path := root.proc("net/dev")
	return entry{name: "netdev", metrics: metrics, check: fileCheck(path, noDevices),
		open: func() (Sampler, error) { return openNetdev(path) }}
}

const noDevices = "the kernel has no network devices in /proc"

// devices is /proc/net/dev kept open, and the names that it held when they were last asked for.
type devices struct {
	f     *file
	now   []netdevLine
	names []string
}

func openDevices(path string) (*devices, error) {
	f, err := openFile(path, noDevices)
	if err != nil {
		return nil, err
	}
	d := &devices{f: f}
	if _, err := d.read(); err != nil {
		f.Close()
		return nil, err
	}
	return d, nil
}

// read reads all devices anew and tells whether they are others than before.
func (d *devices) read() (changed bool, err error) {
	b, err := d.f.read()
	if err != nil {
		return false, err
	}
	lines, err := parseNetdev(b, d.now)
	if err != nil {
		return false, err
	}
	d.now = lines
	if d.same() {
		return false, nil
	}
	d.names = make([]string, len(lines))
	for i, l := range lines {
		d.names[i] = string(l.name)
	}
	return true, nil
}

func (d *devices) same() bool {
	if len(d.now) != len(d.names) {
		return false
	}
	for i, l := range d.now {
		if string(l.name) != d.names[i] {
			return false
		}
	}
	return true
}

func (d *devices) Close() error { return d.f.Close() }

type netdevSampler struct {
	*devices
	columns []string
}

func openNetdev(path string) (Sampler, error) {
	d, err := openDevices(path)
	if err != nil {
		return nil, err
	}
	s := &netdevSampler{devices: d}
	s.describe()
	return s, nil
}

func (s *netdevSampler) describe() {
	s.columns = make([]string, 0, len(s.names)*len(netdevStems))
	for _, name := range s.names {
		for _, st := range netdevStems {
			s.columns = append(s.columns, name+"/"+st.stem)
		}
	}
}

func (s *netdevSampler) Columns() []string { return s.columns }

func (s *netdevSampler) Sample(dst []float64) error {
	changed, err := s.read()
	if err != nil {
		return err
	}
	if changed {
		s.describe()
		return ErrColumns
	}
	for i := range s.now {
		for j, v := range s.now[i].values {
			dst[i*len(netdevStems)+j] = float64(v)
		}
	}
	return nil
}
