package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

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
	list, err := Qdiscs(dev)
	at := slices.IndexFunc(list, func(q Qdisc) bool { return q.Parent == HandleIngress })
	if err != nil || at < 0 {
		return 0, err
	}
	filters, err := dump(func() ([]netlink.Filter, error) { return netlink.FilterList(l, list[at].Handle) })
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
		err = tc(unix.RTM_DELQDISC, 0, dev, netlink.MakeHandle(0xffff, 0), HandleIngress, "", nil)
	}
	if err != nil || rate == 0 {
		return explain(err, "delete policer of %s", dev)
	}
	return explain(addPolicer(dev, rate, burst), "set policer of %s", dev)
}

func addPolicer(dev string, rate, burst uint64) error {
	l, err := find(dev)
	if err != nil {
		return err
	}
	handle := netlink.MakeHandle(0xffff, 0)
	err = tc(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, dev, handle, HandleIngress,
		"ingress", nil)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w: it has no queue of the kind ingress", ErrUnsupported)
	}
	if err != nil {
		return err
	}
	p := netlink.NewPoliceAction()
	p.Rate, p.Burst = narrow(rate/8), narrow(burst)
	p.Mtu = 64 << 10 // of the segments that arrive as one
	p.ExceedAction = netlink.TC_POLICE_SHOT
	err = netlink.FilterAdd(&netlink.MatchAll{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: l.Attrs().Index, Parent: handle, Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Actions: []netlink.Action{p},
	})
	if errors.Is(err, unix.ENOENT) {
		err = fmt.Errorf("%w: it lacks the filter matchall or the action police", ErrUnsupported)
	}
	if err != nil {
		return errors.Join(err, tc(unix.RTM_DELQDISC, 0, dev, handle, HandleIngress, "", nil))
	}
	return nil
}

// ProbePolicer tries a policer on a virtual link made for the purpose.
func ProbePolicer() error {
	return onProbeLink("cpp", func(dev string) error { return SetPolicer(dev, 1e9, 128<<10) })
}
