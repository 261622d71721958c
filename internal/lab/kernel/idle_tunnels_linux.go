package kernel

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
)

// idleName begins the name of each idle tunnel's device.
const idleName = "cpidle"

// IdleTunnels counts our idle WireGuard tunnels. Each must be a device that is up and has its peer.
func IdleTunnels() (int, error) {
	names, err := idleDevices()
	if err != nil || len(names) == 0 {
		return 0, explain(err, "read idle tunnels")
	}
	c, err := wgctrl.New()
	if err != nil {
		return 0, explain(err, "read idle tunnels")
	}
	defer c.Close()
	for _, name := range names {
		l, err := find(name)
		if err != nil {
			return 0, explain(err, "read idle tunnel %s", name)
		}
		d, err := c.Device(name)
		if err != nil {
			return 0, explain(err, "read idle tunnel %s", name)
		}
		if l.Attrs().Flags&net.FlagUp == 0 || len(d.Peers) != 1 || len(d.Peers[0].AllowedIPs) == 0 {
			return 0, fmt.Errorf("read idle tunnel %s: %d peers, flags %v, want one and up", name,
				len(d.Peers), l.Attrs().Flags)
		}
	}
	return len(names), nil
}

func idleDevices() ([]string, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, idleName) {
			names = append(names, l.Attrs().Name)
		}
	}
	return names, nil
}

// SetIdleTunnels replaces our idle tunnels by n, and counts them back.
func SetIdleTunnels(n int) error {
	err := replaced(n, equal, removeIdleTunnels, func() error { return times(n, addIdleTunnel) }, IdleTunnels)
	return explain(err, "set %d idle tunnels", n)
}

func times(n int, do func(i int) error) error {
	for i := range n {
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}

// removeIdleTunnels deletes the group of devices at once: one by one, each would wait until no core can be
// using it.
func removeIdleTunnels() error {
	names, err := idleDevices()
	if err != nil || len(names) == 0 {
		return err
	}
	req := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(idleMark)))
	_, err = req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// addIdleTunnel makes one tunnel to a network of 240.0.0.0/4 (RFC 1112 §4, reserved) and one of
// 2001:db8::/32 (RFC 3849, documentation), with routes, by a peer that nobody is, at 192.0.2.0/24 (RFC
// 5737, documentation). It has no keepalive, so that it never sends.
func addIdleTunnel(i int) error {
	reportDetails()
	at := netlink.NewLinkAttrs()
	at.Name, at.Group = idleName+strconv.Itoa(i), idleMark
	dev := at.Name
	if err := netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: at}); err != nil {
		return err
	}
	v4 := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0xf000_0000+uint32(i)<<8)))
	v6 := [16]byte{0x20, 0x01, 0x0d, 0xb8}
	binary.BigEndian.PutUint32(v6[4:], 1+uint32(i))
	w := WireGuard{
		Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), 51820),
		Allowed:  []netip.Prefix{netip.PrefixFrom(v4, 24), netip.PrefixFrom(netip.AddrFrom16(v6), 64)},
	}
	defer w.Private.Clear()
	defer w.Preshared.Clear()
	for _, key := range []*Key{&w.Private, &w.Peer, &w.Preshared} {
		rand.Read(key[:]) // never fails since Go 1.24
	}
	if err := ConfigureWireGuard(dev, w); err != nil {
		return err
	}
	if err := Up(dev); err != nil {
		return err
	}
	for _, p := range w.Allowed {
		if err := AddRoute(p, netip.Addr{}, dev); err != nil {
			return err
		}
	}
	return nil
}
