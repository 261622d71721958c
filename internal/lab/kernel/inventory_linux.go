package kernel

import (
	"fmt"
	"net"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Links returns the devices of the network namespace in the order in which they were created.
func Links() ([]Link, error) {
	list, err := dump(netlink.LinkList)
	if err != nil {
		return nil, explain(err, "list devices")
	}

	names := map[int]string{}
	for _, l := range list {
		names[l.Attrs().Index] = l.Attrs().Name
	}

	var out []Link
	for _, l := range list {
		a := l.Attrs()
		link := Link{
			Name:     a.Name,
			Kind:     l.Type(),
			Index:    a.Index,
			Master:   names[a.MasterIndex],
			MTU:      a.MTU,
			Up:       a.Flags&net.FlagUp != 0,
			Loopback: a.Flags&net.FlagLoopback != 0,
		}
		if a.ParentIndex != a.Index && a.NetNsID < 0 {
			link.Lower = names[a.ParentIndex]
		}

		switch link.Kind {
		case "device":
			link.Kind = "" // because the kernel reports no kind
		case "tuntap":
			link.Kind = "tun"
		}

		out = append(out, link)
	}

	return out, nil
}

// These are message types of linux/netfilter/nf_tables.h.
const (
	nftGetChain     = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETCHAIN
	nftGetRule      = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE
	nftGetElements  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETSETELEM
	nftGetFlowtable = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETFLOWTABLE
)

// DumpFilter reads the chains, rules and flow tables in all nftables tables of the network namespace. Each
// message consists of a struct nfgenmsg and the attributes of linux/netfilter/nf_tables.h.
func DumpFilter() (d FilterDump, err error) {
	for _, part := range []struct {
		question int
		to       *[][]byte
	}{{nftGetChain, &d.Chains}, {nftGetRule, &d.Rules}, {nftGetFlowtable, &d.Flowtables}} {
		*part.to, err = dumpMessages(unix.NETLINK_NETFILTER, part.question, 0,
			&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC})
		// Linux before 4.16 does not support flow tables.
		if err != nil && part.question != nftGetFlowtable {
			return FilterDump{}, explain(filterError(err), "read packet filter")
		}
	}
	return d, nil
}

// DumpSet reads the elements of an nftables set. family is the family of the set's table (NFPROTO_*).
func DumpSet(family uint8, table, set string) ([][]byte, error) {
	messages, err := dumpMessages(unix.NETLINK_NETFILTER, nftGetElements, 0,
		&nl.Nfgenmsg{NfgenFamily: family},
		nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_TABLE, nl.ZeroTerminated(table)),
		nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_SET, nl.ZeroTerminated(set)))
	return messages, explain(filterError(err), "read set %s of table %s", set, table)
}

// LegacyEntries returns the number of entries in a table of iptables-legacy. It does not count the policies
// of the chains. The end of a user-defined chain counts as an entry.
func LegacyEntries(ipv6 bool, table string) (int, error) {
	family := unix.AF_INET
	level := unix.SOL_IP
	if ipv6 {
		family = unix.AF_INET6
		level = unix.SOL_IPV6
	}

	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return 0, fmt.Errorf("read iptables table %s: %w", table, err)
	}
	defer unix.Close(fd)
	const getInfo = 64 // IPT_SO_GET_INFO and IP6T_SO_GET_INFO
	var info struct {  // corresponds to struct ipt_getinfo
		name             [32]byte
		hooks            uint32
		entry, underflow [5]uint32
		entries, size    uint32
	}
	copy(info.name[:len(info.name)-1], table)
	size := uint32(unsafe.Sizeof(info))
	_, _, no := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), getInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if no != 0 {
		return 0, fmt.Errorf("read iptables table %s: %w", table, no)
	}

	policies := 1 // starts at 1 because the end of the table is an entry, too
	for hook := range 5 {
		policies += int(info.hooks >> hook & 1)
	}

	return max(0, int(info.entries)-policies), nil
}

// ReplayWindows returns the replay window of each IPsec association in packets. 0 means that the window is
// disabled. ReplayWindows overwrites the kernel's messages after use, because they contain keys.
func ReplayWindows() ([]int, error) {
	messages, err := dumpMessages(unix.NETLINK_XFRM, nl.XFRM_MSG_GETSA, nl.XFRM_MSG_NEWSA)
	if err != nil {
		return nil, explain(err, "list IPsec associations")
	}

	var out []int
	for _, m := range messages {
		if len(m) < nl.SizeofXfrmUsersaInfo {
			return nil, ErrNetlink
		}

		window := int(nl.DeserializeXfrmUsersaInfo(m).ReplayWindow)
		EachAttribute(m[nl.SizeofXfrmUsersaInfo:], func(kind uint16, v []byte) bool {
			if kind == nl.XFRMA_REPLAY_ESN_VAL && len(v) >= 24 { // struct xfrm_replay_state_esn
				window = int(word(v, 5))
			}
			return true
		})
		clear(m)
		out = append(out, window)
	}

	return out, nil
}
