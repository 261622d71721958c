package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// idleMark is the reqid that tells our idle policies from anyone else's, and the group of our idle tunnels'
// devices.
const idleMark = 0x63_70_69 // "cpi"

func policyDirections() []netlink.Dir {
	return []netlink.Dir{netlink.XFRM_DIR_OUT, netlink.XFRM_DIR_IN, netlink.XFRM_DIR_FWD}
}

// IdlePolicies counts the IPsec policies of ours that are loaded, per direction and version of IP; all must
// have the same number.
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
	for _, v4 := range []bool{true, false} {
		for _, d := range policyDirections() {
			if count[kind{v4, d}] != n {
				return 0, fmt.Errorf("read idle policies: %d in all, want the same number in each direction "+
					"of both versions of IP", len(list))
			}
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

// SetIdlePolicies replaces our idle policies by n per direction and version of IP, and counts them back.
// They are those of n tunnels between networks that no packet comes from or goes to; there are no security
// associations.
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
		if err := netlink.XfrmPolicyDel(&p); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("delete idle policy: %w", err)
		}
	}
	return nil
}

// addIdlePolicies makes the policies of one tunnel: between networks of 240.0.0.0/4 (RFC 1112 §4,
// reserved), and of 2001:db8::/32 (RFC 3849, documentation), none of which ends in zeros from its fifth
// byte on: the library reads that as IPv4.
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
	for _, pair := range [][2]*net.IPNet{{v4(0xf000_0000), v4(0xf800_0000)}, {v6(1), v6(0x8000_0001)}} {
		for _, d := range policyDirections() {
			local, remote := pair[0], pair[1]
			if d != netlink.XFRM_DIR_OUT {
				local, remote = remote, local
			}
			err := netlink.XfrmPolicyAdd(&netlink.XfrmPolicy{
				Src: local, Dst: remote, Dir: d,
				Tmpls: []netlink.XfrmPolicyTmpl{{
					Src: local.IP, Dst: remote.IP, Proto: netlink.XFRM_PROTO_ESP,
					Mode: netlink.XFRM_MODE_TUNNEL, Reqid: idleMark,
				}},
			})
			if err != nil {
				return fmt.Errorf("add idle policy: %w", err)
			}
		}
	}
	return nil
}
