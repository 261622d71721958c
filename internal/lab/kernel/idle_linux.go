package kernel

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// idleName is the name prefix of the devices of idle tunnels.
const idleName = "cpidle"

// IdleTunnels returns the number of our idle WireGuard tunnels. It returns an error if a device is down or
// does not have exactly one peer.
func IdleTunnels() (_ int, err error) {
	defer explained(&err, "read idle tunnels")
	names, err := idleDevices()
	if err != nil || len(names) == 0 {
		return 0, err
	}

	c, err := wgctrl.New()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for _, name := range names {
		l, err := find(name)
		var d *wgtypes.Device
		if err == nil {
			d, err = c.Device(name)
		}

		if err == nil && (l.Attrs().Flags&net.FlagUp == 0 || len(d.Peers) != 1 ||
			len(d.Peers[0].AllowedIPs) == 0) {
			err = fmt.Errorf("%d peers, flags %v, want one and up", len(d.Peers), l.Attrs().Flags)
		}

		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
	}

	return len(names), nil
}

func idleDevices() ([]string, error) {
	names, err := Devices()
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, idleName) }), err
}

// SetIdleTunnels replaces our idle tunnels with n new ones and verifies their number.
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

// removeIdleTunnels deletes all devices of the group in one request. If devices were deleted one by one, the
// kernel would wait for an RCU grace period for each.
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

// addIdleTunnel creates a tunnel that has routes to a network in 240.0.0.0/4 (reserved, RFC 1112 §4) and a
// network in 2001:db8::/32 (documentation, RFC 3849). The address of its peer is in 192.0.2.0/24
// (documentation, RFC 5737), so the peer does not exist. Because the tunnel has no keepalive, it never sends
// a packet.
func addIdleTunnel(i int) error {
	reportDetails()
	at := netlink.NewLinkAttrs()
	at.Name = idleName + strconv.Itoa(i)
	at.Group = idleMark
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
		rand.Read(key[:]) // never returns an error since Go 1.24
	}

	return inOrder(func() error { return ConfigureWireGuard(dev, w) }, func() error { return Up(dev) },
		func() error { return AddRoute(w.Allowed[0], netip.Addr{}, dev) },
		func() error { return AddRoute(w.Allowed[1], netip.Addr{}, dev) })
}

// idleMark is the reqid of our idle policies, and the device group of our idle tunnels.
const idleMark = 0x63_70_69 // "cpi"

// IdlePolicies returns the number of our idle IPsec policies for each direction and IP version. It returns an
// error if these numbers differ.
func IdlePolicies() (int, error) {
	list, err := idlePolicies()
	if err != nil {
		return 0, explain(err, "read idle policies")
	}

	type kind struct {
		v4        bool
		direction netlink.Dir
	}
	count := map[kind]int{}
	for _, p := range list {
		count[kind{p.Dst.IP.To4() != nil, p.Dir}]++
	}

	n := len(list) / 6
	for _, k := range count {
		if k != n {
			return 0, fmt.Errorf("read idle policies: %d in all, want the same number in each direction "+
				"of both versions of IP", len(list))
		}
	}

	return n, nil
}

func idlePolicies() ([]netlink.XfrmPolicy, error) {
	var ours []netlink.XfrmPolicy
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := dump(func() ([]netlink.XfrmPolicy, error) { return netlink.XfrmPolicyList(family) })
		if err != nil {
			return nil, err
		}

		for _, p := range list {
			if len(p.Tmpls) == 1 && p.Tmpls[0].Reqid == idleMark {
				ours = append(ours, p)
			}
		}
	}
	return ours, nil
}

// SetIdlePolicies replaces our idle policies with n policies for each direction and IP version, and verifies
// their number. They are the policies of n tunnels between networks whose addresses occur in no packet. The
// tunnels have no security associations.
func SetIdlePolicies(n int) error {
	err := replaced(n, equal, removeIdlePolicies, func() error { return times(n, addIdlePolicies) },
		IdlePolicies)
	return explain(err, "set %d idle policies", n)
}

func removeIdlePolicies() error {
	list, err := idlePolicies()
	if err != nil {
		return err
	}

	for _, p := range list {
		if err := ignore(netlink.XfrmPolicyDel(&p), unix.ENOENT); err != nil {
			return fmt.Errorf("delete idle policy: %w", err)
		}
	}

	return nil
}

// addIdlePolicies adds the policies of one tunnel, between networks in 240.0.0.0/4 (reserved, RFC 1112 §4)
// and between networks in 2001:db8::/32 (documentation, RFC 3849). At least one byte after the fourth in an
// IPv6 network must not be zero, because the library would otherwise treat the network as IPv4.
func addIdlePolicies(i int) error {
	v4 := func(first uint32) *net.IPNet {
		ip := binary.BigEndian.AppendUint32(nil, first+uint32(i)<<8)
		return &net.IPNet{IP: ip, Mask: net.CIDRMask(24, 32)}
	}
	v6 := func(first uint32) *net.IPNet {
		ip := make(net.IP, net.IPv6len)
		binary.BigEndian.PutUint32(ip, 0x2001_0db8)
		binary.BigEndian.PutUint32(ip[4:], first+uint32(i))
		return &net.IPNet{IP: ip, Mask: net.CIDRMask(64, 128)}
	}
	for _, n := range [][2]*net.IPNet{{v4(0xf000_0000), v4(0xf800_0000)}, {v6(1), v6(0x8000_0001)}} {
		for _, p := range tunnelPolicies(n[0], n[1], n[0].IP, n[1].IP, idleMark) {
			if err := netlink.XfrmPolicyAdd(p); err != nil {
				return fmt.Errorf("add idle policy: %w", err)
			}
		}
	}

	return nil
}
