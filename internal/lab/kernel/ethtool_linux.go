package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unsafe"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Counters returns a device's counters.
func Counters(dev string) (LinkCounters, error) {
	l, err := find(dev)
	if err == nil && l.Attrs().Statistics == nil {
		err = ErrUnsupported
	}

	if err != nil {
		return LinkCounters{}, explain(err, "read counters of %s", dev)
	}

	s := l.Attrs().Statistics
	return LinkCounters{s.RxBytes, s.RxPackets, s.RxDropped, s.TxBytes, s.TxPackets, s.TxDropped}, nil
}

// NICStats reads the driver-specific counters of devices. It reads the names of the counters only once.
// Package ethtool would read the names each time, into a buffer of 1 MB.
type NICStats struct {
	fd    int
	names map[string][]string // names of counters by device
	reply nicStats
}

// maxStats is the maximum number of counters of a driver. It is checked because the kernel writes all
// counters even if the buffer is too small.
const maxStats = 1 << 15

const (
	statNames   = 1  // ETH_SS_STATS
	statNameLen = 32 // ETH_GSTRING_LEN
)

// nicStats corresponds to struct ethtool_stats and nicNames to struct ethtool_gstrings (linux/ethtool.h).
type nicStats struct {
	command, count uint32
	values         [maxStats]uint64
}

type nicNames struct {
	command, set, count uint32
	names               [maxStats][statNameLen]byte
}

// OpenNICStats returns a reader for devices in the network namespace of the current thread.
func OpenNICStats() (*NICStats, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, explain(err, "open a socket for drivers' counters")
	}
	return &NICStats{fd: fd, names: map[string][]string{}}, nil
}

// Read returns the names and values of the driver's counters. The slices are valid until the next call.
// Several counters may have the same name.
func (n *NICStats) Read(dev string) (names []string, values []uint64, err error) {
	names, known := n.names[dev]
	if !known {
		if names, err = n.readNames(dev); err != nil {
			return nil, nil, explain(err, "read names of driver counters of %s", dev)
		}

		n.names[dev] = names
	}

	n.reply.command, n.reply.count = unix.ETHTOOL_GSTATS, uint32(len(names))
	err = n.ask(dev, unsafe.Pointer(&n.reply))
	if err == nil && int(n.reply.count) != len(names) {
		err = errStats
	}

	if err != nil {
		delete(n.names, dev)
		return nil, nil, explain(err, "read driver counters of %s", dev)
	}

	return names, n.reply.values[:len(names)], nil
}

var errStats = errors.New("the driver has others than before")

func (n *NICStats) readNames(dev string) ([]string, error) {
	info, err := unix.IoctlGetEthtoolDrvinfo(n.fd, dev)
	if err != nil {
		return nil, absence(err)
	}

	got := nicNames{command: unix.ETHTOOL_GSTRINGS, set: statNames, count: info.N_stats}
	if info.N_stats > maxStats {
		return nil, ErrUnsupported
	}

	if err = n.ask(dev, unsafe.Pointer(&got)); err != nil || got.count != info.N_stats {
		return nil, cmp.Or(err, errStats)
	}

	names := make([]string, got.count)
	for i := range names {
		names[i] = unix.ByteSliceToString(got.names[i][:])
	}

	return names, nil
}

func (n *NICStats) ask(dev string, what unsafe.Pointer) error {
	request := struct { // corresponds to struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: what}
	copy(request.name[:unix.IFNAMSIZ-1], dev)
	// Use RawSyscall, because the call does not block, and informing Go's scheduler would take longer than
	// the call on a small machine.
	_, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(n.fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request)))
	if e != 0 {
		return absence(e)
	}

	return nil
}

// absence returns ErrAbsent if err is ENODEV.
func absence(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return ErrAbsent
	}
	return err
}

// Close closes the socket.
func (n *NICStats) Close() error { return unix.Close(n.fd) }

// PauseFrames returns a device's negotiated use of pause frames. The error is ErrUnsupported for virtual
// devices.
func PauseFrames(dev string) (Pause, error) {
	p, err := askEthtool(dev, (*ethtool.Ethtool).GetPause)
	return Pause{p.Autoneg != 0, p.RxPause != 0, p.TxPause != 0}, explain(err, "read pause frames of %s", dev)
}

func askEthtool[T any](dev string, ask func(e *ethtool.Ethtool, dev string) (T, error)) (got T, err error) {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return got, err
	}
	defer e.Close()
	growStack()
	got, err = ask(e, dev)
	return got, absence(err)
}

// growStack makes the goroutine's stack large enough for package ethtool. That package passes addresses of
// stack variables to the kernel as integers. If the stack grew and moved in between, the kernel would use the
// old addresses, and some feature names would then be unknown.
//
//go:noinline
func growStack() byte {
	var room [64 << 10]byte
	clear(room[:])
	return room[len(room)-1]
}

// rxQueues returns the number of receive queues that a device uses. If the driver does not report it, the
// device uses all its queues.
func rxQueues(a *netlink.LinkAttrs) int {
	c, err := askEthtool(a.Name, (*ethtool.Ethtool).GetChannels)
	n := int(c.RxCount + c.CombinedCount)
	if err == nil && n > 0 {
		return n
	}

	return a.NumRxQueues
}

// Features returns the offloads of a device by the kernel's names, such as tx-tcp-segmentation and rx-gro,
// and whether each is on.
func Features(dev string) (map[string]bool, error) {
	f, err := askEthtool(dev, (*ethtool.Ethtool).Features)
	return f, explain(err, "read offloads of %s", dev)
}

// FixedFeatures returns the offloads of a device that cannot be changed. On a tap, they include
// UDPSegmentation while it is off.
func FixedFeatures(dev string) (map[string]bool, error) {
	f, err := askEthtool(dev, (*ethtool.Ethtool).FeaturesWithState)
	driver := ""
	if err == nil {
		driver, err = askEthtool(dev, (*ethtool.Ethtool).DriverName)
	}

	if errors.Is(err, unix.EOPNOTSUPP) && f != nil {
		err = nil // because a device that does not report its driver is not a tap
	}

	if err != nil {
		return nil, explain(err, "read offloads of %s", dev)
	}

	fixed := map[string]bool{}
	for name, s := range f {
		if !s.Available || s.NeverChanged {
			fixed[name] = true
		}
	}

	if driver == "tun" && !f[UDPSegmentation].Active {
		fixed[UDPSegmentation] = true
	}

	return fixed, nil
}

// SetFeatures turns offloads on or off, given the kernel's names. It reads them back, because the kernel may
// accept a change without making it.
func SetFeatures(dev string, want map[string]bool) error {
	known, err := Features(dev)
	if err != nil {
		return err
	}

	for name := range want {
		if _, ok := known[name]; !ok {
			return explain(ErrUnsupported, "set offload %s of %s", name, dev)
		}
	}

	_, err = askEthtool(dev, func(e *ethtool.Ethtool, dev string) (struct{}, error) {
		return struct{}{}, e.Change(dev, want)
	})
	if errors.Is(err, unix.EINVAL) {
		err = lacks("fixed")
	}

	if err != nil {
		return explain(err, "set offloads of %s", dev)
	}

	got, err := Features(dev)
	if err != nil {
		return err
	}

	maps.DeleteFunc(got, func(name string, on bool) bool {
		wanted, named := want[name]
		return !named || on == wanted
	})
	if len(got) > 0 {
		return fmt.Errorf("set offloads of %s: %w: refused %s", dev, ErrUnsupported,
			strings.Join(slices.Sorted(maps.Keys(got)), " "))
	}

	return nil
}
