package probe

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// netdevStems are the columns of /proc/net/dev in the kernel's order
// (net/core/net-procfs.c, dev_seq_printf_stats), named as in
// rtnl_link_stats64. rx_dropped includes rx_missed_errors, rx_frame_errors
// includes length, overrun and CRC errors, tx_carrier_errors includes
// aborted, window and heartbeat errors.
var netdevStems = [...]struct{ stem, unit string }{
	{"rx_bytes", "bytes"}, {"rx_packets", "count"}, {"rx_errors", "count"}, {"rx_dropped", "count"},
	{"rx_fifo_errors", "count"}, {"rx_frame_errors", "count"}, {"rx_compressed", "count"}, {"rx_multicast", "count"},
	{"tx_bytes", "bytes"}, {"tx_packets", "count"}, {"tx_errors", "count"}, {"tx_dropped", "count"},
	{"tx_fifo_errors", "count"}, {"tx_collisions", "count"}, {"tx_carrier_errors", "count"}, {"tx_compressed", "count"},
}

const (
	carrierChanges = "carrier_changes"
	operUp         = "oper_up"
)

// netdevLine is one device of /proc/net/dev; name points into the text.
type netdevLine struct {
	name   []byte
	values [len(netdevStems)]uint64
}

var errNetdev = errors.New("parse /proc/net/dev: want \"name: 16 numbers\" per device")

// parseNetdev reads /proc/net/dev, appending to reuse. Old kernels print no
// blank between the colon and the first number.
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
	const why = "the kernel has no network devices in /proc"
	var metrics []record.Metric
	for _, s := range netdevStems {
		metrics = append(metrics, counter(record.ScopeNode, s.stem, s.unit,
			"of the device, from /proc/net/dev; includes what its driver adds up"))
	}
	metrics = append(metrics,
		counter(record.ScopeNode, carrierChanges, "count", "times the link came or went, from /sys/class/net"),
		level(record.ScopeNode, operUp, "ratio", "1 = operationally up, 0 = not, from /sys/class/net; absent where the driver does not say"))
	path := root.proc("net/dev")
	return entry{name: "netdev", metrics: metrics, check: fileCheck(path, why),
		open: func() (Sampler, error) { return openNetdev(root, path, why) }}
}

type netdevSampler struct {
	f       *file
	root    Root
	now     []netdevLine
	devices []netdevDevice
	columns []string
}

// netdevDevice is what the columns describe; the files are nil where sysfs
// does not show this device.
type netdevDevice struct {
	name               string
	changes, operstate *file
	count, up          float64 // as last read
	unsettled          int     // samples for which the state is still read
}

func openNetdev(root Root, path, why string) (Sampler, error) {
	f, err := openFile(path, why)
	if err != nil {
		return nil, err
	}
	s := &netdevSampler{f: f, root: root}
	if err := s.parse(); err != nil {
		f.Close()
		return nil, err
	}
	s.describe()
	return s, nil
}

func (s *netdevSampler) parse() error {
	b, err := s.f.read()
	if err != nil {
		return err
	}
	lines, err := parseNetdev(b, s.now)
	if err != nil {
		return err
	}
	s.now = lines
	return nil
}

func (s *netdevSampler) describe() {
	s.closeDevices()
	s.columns = nil
	for _, l := range s.now {
		d := netdevDevice{name: string(l.name), unsettled: settleSamples}
		for _, st := range netdevStems {
			s.columns = append(s.columns, d.name+"/"+st.stem)
		}
		if dir := s.root.device(d.name); dir != "" && d.name != "lo" { // which has no carrier
			d.changes, _ = openFile(filepath.Join(dir, carrierChanges), "")
			d.operstate, _ = openFile(filepath.Join(dir, "operstate"), "")
		}
		if d.changes != nil {
			s.columns = append(s.columns, d.name+"/"+carrierChanges)
		}
		if d.operstate != nil {
			s.columns = append(s.columns, d.name+"/"+operUp)
		}
		s.devices = append(s.devices, d)
	}
}

// device returns the sysfs folder of a device of this process' network
// namespace, or "". A sysfs mounted by another namespace shows that one's
// devices, perhaps with the same names: index and address must agree.
func (r Root) device(name string) string {
	dir := filepath.Join(r.sys("class/net"), name)
	index, err := strconv.Atoi(readWord(filepath.Join(dir, "ifindex")))
	if err != nil {
		return ""
	}
	if r.Sys != "" {
		return dir
	}
	dev, err := net.InterfaceByName(name)
	if err != nil || dev.Index != index {
		return ""
	}
	if len(dev.HardwareAddr) == 6 && dev.HardwareAddr.String() != readWord(filepath.Join(dir, "address")) {
		return ""
	}
	return dir
}

func (s *netdevSampler) Columns() []string { return s.columns }

func (s *netdevSampler) Sample(dst []float64) error {
	if err := s.parse(); err != nil {
		return err
	}
	if len(s.now) != len(s.devices) {
		s.describe()
		return ErrColumns
	}
	at := 0
	for i := range s.now {
		d, l := &s.devices[i], &s.now[i]
		if string(l.name) != d.name {
			s.describe()
			return ErrColumns
		}
		for _, v := range l.values {
			dst[at] = float64(v)
			at++
		}
		if d.changes != nil {
			dst[at] = d.carrier()
			at++
		}
		if d.operstate != nil {
			dst[at] = d.state()
			at++
		}
	}
	return nil
}

// carrier reads how often the link came or went.
func (d *netdevDevice) carrier() float64 {
	if count := d.changes.number(); count != d.count {
		d.count, d.unsettled = count, settleSamples
	}
	return d.count
}

// settleSamples is how long a state is followed after a change of carrier: the
// kernel's link watch changes it up to a second later (net/core/link_watch.c).
const settleSamples = 20

// state reads whether the device is up: only for a while after its carrier
// has changed, because the file is a good part of the probe's cost.
func (d *netdevDevice) state() float64 {
	if d.unsettled > 0 || d.changes == nil {
		d.up = d.operstate.up()
		d.unsettled--
	}
	return d.up
}

// number reads a file that holds one whole number; NaN if it cannot.
func (f *file) number() float64 {
	b, err := f.read()
	if err != nil {
		return nan
	}
	w, _ := word(b)
	v, ok := signed(w)
	if !ok {
		return nan
	}
	return v
}

// up reads an operstate (RFC 2863): "unknown" means that the driver does not
// tell.
func (f *file) up() float64 {
	b, err := f.read()
	if err != nil {
		return nan
	}
	switch w, _ := word(b); string(w) {
	case "up":
		return 1
	case "unknown", "":
		return nan
	}
	return 0
}

func (s *netdevSampler) closeDevices() {
	for _, d := range s.devices {
		d.changes.Close()
		d.operstate.Close()
	}
	s.devices = nil
}

func (s *netdevSampler) Close() error {
	s.closeDevices()
	return s.f.Close()
}

// lowerDevices lists the devices that name is stacked on, such as the parent
// of a VLAN, in sysfs' order.
func (r Root) lowerDevices(name string) []string {
	dir := r.device(name)
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var lower []string
	for _, e := range entries {
		if dev, ok := strings.CutPrefix(e.Name(), "lower_"); ok {
			lower = append(lower, dev)
		}
	}
	return lower
}
