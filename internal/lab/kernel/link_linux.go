package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AddVeth creates a virtual link. It creates each end directly in its network namespace, so that no end
// appears in another one for a moment. queues is the number of transmit queues and of receive queues of each
// end.
func AddVeth(a, b VethEnd, queues int) error {
	reportDetails()
	// Refer to our namespace by the ID of this thread, because the main thread of the process may be in
	// another namespace, and /proc may be missing.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	at := netlink.NewLinkAttrs()
	at.Name = a.Name
	at.NumTxQueues, at.NumRxQueues = queues, queues
	at.Namespace = namespace(a.PID)
	v := netlink.NewVeth(at)
	v.PeerName = b.Name
	v.PeerNumTxQueues, v.PeerNumRxQueues = uint32(queues), uint32(queues)
	v.PeerNamespace = namespace(b.PID)
	return explain(netlink.LinkAdd(v), "add virtual link %s – %s", a.Name, b.Name)
}

func namespace(pid int) netlink.NsPid {
	if pid == 0 {
		return netlink.NsPid(unix.Gettid())
	}
	return netlink.NsPid(pid)
}

// Up brings a device up.
func Up(dev string) error { return withLink(dev, "set up", netlink.LinkSetUp) }

// Down takes a device down.
func Down(dev string) error { return withLink(dev, "set down", netlink.LinkSetDown) }

// IsUp reports whether a device is administratively up. The device may still have no carrier.
func IsUp(dev string) (bool, error) {
	return attribute(dev, "state", func(a *netlink.LinkAttrs) bool { return a.Flags&net.FlagUp != 0 })
}

// DeleteLink deletes a device. It is not an error if the device does not exist.
func DeleteLink(dev string) error {
	return ignore(withLink(dev, "delete", netlink.LinkDel), ErrAbsent, unix.ENODEV)
}

// SetMTU sets the MTU of a device in bytes. It also sets the MTU of a tagged device created by SetVLAN. The
// kernel lowers the MTU of such a device together with the MTU of its port, but does not raise it.
func SetMTU(dev string, mtu int) error {
	return withLink(dev, fmt.Sprintf("set mtu %d of", mtu), func(l netlink.Link) error {
		if err := netlink.LinkSetMTU(l, mtu); err != nil {
			return err
		}

		tag, err := vlanOn(dev)
		if err != nil || tag == nil {
			return err
		}

		return netlink.LinkSetMTU(tag, mtu)
	})
}

// MTU returns a device's MTU in bytes.
func MTU(dev string) (int, error) {
	return attribute(dev, "mtu", func(a *netlink.LinkAttrs) int { return a.MTU })
}

// attribute returns an attribute of a device.
func attribute[T any](dev, what string, of func(*netlink.LinkAttrs) T) (value T, err error) {
	l, err := find(dev)
	if err != nil {
		return value, explain(err, "read %s of %s", what, dev)
	}
	return of(l.Attrs()), nil
}

// SetTxQueueLen sets the length of a device's transmit queue in packets. This length is the default limit of
// queueing disciplines.
func SetTxQueueLen(dev string, packets int) error {
	return withLink(dev, fmt.Sprintf("set txqueuelen %d of", packets), func(l netlink.Link) error {
		return netlink.LinkSetTxQLen(l, packets)
	})
}

// TxQueueLen returns a device's transmit queue length in packets.
func TxQueueLen(dev string) (int, error) {
	return attribute(dev, "txqueuelen", func(a *netlink.LinkAttrs) int { return a.TxQLen })
}

// TxQueues returns the number of a device's transmit queues.
func TxQueues(dev string) (int, error) {
	return attribute(dev, "number of queues", func(a *netlink.LinkAttrs) int { return a.NumTxQueues })
}

// Identity returns the index of a device and its kind, such as "veth", or "device" if the kernel reports no
// kind.
func Identity(dev string) (index int, kind string, err error) {
	l, err := find(dev)
	if err != nil {
		return 0, "", explain(err, "look for device %s", dev)
	}
	return l.Attrs().Index, l.Type(), nil
}

// Exists reports whether a device with the given name exists.
func Exists(dev string) (bool, error) {
	_, err := find(dev)
	if errors.Is(err, ErrAbsent) {
		return false, nil
	}
	return err == nil, explain(err, "look for device %s", dev)
}

// Devices returns the names of all devices in the order in which they were created.
func Devices() ([]string, error) {
	links, err := dump(netlink.LinkList)
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}

	return names, explain(err, "list devices")
}

func withLink(dev, verb string, do func(netlink.Link) error) error {
	l, err := find(dev)
	if err == nil {
		err = do(l)
	}
	return explain(err, "%s %s", verb, dev)
}

// DeviceOf returns the name of the device with the given hardware address. If several devices have the
// address, it returns the one created first, because a stacked device has the address of the device below it.
func DeviceOf(mac net.HardwareAddr) (string, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return "", explain(err, "list devices")
	}

	var first *netlink.LinkAttrs
	for _, l := range links {
		a := l.Attrs()
		if bytes.Equal(a.HardwareAddr, mac) && (first == nil || a.Index < first.Index) {
			first = a
		}
	}

	if first == nil {
		return "", fmt.Errorf("device with hardware address %s %w", mac, ErrAbsent)
	}

	return first.Name, nil
}

// Rename renames a device. Most kernels refuse to rename a device that is up, so Rename takes it down
// briefly, and the device loses its IPv6 addresses and routes.
func Rename(dev, name string) error {
	return withLink(dev, "rename to "+name, func(l netlink.Link) error {
		named := func() error { return netlink.LinkSetName(l, name) }
		if l.Attrs().Flags&net.FlagUp == 0 {
			return named()
		}
		return inOrder(func() error { return netlink.LinkSetDown(l) }, named,
			func() error { return netlink.LinkSetUp(l) })
	})
}

// SpreadQueues assigns CPUs to the transmit queues of a veth that has several queues, as drivers of NICs do
// (XPS, Documentation/networking/scaling.rst). Otherwise, the kernel would choose a queue by a hash of the
// flow, and CPUs would contend for the lock of the queue. SpreadQueues requires root and a /sys that was
// mounted in the network namespace.
func SpreadQueues(dev string) error {
	l, err := find(dev)
	if err != nil {
		return explain(err, "spread queues of %s", dev)
	}

	if l.Type() != "veth" || l.Attrs().NumTxQueues < 2 {
		return nil
	}

	_, cores, err := OnlineCPUs()
	if err != nil {
		return err
	}

	queues := l.Attrs().NumTxQueues
	for q := range queues {
		words := make([]uint32, (cores+31)/32) // because the kernel expects the most significant word first
		for c := q; c < cores; c += queues {
			words[len(words)-1-c/32] |= 1 << (c % 32)
		}

		mask := strings.Trim(strings.ReplaceAll(fmt.Sprintf("%08x", words), " ", ","), "[]")
		file := fmt.Sprintf("/sys/class/net/%s/queues/tx-%d/xps_cpus", dev, q)
		err := os.WriteFile(file, []byte(mask), 0o600)
		if errors.Is(err, fs.ErrNotExist) { // a /sys that was mounted in another namespace lacks the file
			err = fs.ErrPermission
		}

		if err != nil {
			return explain(bare(err), "let queue %d of %s serve the CPUs %s", q, dev, mask)
		}
	}

	return nil
}

// AddTap creates a tap for a virtual machine and returns the file for its other end. The tap exists until no
// process has the file open. A virtio header precedes each packet in the file (IFF_VNET_HDR).
func AddTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("add tap %s: open /dev/net/tun: %w", name, err)
	}

	r, err := unix.NewIfreq(name)
	if err == nil {
		r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, r)
	}

	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("add tap %s: %w", name, err)
	}

	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

// MoveLink moves a device to the network namespace of a process. The device keeps its name and loses its
// addresses.
func MoveLink(dev string, pid int) error {
	return withLink(dev, fmt.Sprintf("move to the namespace of %d", pid), func(l netlink.Link) error {
		return netlink.LinkSetNsPid(l, pid)
	})
}

// AddBridge creates a bridge with the given ports, and brings all of them up.
func AddBridge(name string, ports ...string) error {
	at := netlink.NewLinkAttrs()
	at.Name = name
	bridge := &netlink.Bridge{LinkAttrs: at} // LinkAdd sets the index in bridge
	err := netlink.LinkAdd(bridge)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = lacks("the kernel has no bridges")
	}

	if err != nil {
		return explain(err, "add bridge %s", name)
	}

	for _, port := range ports {
		if err := withLink(port, "join to "+name, func(l netlink.Link) error {
			return inOrder(func() error { return netlink.LinkSetMaster(l, bridge) },
				func() error { return netlink.LinkSetUp(l) })
		}); err != nil {
			return err
		}
	}

	return Up(name)
}
