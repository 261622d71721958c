package kernel

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// qdisc is what the kernel says of one queueing discipline, its options as they came.
type qdisc struct {
	kind           string
	handle, parent uint32
	options        []byte
	stat           QdiscStat
}

// QdiscStats reads the queueing disciplines of a device with their counters.
func QdiscStats(dev string) ([]QdiscStat, error) {
	list, err := qdiscs(dev)
	if err != nil {
		return nil, explain(err, "read queues of %s", dev)
	}
	stats := make([]QdiscStat, len(list))
	for i, q := range list {
		stats[i] = q.stat
	}
	return stats, nil
}

func qdiscs(dev string) ([]qdisc, error) {
	l, err := find(dev)
	if err != nil {
		return nil, err
	}
	index := int32(l.Attrs().Index)
	messages, err := dump(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_DUMP)
		req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: index})
		return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
	})
	if err != nil {
		return nil, err
	}
	var list []qdisc
	for _, m := range messages {
		// Kernels differ in whether they filter by device.
		if len(m) < nl.SizeofTcMsg || nl.DeserializeTcMsg(m).Ifindex != index {
			continue
		}
		q, err := parseQdisc(m)
		if err != nil {
			return nil, err
		}
		list = append(list, q)
	}
	return list, nil
}

func parseQdisc(m []byte) (qdisc, error) {
	head := nl.DeserializeTcMsg(m)
	attrs, err := nl.ParseRouteAttr(m[head.Len():])
	if err != nil {
		return qdisc{}, fmt.Errorf("parse queueing discipline: %w", err)
	}
	q := qdisc{handle: head.Handle, parent: head.Parent}
	for _, a := range attrs {
		switch a.Attr.Type {
		case nl.TCA_KIND:
			q.kind = nl.BytesToString(a.Value)
		case nl.TCA_OPTIONS:
			q.options = a.Value
		case nl.TCA_STATS2:
			if err := parseStats2(&q.stat, a.Value); err != nil {
				return qdisc{}, err
			}
		}
	}
	q.stat.Kind, q.stat.Handle, q.stat.Parent = q.kind, handle(q.handle), handle(q.parent)
	return q, nil
}

// parseStats2 reads gnet_stats_basic, gnet_stats_queue and the 64-bit packet counter of linux/gen_stats.h.
func parseStats2(s *QdiscStat, b []byte) error {
	attrs, err := nl.ParseRouteAttr(b)
	if err != nil {
		return fmt.Errorf("parse counters of a queueing discipline: %w", err)
	}
	var wide *syscall.NetlinkRouteAttr
	for i, a := range attrs {
		v := a.Value
		switch {
		case a.Attr.Type == nl.TCA_STATS_BASIC && len(v) >= 12:
			s.Bytes = binary.NativeEndian.Uint64(v)
			s.Packets = uint64(binary.NativeEndian.Uint32(v[8:]))
		case a.Attr.Type == nl.TCA_STATS_QUEUE && len(v) >= 20:
			s.Queue = uint64(binary.NativeEndian.Uint32(v))
			s.Backlog = uint64(binary.NativeEndian.Uint32(v[4:]))
			s.Drops = uint64(binary.NativeEndian.Uint32(v[8:]))
			s.Requeues = uint64(binary.NativeEndian.Uint32(v[12:]))
			s.Overlimits = uint64(binary.NativeEndian.Uint32(v[16:]))
		case a.Attr.Type == nl.TCA_STATS_PKT64 && len(v) >= 8:
			wide = &attrs[i]
		}
	}
	if wide != nil {
		s.Packets = binary.NativeEndian.Uint64(wide.Value)
	}
	return nil
}
