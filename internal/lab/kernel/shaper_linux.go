package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

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
	err := tc(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, dev, leafHandle, rootHandle|htbDefault,
		"fq_codel", nil)
	if errors.Is(err, unix.ENOENT) {
		err = fmt.Errorf("%w: it has no fq_codel", ErrUnsupported)
	}
	if err != nil {
		return explain(errors.Join(err, clearRoot(dev)), "set shaper of %s", dev)
	}
	return nil
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
