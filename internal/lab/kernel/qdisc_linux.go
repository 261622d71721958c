package kernel

import (
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Qdiscs reads the queueing disciplines of a device with their counters.
func Qdiscs(dev string) ([]Qdisc, error) {
	list, err := dumpQdiscs(dev, unix.RTM_GETQDISC, unix.RTM_NEWQDISC)
	return list, explain(err, "read queues of %s", dev)
}

// dumpQdiscs asks for queueing disciplines or classes.
func dumpQdiscs(dev string, question int, answer uint16) ([]Qdisc, error) {
	l, err := find(dev)
	if err != nil {
		return nil, err
	}
	index := int32(l.Attrs().Index)
	messages, err := dump(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(question, unix.NLM_F_DUMP)
		req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: index})
		return req.Execute(unix.NETLINK_ROUTE, answer)
	})
	if err != nil {
		return nil, err
	}
	var list []Qdisc
	for _, m := range messages {
		q, ok := ReadQdisc(m)
		if !ok {
			return nil, ErrNetlink
		}
		if q.Index == index { // kernels differ in whether they filter by device
			list = append(list, q)
		}
	}
	return list, nil
}
