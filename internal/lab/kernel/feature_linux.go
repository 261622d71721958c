package kernel

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

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
			refused = append(refused, fmt.Sprintf("%s=%s", name, onOff(want[name])))
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("set offloads of %s: %w: kept %s", dev, ErrUnsupported, strings.Join(refused, " "))
	}
	return nil
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}
