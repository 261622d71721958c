package kernel

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Counters reads a device's counters.
func Counters(dev string) (LinkCounters, error) {
	l, err := find(dev)
	if err == nil && l.Attrs().Statistics == nil {
		err = ErrUnsupported
	}
	if err != nil {
		return LinkCounters{}, explain(err, "read counters of %s", dev)
	}
	s := l.Attrs().Statistics
	return LinkCounters{s.RxBytes, s.RxPackets, s.RxErrors, s.RxDropped,
		s.TxBytes, s.TxPackets, s.TxErrors, s.TxDropped}, nil
}

// NICStats reads the driver's own counters by the driver's names.
func NICStats(dev string) (map[string]uint64, error) {
	var stats map[string]uint64
	err := withEthtool(func(e *ethtool.Ethtool) (err error) {
		stats, err = e.Stats(dev)
		return err
	})
	return stats, explain(err, "read driver counters of %s", dev)
}

// PauseFrames reads what a device has agreed on about pause frames; virtual devices answer ErrUnsupported.
func PauseFrames(dev string) (Pause, error) {
	var p ethtool.Pause
	err := withEthtool(func(e *ethtool.Ethtool) (err error) {
		p, err = e.GetPause(dev)
		return err
	})
	return Pause{p.Autoneg != 0, p.RxPause != 0, p.TxPause != 0}, explain(err, "read pause frames of %s", dev)
}

func withEthtool(do func(*ethtool.Ethtool) error) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	growStack()
	if err = do(e); errors.Is(err, unix.ENODEV) {
		return ErrAbsent
	}
	return err
}

// growStack makes the goroutine's stack larger than package ethtool needs. It hands the kernel addresses of
// variables on its stack as plain numbers; where the stack had to grow in between, they were no longer
// there, and a feature's name was unknown now and then.
//
//go:noinline
func growStack() byte {
	var room [64 << 10]byte
	clear(room[:])
	return room[len(room)-1]
}

// rxQueues is how many receive queues of a device are in use. A driver that does not say uses all that it
// has.
func rxQueues(a *netlink.LinkAttrs) int {
	var c ethtool.Channels
	err := withEthtool(func(e *ethtool.Ethtool) (err error) {
		c, err = e.GetChannels(a.Name)
		return err
	})
	if n := int(c.RxCount + c.CombinedCount); err == nil && n > 0 {
		return n
	}
	return a.NumRxQueues
}

// Features reads a device's offloads by the kernel's names, such as tx-tcp-segmentation and rx-gro.
func Features(dev string) (map[string]bool, error) {
	var f map[string]bool
	err := withEthtool(func(e *ethtool.Ethtool) (err error) {
		f, err = e.Features(dev)
		return err
	})
	return f, explain(err, "read offloads of %s", dev)
}

// FixedFeatures are the offloads that this device does not let change. What a tap does not segment now
// counts as one, see UDPSegmentation.
func FixedFeatures(dev string) (map[string]bool, error) {
	var f map[string]ethtool.FeatureState
	var driver string
	err := withEthtool(func(e *ethtool.Ethtool) (err error) {
		if f, err = e.FeaturesWithState(dev); err == nil {
			driver, err = e.DriverName(dev)
		}
		if errors.Is(err, unix.EOPNOTSUPP) && f != nil {
			err = nil // a device that does not tell its driver is no tap
		}
		return err
	})
	if err != nil {
		return nil, explain(err, "read offloads of %s", dev)
	}
	fixed := map[string]bool{}
	for name, s := range f {
		if !s.Available || s.NeverChanged {
			fixed[name] = true
		}
	}
	if driver == "tun" && !f[UDPSegmentation].Active {
		fixed[UDPSegmentation] = true
	}
	return fixed, nil
}

// SetFeatures sets offloads by the kernel's names and reads them back: the kernel says yes to what it then
// does not do.
func SetFeatures(dev string, want map[string]bool) error {
	known, err := Features(dev)
	if err != nil {
		return err
	}
	for name := range want {
		if _, ok := known[name]; !ok {
			return explain(ErrUnsupported, "set offload %s of %s", name, dev)
		}
	}
	err = withEthtool(func(e *ethtool.Ethtool) error { return e.Change(dev, want) })
	if errors.Is(err, unix.EINVAL) {
		err = fmt.Errorf("%w: fixed", ErrUnsupported)
	}
	if err != nil {
		return explain(err, "set offloads of %s", dev)
	}
	got, err := Features(dev)
	if err != nil {
		return err
	}
	var refused []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			refused = append(refused, name+map[bool]string{true: "=on", false: "=off"}[want[name]])
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("set offloads of %s: %w: kept %s", dev, ErrUnsupported, strings.Join(refused, " "))
	}
	return nil
}
