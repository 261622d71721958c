package kernel

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const rootHandle = 1 << 16 // 1:, for kinds whose classes must name it

// RootQueue reads a device's root queueing discipline. A kind that could not be made again from what is
// read is an error that matches ErrUnsupported.
func RootQueue(dev string) (Queue, error) {
	q, err := rootQueue(dev)
	return q, explain(err, "read queue of %s", dev)
}

func rootQueue(dev string) (Queue, error) {
	q, err := pick(func() ([]Qdisc, error) { return Qdiscs(dev) }, isRoot)
	switch {
	case err != nil:
		return Queue{}, err
	case q.Parent != HandleRoot: // a device that is down may show none: it will get the default
		return Queue{Kind: "noqueue", Values: map[string]uint64{}}, nil
	case string(q.Kind) == "htb":
		v, err := htbClass(dev)
		return Queue{"htb", v}, err
	}
	return decodeQueue(string(q.Kind), q.Options)
}

func isRoot(q Qdisc) bool { return q.Parent == HandleRoot }

// SetRootQueue replaces a device's root queueing discipline; packets waiting in the former one are lost.
// Where the kernel's default for the device is what is wanted, the default itself is put back. An error
// leaves the device with its default.
func SetRootQueue(dev string, want Queue) error {
	options, err := want.encode()
	if err != nil {
		return explain(err, "set queue of %s", dev)
	}
	if err := clearRoot(dev); err != nil {
		return explain(err, "set queue of %s: delete the former", dev)
	}
	if now, err := rootQueue(dev); err == nil && sameQueue(want, now) {
		return nil
	}
	root := uint32(0)
	if want.Kind == "htb" {
		root = rootHandle
	}
	err = addQdisc(unix.NLM_F_EXCL, dev, root, HandleRoot, want.Kind, options)
	if errors.Is(err, unix.EEXIST) { // the default, which cannot be deleted, only replaced
		err = addQdisc(unix.NLM_F_REPLACE, dev, root, HandleRoot, want.Kind, options)
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

// ProbeQueue tries a queue on a virtual link made for the purpose and deleted again, so that nothing in use
// is touched.
func ProbeQueue(q Queue) error {
	return onProbeLink("cpq", func(dev string) error { return SetRootQueue(dev, q) })
}

func onProbeLink(prefix string, try func(dev string) error) error {
	a, b := fmt.Sprintf("%s%da", prefix, os.Getpid()), fmt.Sprintf("%s%db", prefix, os.Getpid())
	if err := AddVeth(VethEnd{Name: a}, VethEnd{Name: b}, 2); err != nil {
		return err
	}
	err := try(a)
	return errors.Join(err, DeleteLink(a))
}

func sameQueue(want, got Queue) bool {
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
	q, err := pick(func() ([]Qdisc, error) { return Qdiscs(dev) }, isRoot)
	if err != nil || q.Handle == 0 { // 0: is the default, which nobody can delete
		return err
	}
	return delQdisc(dev, q.Handle, HandleRoot)
}

func addQdisc(how int, dev string, handle, parent uint32, kind string, options []byte) error {
	err := tc(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|how, dev, handle, parent, kind, options)
	if errors.Is(err, unix.ENOENT) {
		err = fmt.Errorf("%w: it has no queue of the kind %s", ErrUnsupported, kind)
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
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(l.Attrs().Index), Handle: handle,
		Parent: parent})
	if kind != "" {
		req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)))
	}
	if options != nil {
		req.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, options))
	}
	_, err = req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// htbClass reads the one class of an htb such as SetRootQueue makes.
func htbClass(dev string) (map[string]uint64, error) {
	list, err := dumpQdiscs(dev, unix.RTM_GETTCLASS, unix.RTM_NEWTCLASS)
	if err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, fmt.Errorf("htb with %d classes: %w: only one with one class could be restored",
			len(list), ErrUnsupported)
	}
	return decodeHTBClass(list[0].Options)
}

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

// A shaper is an htb with one class, and fq_codel as the queue of that.
const leafHandle = 10 << 16

// Shaper reads the rate in bits per second of the shaper that is a device's root queue; 0 if another queue
// is.
func Shaper(dev string) (uint64, error) {
	rate, err := shaper(dev)
	return rate, explain(err, "read shaper of %s", dev)
}

func shaper(dev string) (uint64, error) {
	list, err := Qdiscs(dev)
	if err != nil {
		return 0, err
	}
	var root, leaf bool
	for _, q := range list {
		root = root || q.Parent == HandleRoot && string(q.Kind) == "htb" && q.Handle == rootHandle
		leaf = leaf || q.Parent == rootHandle|htbDefault && string(q.Kind) == "fq_codel" &&
			q.Handle == leafHandle
	}
	if !root || !leaf {
		return 0, nil
	}
	v, err := htbClass(dev)
	return v["rate"], err
}

// SetShaper makes a shaper of a device's root queue; packets waiting there are lost. The rate is in bits
// per second, the burst in bytes. An error leaves the device with its default.
func SetShaper(dev string, rate, burst uint64) error {
	want := Queue{"htb", map[string]uint64{"rate": rate, "burst": burst}}
	if err := SetRootQueue(dev, want); err != nil {
		return explain(err, "set shaper of %s", dev)
	}
	err := addQdisc(unix.NLM_F_EXCL, dev, leafHandle, rootHandle|htbDefault, "fq_codel", nil)
	if err != nil {
		err = errors.Join(err, clearRoot(dev))
	}
	return explain(err, "set shaper of %s", dev)
}

// ClearShaper puts a device's default queue in the place of a shaper.
func ClearShaper(dev string) error {
	rate, err := shaper(dev)
	if err == nil && rate > 0 {
		err = clearRoot(dev)
	}
	return explain(err, "delete shaper of %s", dev)
}

// ProbeShaper tries a shaper on a virtual link made for the purpose.
func ProbeShaper() error {
	return onProbeLink("cps", func(dev string) error { return SetShaper(dev, 1e9, 128<<10) })
}

// Policer reads the rate in bits per second above which a device drops what arrives; 0 without our policer.
func Policer(dev string) (uint64, error) {
	rate, err := policer(dev)
	return rate, explain(err, "read policer of %s", dev)
}

func policer(dev string) (uint64, error) {
	l, err := find(dev)
	if err != nil {
		return 0, err
	}
	q, err := pick(func() ([]Qdisc, error) { return Qdiscs(dev) },
		func(q Qdisc) bool { return q.Parent == HandleIngress })
	if err != nil || q.Parent == 0 {
		return 0, err
	}
	filters, err := dump(func() ([]netlink.Filter, error) { return netlink.FilterList(l, q.Handle) })
	if err != nil {
		return 0, err
	}
	for _, f := range filters {
		if m, ok := f.(*netlink.MatchAll); ok && len(m.Actions) == 1 {
			if p, ok := m.Actions[0].(*netlink.PoliceAction); ok {
				return 8 * uint64(p.Rate), nil
			}
		}
	}
	return 0, nil
}

// SetPolicer drops what arrives at a device above the rate, in bits per second, once a burst of bytes is
// used up. Rate 0 takes the policer away. A device on which someone else works at that place is left alone.
func SetPolicer(dev string, rate, burst uint64) error {
	now, err := policer(dev)
	if err == nil && now > 0 {
		err = delQdisc(dev, ingressHandle, HandleIngress)
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
		err = addQdisc(unix.NLM_F_EXCL, dev, ingressHandle, HandleIngress, "ingress", nil)
	}
	if err != nil {
		return err
	}
	p := netlink.NewPoliceAction()
	p.Rate, p.Burst = narrow(rate/8), narrow(burst)
	p.Mtu = 64 << 10 // of the segments that arrive as one
	p.ExceedAction = netlink.TC_POLICE_SHOT
	err = netlink.FilterAdd(&netlink.MatchAll{Actions: []netlink.Action{p}, FilterAttrs: netlink.FilterAttrs{
		LinkIndex: l.Attrs().Index, Parent: ingressHandle, Priority: 1, Protocol: unix.ETH_P_ALL}})
	if errors.Is(err, unix.ENOENT) {
		err = fmt.Errorf("%w: it lacks the filter matchall or the action police", ErrUnsupported)
	}
	if err != nil {
		return errors.Join(err, delQdisc(dev, ingressHandle, HandleIngress))
	}
	return nil
}

// ProbePolicer tries a policer on a virtual link made for the purpose.
func ProbePolicer() error {
	return onProbeLink("cpp", func(dev string) error { return SetPolicer(dev, 1e9, 128<<10) })
}
