package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

// QueueAt returns the queue that want would replace, which is the root queue or the queue of want's class.
// Setting this queue again restores the device. If the queue could not be restored, the error is
// ErrUnsupported, unless setting want would leave the queue unchanged.
func QueueAt(dev string, want qdisc.Queue) (now qdisc.Queue, err error) {
	defer explained(&err, "read queue of %s", dev)
	qdiscs, classes, err := readDisciplines(dev)
	if err != nil {
		return now, err
	}

	all := describeAll(qdiscs, classes)
	for i, q := range qdiscs {
		if ownHTB(q, classes) {
			all[i].Queue.Kind = "htb"
			if all[i].Queue.Values, err = decodeHTBClass(classes[0].Options); err != nil {
				return now, err
			}
		}
	}

	var unread error
	now, err = Standing(all, func(handle uint32) bool {
		n, err := filtersAt(dev, handle)
		unread = errors.Join(unread, err)
		return n > 0
	}, want)
	if err != nil {
		err = lacks("%w", err)
	}

	return now, cmp.Or(unread, err)
}

// Disciplines returns the queues and classes of a device, and those filters of the device that affect the
// packets they match.
func Disciplines(dev string) (all []Discipline, filters []TrafficFilter, err error) {
	qdiscs, classes, err := readDisciplines(dev)
	if err == nil {
		filters, err = trafficFilters(dev, qdiscs)
	}

	return describeAll(qdiscs, classes), filters, err
}

func readDisciplines(dev string) (qdiscs, classes []Qdisc, err error) {
	if qdiscs, err = Qdiscs(dev); err == nil {
		classes, err = readClasses(dev)
	}
	return qdiscs, classes, err
}

func describeAll(qdiscs, classes []Qdisc) (all []Discipline) {
	for _, q := range qdiscs {
		all = append(all, Describe(q, false))
	}

	for _, c := range classes {
		all = append(all, Describe(c, true))
	}
	return all
}

// atParent returns the queue of class parent, or the root queue if parent is 0.
func atParent(list []Qdisc, parent uint32) (Qdisc, bool) {
	if parent == 0 {
		parent = qdisc.HandleRoot
	}

	i := slices.IndexFunc(list, func(q Qdisc) bool { return q.Parent == parent })
	if i < 0 {
		return Qdisc{}, false
	}

	return list[i], true
}

// SetRootQueue sets the root queueing discipline of a device, or the queue of want's class. If possible, it
// changes a queue of the same kind in place. Otherwise, it replaces the old queue, and the packets in that
// queue are lost. If want is the kernel's default, SetRootQueue deletes the root queue. If it cannot add a
// new root queue, the device has its default queue.
func SetRootQueue(dev string, want qdisc.Queue) error {
	list, err := Qdiscs(dev)
	if err != nil {
		return err
	}

	now, there := atParent(list, want.Parent)
	if there && string(now.Kind) == want.Kind && InPlace(want.Kind) {
		// Parameters that are not in want keep their values.
		options, err := encodeQueue(want)
		if err == nil {
			err = tc(unix.RTM_NEWQDISC, 0, dev, now.Handle, now.Parent, want.Kind, options)
		}
		return explain(err, "change queue %s of %s", want.Kind, dev)
	}

	if want.Parent != 0 {
		return explain(setLeaf(dev, now, there, want), "set queue %s of class %s of %s", want.Kind,
			qdisc.HandleText(want.Parent), dev)
	}

	options, err := encodeQueue(want)
	if err != nil {
		return explain(err, "set queue of %s", dev)
	}

	if err := clearRoot(dev); err != nil {
		return explain(err, "set queue of %s: delete the former", dev)
	}

	if now, err := QueueAt(dev, qdisc.Queue{}); err == nil && want.Handle == 0 && sameQueue(want, now) {
		return nil
	}

	root := want.Handle
	if want.Kind == "htb" {
		root = rootHandle
	}

	err = addQdisc(unix.NLM_F_EXCL, dev, root, qdisc.HandleRoot, want.Kind, options)
	if errors.Is(err, unix.EEXIST) { // because the default queue cannot be deleted, only replaced
		err = addQdisc(unix.NLM_F_REPLACE, dev, root, qdisc.HandleRoot, want.Kind, options)
	}

	if err == nil && want.Kind == "htb" {
		err = tc(unix.RTM_NEWTCLASS, unix.NLM_F_CREATE|unix.NLM_F_EXCL, dev,
			rootHandle|htbDefault, rootHandle, "htb", encodeHTBClass(want.Values))
	}

	if err != nil {
		err = errors.Join(err, clearRoot(dev))
	}

	return explain(err, "set queue %s of %s", want.Kind, dev)
}

// setLeaf replaces the queue of a class.
func setLeaf(dev string, now Qdisc, there bool, want qdisc.Queue) (err error) {
	if there {
		err = delQdisc(dev, now.Handle, now.Parent)
	}

	if err != nil || want.Kind == qdisc.DefaultLeaf {
		return err
	}

	options, err := encodeQueue(want)
	if err != nil {
		return err
	}

	return addQdisc(unix.NLM_F_EXCL, dev, want.Handle, want.Parent, want.Kind, options)
}

// OnProbeLink calls the function try with a temporary veth. This tests the kernel without affecting devices
// in use.
func OnProbeLink(try func(dev string) error) error {
	a := fmt.Sprintf("cpa%d", os.Getpid())
	b := fmt.Sprintf("cpb%d", os.Getpid())
	if err := AddVeth(VethEnd{Name: a}, VethEnd{Name: b}, 2); err != nil {
		return err
	}

	err := try(a)
	return errors.Join(err, DeleteLink(a))
}

func sameQueue(want, got qdisc.Queue) bool {
	if want.Kind != got.Kind {
		return false
	}

	for name, v := range want.Values {
		if got.Values[name] != v {
			return false
		}
	}
	return true
}

func clearRoot(dev string) error {
	list, err := Qdiscs(dev)
	q, _ := atParent(list, 0)
	if err != nil || q.Handle == 0 { // handle 0 means the default queue, which cannot be deleted
		return err
	}

	return delQdisc(dev, q.Handle, qdisc.HandleRoot)
}

func addQdisc(how int, dev string, handle, parent uint32, kind string, options []byte) error {
	err := tc(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|how, dev, handle, parent, kind, options)
	if errors.Is(err, unix.ENOENT) {
		err = lacks("it has no queue of the kind %s", kind)
	}
	return err
}

func delQdisc(dev string, handle, parent uint32) error {
	return tc(unix.RTM_DELQDISC, 0, dev, handle, parent, "", nil)
}

func tc(command, flags int, dev string, handle, parent uint32, kind string, options []byte) error {
	l, err := find(dev)
	if err != nil {
		return err
	}

	req := nl.NewNetlinkRequest(command, flags|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{
		Family:  nl.FAMILY_ALL,
		Ifindex: int32(l.Attrs().Index),
		Handle:  handle,
		Parent:  parent,
	})
	if kind != "" {
		req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)))
	}

	if options != nil {
		req.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, options))
	}

	_, err = req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// Qdiscs returns the queueing disciplines of a device, including their counters.
func Qdiscs(dev string) ([]Qdisc, error) {
	list, err := dumpQdiscs(dev, unix.RTM_GETQDISC, unix.RTM_NEWQDISC)
	return list, explain(err, "read queues of %s", dev)
}

// readClasses returns the classes of a device's queueing disciplines.
func readClasses(dev string) ([]Qdisc, error) {
	list, err := dumpQdiscs(dev, unix.RTM_GETTCLASS, unix.RTM_NEWTCLASS)
	return list, explain(err, "read classes of %s", dev)
}

// filtersAt returns the number of filters attached to a queueing discipline.
func filtersAt(dev string, handle uint32) (int, error) {
	messages, err := dumpFilters(dev, handle)
	return len(messages), err
}

// trafficFilters returns the filters of a device's queueing disciplines, including ingress and clsact.
func trafficFilters(dev string, qdiscs []Qdisc) (all []TrafficFilter, err error) {
	var parents []uint32
	for _, q := range qdiscs {
		switch {
		case q.Parent == qdisc.HandleIngress: // filters of ingress and clsact have separate parents
			parents = append(parents, ingressHandle|0xfff2, ingressHandle|0xfff3)
		case q.Handle != 0:
			parents = append(parents, q.Handle)
		}
	}

	for _, parent := range parents {
		messages, err := dumpFilters(dev, parent)
		if err != nil {
			return nil, explain(err, "read filters of %s", dev)
		}

		for _, m := range messages {
			f, index, ok := readFilter(m)
			if !ok {
				continue
			}

			if index != 0 {
				if l, err := netlink.LinkByIndex(int(index)); err == nil {
					f.To = l.Attrs().Name
				}
			}

			if !slices.Contains(all, f) {
				all = append(all, f)
			}
		}
	}

	return all, nil
}

func dumpFilters(dev string, parent uint32) ([][]byte, error) {
	l, err := find(dev)
	if err != nil {
		return nil, err
	}

	messages, err := dumpMessages(unix.NETLINK_ROUTE, unix.RTM_GETTFILTER, unix.RTM_NEWTFILTER,
		&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(l.Attrs().Index), Parent: parent})
	// Either error means that the queueing discipline does not support filters.
	return messages, ignore(err, unix.EINVAL, unix.EOPNOTSUPP)
}

// dumpQdiscs returns queueing disciplines or classes, depending on the message types question and answer.
func dumpQdiscs(dev string, question int, answer uint16) ([]Qdisc, error) {
	l, err := find(dev)
	if err != nil {
		return nil, err
	}

	index := int32(l.Attrs().Index)
	messages, err := dumpMessages(unix.NETLINK_ROUTE, question, answer,
		&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: index})
	if err != nil {
		return nil, err
	}

	var list []Qdisc
	for _, m := range messages {
		q, ok := ReadQdisc(m)
		if !ok {
			return nil, ErrNetlink
		}

		if q.Index == index { // because some kernels return those of all devices
			list = append(list, q)
		}
	}

	return list, nil
}

// leafHandle is the handle of the fq_codel in a shaper. A shaper is an htb with one class, and the fq_codel
// is the queue of this class.
const leafHandle = 10 << 16

// Shaper returns the rate in bit/s and the burst in bytes of a shaper that SetShaper created. It returns 0 if
// the root queue of the device is another queue.
func Shaper(dev string) (rate, burst uint64, err error) {
	defer explained(&err, "read shaper of %s", dev)
	list, err := Qdiscs(dev)
	if err != nil {
		return 0, 0, err
	}

	root, _ := atParent(list, 0)
	leaf, _ := atParent(list, rootHandle|htbDefault)
	if string(leaf.Kind) != "fq_codel" || leaf.Handle != leafHandle {
		return 0, 0, nil
	}

	classes, err := readClasses(dev)
	if err != nil {
		return 0, 0, err
	}

	filters, err := filtersAt(dev, root.Handle)
	if err != nil || filters > 0 || !ownHTB(root, classes) {
		return 0, 0, err
	}

	v, err := decodeHTBClass(classes[0].Options)
	return v["rate"], v["burst"], err
}

// SetShaper replaces the root queue of a device with a shaper. rate is in bit/s and burst in bytes. Packets
// in the old queue are lost. After an error, the device has its default queue.
func SetShaper(dev string, rate, burst uint64) error {
	want := qdisc.Queue{Kind: "htb", Values: map[string]uint64{"rate": rate, "burst": burst}}
	if err := SetRootQueue(dev, want); err != nil {
		return explain(err, "set shaper of %s", dev)
	}

	err := addQdisc(unix.NLM_F_EXCL, dev, leafHandle, rootHandle|htbDefault, "fq_codel", nil)
	if err != nil {
		err = errors.Join(err, clearRoot(dev))
	}

	return explain(err, "set shaper of %s", dev)
}

// ClearShaper replaces a shaper with the default queue of the device. If there is no shaper, it does nothing.
func ClearShaper(dev string) error {
	rate, _, err := Shaper(dev)
	if err == nil && rate > 0 {
		err = clearRoot(dev)
	}
	return explain(err, "delete shaper of %s", dev)
}

// Policer returns the rate in bit/s above which a device drops incoming packets. It returns 0 if there is no
// policer.
func Policer(dev string) (rate uint64, err error) {
	defer explained(&err, "read policer of %s", dev)
	list, err := Qdiscs(dev)
	if err != nil {
		return 0, err
	}

	ingress, there := atParent(list, qdisc.HandleIngress)
	if !there {
		return 0, nil
	}

	filters, err := trafficFilters(dev, []Qdisc{ingress})
	for _, f := range filters {
		if f.Kind == "matchall" && f.Action == "police" {
			return f.Rate, nil
		}
	}

	return 0, err
}

// SetPolicer makes a device drop incoming packets above rate in bit/s, but allows bursts of up to burst
// bytes. Rate 0 removes the policer. If the device has an ingress queueing discipline that is not ours,
// SetPolicer returns an error.
func SetPolicer(dev string, rate, burst uint64) error {
	now, err := Policer(dev)
	if err == nil && now > 0 {
		err = delQdisc(dev, ingressHandle, qdisc.HandleIngress)
	}

	if err != nil || rate == 0 {
		return explain(err, "delete policer of %s", dev)
	}

	return explain(addPolicer(dev, rate, burst), "set policer of %s", dev)
}

const ingressHandle = 0xffff << 16

func addPolicer(dev string, rate, burst uint64) error {
	l, err := find(dev)
	if err == nil {
		err = addQdisc(unix.NLM_F_EXCL, dev, ingressHandle, qdisc.HandleIngress, "ingress", nil)
	}

	if err != nil {
		return err
	}

	p := netlink.NewPoliceAction()
	p.Rate, p.Burst = narrow(rate/8), narrow(burst)
	p.Mtu = 64 << 10 // large enough for packets that GRO has merged
	p.ExceedAction = netlink.TC_POLICE_SHOT
	err = netlink.FilterAdd(&netlink.MatchAll{
		Actions: []netlink.Action{p},
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: l.Attrs().Index,
			Parent:    ingressHandle,
			Priority:  1,
			Protocol:  unix.ETH_P_ALL,
		},
	})
	if errors.Is(err, unix.ENOENT) {
		err = lacks("it lacks the filter matchall or the action police")
	}

	if err != nil {
		return errors.Join(err, delQdisc(dev, ingressHandle, qdisc.HandleIngress))
	}

	return nil
}
