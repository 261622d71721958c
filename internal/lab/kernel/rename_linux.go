package kernel

import (
	"bytes"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// DeviceOf is the name of the device with a hardware address. Devices made on top of another share its
// address; the one that was made first counts.
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

// Rename gives a device another name. Most kernels refuse that while it is up, so it goes down for the
// moment, which drops its IPv6 addresses and its routes.
func Rename(dev, name string) error {
	return withLink(dev, "rename to "+name, func(l netlink.Link) error {
		up := l.Attrs().Flags&net.FlagUp != 0
		if up {
			if err := netlink.LinkSetDown(l); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetName(l, name); err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(l)
		}
		return nil
	})
}
