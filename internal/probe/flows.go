package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Constants from linux/netfilter/nfnetlink.h, nfnetlink_conntrack.h and nf_conntrack_common.h.
const (
	getFlow       = 1<<8 | 1 // subsystem CTNETLINK, message IPCTNL_MSG_CT_GET
	newFlow       = 1 << 8   // IPCTNL_MSG_CT_NEW
	nfHeader      = 4
	ctaStatus     = 3
	statusOffload = 1 << 14 // IPS_OFFLOAD
	statusHW      = 1 << 15 // IPS_HW_OFFLOAD
)

// maxFlows is the maximum number of entries at which the connection tracking table is read. An entry takes
// about 300 bytes, and reading the table delays the fast probes.
const maxFlows = 20000

// flowCount holds the number of tracked connections, and how many of them are offloaded in software and in
// hardware.
type flowCount struct{ tracked, offloaded, hardware int }

// take adds one connection to the count. Status bits are in network byte order.
func (n *flowCount) take(kind uint16, body []byte) error {
	if kind != newFlow {
		return nil
	}

	status, err := nfNumber(body, ctaStatus)
	n.tracked++
	if status&statusOffload != 0 {
		n.offloaded++
	}

	if status&statusHW != 0 {
		n.hardware++
	}

	return err
}

// nfNumber returns a 32-bit attribute of a netfilter message, or 0 if it is missing.
func nfNumber(body []byte, attribute uint16) (number uint32, err error) {
	whole := len(body) >= nfHeader && kernel.EachAttribute(body[nfHeader:], func(kind uint16, v []byte) bool {
		if kind == attribute && len(v) >= 4 {
			number = binary.BigEndian.Uint32(v)
		}
		return true
	})
	if !whole {
		return 0, kernel.ErrNetlink
	}
	return number, nil
}

// flows counts the tracked connections that are currently offloaded. A flow table drops connections soon
// after they end, so only samples taken during the traffic show them.
func flows(root Root) Probe {
	return Probe{
		Name:  "flows",
		Scope: record.ScopeNode,
		Slow:  true,
		Rare:  true,
		Stems: []record.Metric{
			level("flows_tracked", "count",
				"connections in the conntrack list now; no value if there are more than 20,000, to limit "+
					"the cost"),
			level("flows_offloaded", "count",
				"tracked connections in a flow table, which bypass the rules (OFFLOAD)"),
			level("flows_offloaded_hw", "count", "tracked connections forwarded in hardware (HW_OFFLOAD)"),
		},
		Source: func(Options) (Sampler, error) {
			// A dump request would load the connection tracking module, so it is sent only if the module is
			// loaded.
			count, err := openFile(root.proc("sys/net/netfilter/nf_conntrack_count"),
				"connection tracking is not in use on this kernel (nf_conntrack is not loaded)")
			if err != nil {
				return nil, err
			}

			s := &flowsSampler{
				count:   count,
				none:    noFlowTables(root),
				columns: columns{"flows_tracked", "flows_offloaded", "flows_offloaded_hw"},
			}
			if s.socket, err = openDump(netlinkNetfilter, getFlow, nfHeader, "tracked "+
				"connections"); err == nil {
				err = s.socket.dump(new(flowCount).take)
			}

			return s, err
		},
	}
}

type flowsSampler struct {
	columns
	count  *file // file with the number of entries, read first to limit the cost
	socket *dumpSocket
	none   bool // the kernel has no flow tables
}

// noFlowTables reports whether the kernel was built without flow tables. Since Linux 5.14, a kernel built
// with flow tables has a sysctl for them (net/netfilter/nf_conntrack_standalone.c).
func noFlowTables(root Root) bool {
	var major, minor int
	release := readWord(root.proc("sys/kernel/osrelease"))
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return false
	}

	_, err := os.Stat(root.proc("sys/net/netfilter/nf_flowtable_tcp_timeout"))
	return (major > 5 || major == 5 && minor >= 14) && errors.Is(err, fs.ErrNotExist)
}

func (s *flowsSampler) Sample(dst []float64) error {
	fill(dst, nan)
	entries := s.count.number()
	if entries > maxFlows {
		return nil
	}

	if s.none || entries == 0 { // because a dump walks the whole hash table, even if it is empty
		dst[0], dst[1], dst[2] = entries, 0, 0
		return nil
	}

	var n flowCount
	err := s.socket.dump(n.take)
	if err == nil {
		dst[0], dst[1], dst[2] = float64(n.tracked), float64(n.offloaded), float64(n.hardware)
	}

	return err
}

func (s *flowsSampler) Close() error { return errors.Join(s.count.Close(), s.socket.Close()) }
