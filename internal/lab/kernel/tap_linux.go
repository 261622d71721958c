package kernel

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AddTap makes a layer-2 device whose other end is the returned file, for a virtual machine. It lives for
// as long as the file is open somewhere. The file carries the virtio header (IFF_VNET_HDR) with each
// packet.
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

// MoveLink puts a device into the network namespace of a process. It keeps its name and loses its
// addresses.
func MoveLink(dev string, pid int) error {
	return withLink(dev, fmt.Sprintf("move to the namespace of %d", pid), func(l netlink.Link) error {
		return netlink.LinkSetNsPid(l, pid)
	})
}

// AddBridge joins devices in layer 2 and sets all of them up.
func AddBridge(name string, ports ...string) error {
	at := netlink.NewLinkAttrs()
	at.Name = name
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: at}); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = fmt.Errorf("%w: the kernel has no bridges", ErrUnsupported)
		}
		return explain(err, "add bridge %s", name)
	}
	bridge, err := find(name)
	if err != nil {
		return explain(err, "add bridge %s", name)
	}
	for _, port := range ports {
		err := withLink(port, "join to "+name, func(l netlink.Link) error {
			return netlink.LinkSetMaster(l,
				bridge)
		})
		if err == nil {
			err = Up(port)
		}
		if err != nil {
			return err
		}
	}
	return Up(name)
}
