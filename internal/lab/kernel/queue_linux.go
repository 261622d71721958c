package kernel

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const rootHandle = 1 << 16 // 1:, for kinds whose classes must name it

// RootQueue reads a device's root queueing discipline. A kind that could not be made again from what is
// read is an error that matches ErrUnsupported.
func RootQueue(dev string) (Queue, error) {
	q, _, err := rootQueue(dev)
	return q, explain(err, "read queue of %s", dev)
}

func rootQueue(dev string) (Queue, uint32, error) {
	list, err := Qdiscs(dev)
	if err != nil {
		return Queue{}, 0, err
	}
	for _, q := range list {
		if q.Parent != HandleRoot {
			continue
		}
		if string(q.Kind) == "htb" {
			v, err := htbClass(dev)
			return Queue{"htb", v}, q.Handle, err
		}
		found, err := decodeQueue(string(q.Kind), q.Options)
		return found, q.Handle, err
	}
	// A device that is down may show none: it will get the default.
	return Queue{Kind: "noqueue", Values: map[string]uint64{}}, 0, nil
}

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
	if now, _, err := rootQueue(dev); err == nil && sameQueue(want, now) {
		return nil
	}
	root := uint32(0)
	if want.Kind == "htb" {
		root = rootHandle
	}
	err = tc(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, dev, root, HandleRoot, want.Kind, options)
	if errors.Is(err, unix.EEXIST) { // the default, which cannot be deleted, only replaced
		err = tc(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, dev, root, HandleRoot, want.Kind,
			options)
	}
	if errors.Is(err, unix.ENOENT) {
		err = fmt.Errorf("%w: it has no queue of that kind", ErrUnsupported)
	}
	if err == nil && want.Kind == "htb" {
		err = tc(unix.RTM_NEWTCLASS, unix.NLM_F_CREATE|unix.NLM_F_EXCL, dev,
			rootHandle|htbDefault, rootHandle, "htb", encodeHTBClass(want.Values))
	}
	if err != nil {
		return explain(errors.Join(err, clearRoot(dev)), "set queue %s of %s", want.Kind, dev)
	}
	return nil
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
	list, err := Qdiscs(dev)
	if err != nil {
		return err
	}
	for _, q := range list {
		if q.Parent == HandleRoot && q.Handle != 0 { // 0: is the default, which nobody can delete
			return tc(unix.RTM_DELQDISC, 0, dev, q.Handle, HandleRoot, "", nil)
		}
	}
	return nil
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
