package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// VLANDevice returns the name of the device that carries a tag on a port.
func VLANDevice(dev string, id int) string { return fmt.Sprintf("%s.%d", dev, id) }

// VLAN returns the IEEE 802.1Q tag that SetVLAN has set on a port, or 0 if there is none.
func VLAN(dev string) (int, error) {
	tag, err := vlanOn(dev)
	if err != nil || tag == nil {
		return 0, explain(err, "read vlan of %s", dev)
	}
	return tag.VlanId, nil
}

// SetVLAN creates a tagged device on a port and moves the addresses and routes of the port to the device. Tag
// 0 moves them back and deletes the device.
func SetVLAN(dev string, id int) error {
	tag, err := vlanOn(dev)
	if err == nil && tag != nil && tag.VlanId == id {
		return nil
	}

	if err == nil && tag != nil {
		err = inOrder(func() error { return moveAddresses(tag.Name, dev) },
			func() error { return DeleteLink(tag.Name) })
	}

	if err == nil && id != 0 {
		err = addVLAN(dev, id)
	}

	return explain(err, "set vlan %d on %s", id, dev)
}

func addVLAN(dev string, id int) error {
	parent, err := find(dev)
	if err != nil {
		return err
	}

	at := netlink.NewLinkAttrs()
	at.Name, at.ParentIndex = VLANDevice(dev, id), parent.Attrs().Index
	err = netlink.LinkAdd(&netlink.Vlan{LinkAttrs: at, VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q})
	if err != nil {
		return err
	}

	err = inOrder(func() error { return Up(at.Name) }, func() error { return moveAddresses(dev, at.Name) })
	if err != nil {
		return errors.Join(err, moveAddresses(at.Name, dev), DeleteLink(at.Name))
	}

	return nil
}

func vlanOn(dev string) (*netlink.Vlan, error) {
	parent, err := find(dev)
	if err != nil {
		return nil, err
	}

	l, err := pick(netlink.LinkList, func(l netlink.Link) bool {
		v, ok := l.(*netlink.Vlan)
		return ok && v.ParentIndex == parent.Attrs().Index && v.Name == VLANDevice(dev, v.VlanId)
	})
	tag, _ := l.(*netlink.Vlan)
	return tag, err
}

// moveAddresses moves addresses and configured routes to another device. The kernel itself recreates the
// routes to the networks of the addresses.
func moveAddresses(from, to string) error {
	addresses, err := Addresses(from)
	if err != nil {
		return err
	}

	routes, err := routesOf(from, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}

	for _, a := range addresses {
		if err := DelAddress(from, a); err != nil {
			return err
		}

		if err := AddAddress(to, a); err != nil {
			return err
		}
	}

	for _, r := range routes {
		if r.Protocol == unix.RTPROT_KERNEL || r.Protocol == unix.RTPROT_RA || r.Dst == nil {
			continue
		}

		via, _ := netip.AddrFromSlice(r.Gw)
		dst := prefixOf(r.Dst)
		if dst.IsValid() {
			if err := AddRoute(dst, via.Unmap(), to); err != nil {
				return err
			}
		}
	}

	return nil
}
