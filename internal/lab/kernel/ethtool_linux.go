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

// NICStats reads drivers' own counters. Unlike package ethtool, it reads the names only once, not at every
// reading into a buffer of 1 MB.
type NICStats struct {
	fd    int
	names map[string][]string // by device
	reply nicStats
}

// maxStats is the maximum number of a driver's counters. The kernel writes all of them, even if the buffer is
// too small.
const maxStats = 1 << 15

const (
	statNames   = 1  // ETH_SS_STATS
	statNameLen = 32 // ETH_GSTRING_LEN
)

// nicStats is struct ethtool_stats and nicNames is struct ethtool_gstrings (linux/ethtool.h).
type nicStats struct {
	command, count uint32
	values         [maxStats]uint64
}

type nicNames struct {
	command, set, count uint32
	names               [maxStats][statNameLen]byte
}

// OpenNICStats opens a reader for devices in the thread's network namespace.
func OpenNICStats() (*NICStats, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, explain(err, "open a socket for drivers' counters")
	}
	return &NICStats{fd: fd, names: map[string][]string{}}, nil
}

// Read returns the names and values of the driver's counters. They are valid until the next call. Names may
// repeat.
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
	request := struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: what}
	copy(request.name[:unix.IFNAMSIZ-1], dev)
	// RawSyscall: the call does not block, and informing Go's scheduler takes longer than the call on a small
	// machine.
	_, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(n.fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request)))
	if e != 0 {
		return absence(e)
	}

	return nil
}

// absence returns ErrAbsent for ENODEV.
func absence(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return ErrAbsent
	}
	return err
}

// Close closes the socket.
func (n *NICStats) Close() error { return unix.Close(n.fd) }

// PauseFrames returns a device's negotiated use of pause frames. It returns ErrUnsupported for virtual
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

// growStack makes the goroutine's stack large enough for package ethtool, which passes addresses of stack
// variables to the kernel as integers. If the stack grew and moved in between, the kernel would use the old
// addresses; some feature names were then unknown.
//
//go:noinline
func growStack() byte {
	var room [64 << 10]byte
	clear(room[:])
	return room[len(room)-1]
}

// rxQueues returns the number of a device's receive queues in use. If the driver does not report it, all
// queues are in use.
func rxQueues(a *netlink.LinkAttrs) int {
	c, err := askEthtool(a.Name, (*ethtool.Ethtool).GetChannels)
	n := int(c.RxCount + c.CombinedCount)
	if err == nil && n > 0 {
		return n
	}

	return a.NumRxQueues
}

// Features returns a device's offloads by the kernel's names, such as tx-tcp-segmentation and rx-gro, and
// whether each is on.
func Features(dev string) (map[string]bool, error) {
	f, err := askEthtool(dev, (*ethtool.Ethtool).Features)
	return f, explain(err, "read offloads of %s", dev)
}

// FixedFeatures returns the offloads that cannot be changed on a device. On a tap, UDPSegmentation counts as
// fixed while it is off.
func FixedFeatures(dev string) (map[string]bool, error) {
	f, err := askEthtool(dev, (*ethtool.Ethtool).FeaturesWithState)
	driver := ""
	if err == nil {
		driver, err = askEthtool(dev, (*ethtool.Ethtool).DriverName)
	}

	if errors.Is(err, unix.EOPNOTSUPP) && f != nil {
		err = nil // a device that does not report its driver is not a tap
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

// SetFeatures sets offloads by the kernel's names. It reads them back, because the kernel may accept a change
// without making it.
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
