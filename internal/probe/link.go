package probe

import (
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

const (
	carrierChanges = "carrier_changes"
	operUp         = "oper_up"
)

func link(root Root) Probe {
	return Probe{
		Name:  "link",
		Scope: record.ScopeNode,
		Slow:  true,
		Stems: []record.Metric{
			counter(carrierChanges, "count", "times that the link went up or down, from /sys/class/net"),
			level(operUp, "ratio",
				"1 = operationally up, 0 = not, from /sys/class/net; absent if the driver does not "+
					"report it"),
		},
		Source: func(Options) (Sampler, error) {
			d, err := openDevices(root)
			return &linkSampler{devices: d, root: root}, err
		},
	}
}

// linkSampler reads sysfs files of each device. It reads /proc/net/dev to notice devices that appear or
// vanish. If a device is recreated with the same name, the open files of the old device no longer have a
// value.
type linkSampler struct {
	columns
	devices
	root Root
	list []linkFile // files in the order of their columns
}

// linkFile is a file in the directory of a device.
type linkFile struct {
	*file
	read   func(*file) float64
	valued bool // the last reading had a value
}

func (s *linkSampler) describe() {
	s.closeFiles()
	s.columns, s.list = nil, nil
	for _, name := range s.names {
		dir := s.root.device(name)
		if dir == "" || name == "lo" { // lo has no carrier
			continue
		}

		for _, source := range []struct {
			file, stem string
			read       func(*file) float64
		}{
			{carrierChanges, carrierChanges, (*file).number},
			{"operstate", operUp, (*file).up},
		} {
			if f, err := openFile(filepath.Join(dir, source.file), ""); err == nil {
				s.columns = append(s.columns, name+"/"+source.stem)
				s.list = append(s.list, linkFile{f, source.read, false})
			}
		}
	}
}

func (s *linkSampler) Sample(dst []float64) error {
	changed, err := s.renew()
	if err == nil && !changed && s.readLinks(dst) {
		changed, s.names = true, nil
		_, err = s.renew()
	}

	if err != nil {
		return err
	}

	if changed {
		s.describe()
		return ErrColumns
	}

	return nil
}

// readLinks fills dst and reports whether a column that had a value has none now.
func (s *linkSampler) readLinks(dst []float64) (lost bool) {
	for i := range s.list {
		f := &s.list[i]
		dst[i] = f.read(f.file)
		lost = lost || f.valued && math.IsNaN(dst[i])
		f.valued = !math.IsNaN(dst[i])
	}
	return lost
}

func (s *linkSampler) closeFiles() {
	for _, f := range s.list {
		f.Close()
	}
}

func (s *linkSampler) Close() error {
	s.closeFiles()
	return s.devices.Close()
}

// up reads an operstate (RFC 2863) as 1 or 0. It returns NaN for "unknown", which means that the driver
// does not report it.
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

// device returns the sysfs directory of a device in this network namespace, or "". A sysfs mounted in another
// namespace shows the devices of that namespace, possibly with the same names. device therefore compares the
// index and the address.
func (root Root) device(name string) string {
	dir := filepath.Join(root.sys("class/net"), name)
	index, err := strconv.Atoi(readWord(filepath.Join(dir, "ifindex")))
	if err != nil {
		return ""
	}

	if root.Sys != "" {
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

// lowerDevices lists the devices below a device, such as the parent of a VLAN, in sysfs order. dir is the
// device's directory.
func lowerDevices(dir string) (lower []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if dev, ok := strings.CutPrefix(e.Name(), "lower_"); ok {
			lower = append(lower, dev)
		}
	}
	return lower
}
