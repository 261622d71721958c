package knob

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// These are the bounds of the knob link_mtu in bytes. If the MTU is below 1280 (RFC 8200 §5), the kernel
// removes the IPv6 addresses of the device and does not restore them.
const minMTU, maxMTU = 1280, 65535

// LinkMTU sets the MTU of the underlay's devices in bytes.
func LinkMTU() Knob {
	bytes := numbers(minMTU, maxMTU)
	in := bytes.bound
	bytes.bound = func(mtu int) error {
		err := in(mtu)
		if mtu < minMTU {
			err = fmt.Errorf("%w: IPv6 needs 1280 on every link", err)
		}
		return err
	}

	return ofPorts(declared{factor.Declaration{
		Name:    "link_mtu",
		Unit:    "bytes, 1280 to 65535",
		Doc:     "MTU of the links, outside any tunnel",
		Target:  factor.EveryNode,
		Follow:  []factor.Name{factor.MTU},
		Rank:    6,
		Without: without("", "with the default link MTU"),
		Long:    func(level string) string { return "link MTU " + level },
		Placed:  factor.Placed,
	}}, bytes, kernel.MTU, func(dev string, mtu int) error {
		if err := kernel.SetMTU(dev, mtu); err != nil {
			return err
		}
		return forgetPathMTUs()
	})
}

// forgetPathMTUs drops the path MTUs that the node has learnt (RFC 1191, RFC 8201). If the MTUs of links
// behind a tunnel increase, the devices of the node do not change, so the node would otherwise use the old
// path MTUs for ten minutes. If the kernel does not permit dropping them, they remain until they expire.
func forgetPathMTUs() error {
	err := kernel.WriteSysctl("net.ipv4.route.flush", "1")
	if errors.Is(err, kernel.ErrAbsent) || errors.Is(err, fs.ErrPermission) {
		err = nil
	}
	return errors.Join(err, kernel.ForgetPathMTUs6())
}
