package knob

import (
	"errors"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

const (
	forwardIPv4 = "net.ipv4.ip_forward"
	forwardIPv6 = "net.ipv6.conf.all.forwarding"
)

// IPForward sets whether a node forwards packets: "on", "off", or "ipv4" or "ipv6" for only one IP version.
func IPForward() Knob {
	k := ofNode(ofRouter(factor.Declaration{
		Policy: true,
		Name:   "ip_forward",
		Unit:   "on, off, ipv4, ipv6",
		Doc:    "whether the router forwards packets: of both IP versions, of none, or of one",
	}), words("on", "off", "ipv4", "ipv6"), readForwarding, applyForwarding)
	k.check = func(_ Place, s State) error {
		err := kernel.SysctlWritable(forwardIPv4)
		if err == nil && (s == "on" || s == "ipv6") {
			err = kernel.SysctlWritable(forwardIPv6)
		}
		return err
	}
	return k
}

func readForwarding() (State, error) {
	v4, err := kernel.ReadSysctl(forwardIPv4)
	if err != nil {
		return "", err
	}

	v6, err := kernel.ReadSysctl(forwardIPv6)
	if errors.Is(err, kernel.ErrAbsent) {
		v6, err = "0", nil // the file is missing in a kernel without IPv6
	}

	return Forwarding(v4 != "0", v6 != "0"), err
}

// Forwarding returns the state of the knob ip_forward for a kernel that forwards the given IP versions.
func Forwarding(v4, v6 bool) State {
	switch {
	case v4 && v6:
		return "on"
	case v4:
		return "ipv4"
	case v6:
		return "ipv6"
	}
	return "off"
}

// ForwardingBits returns the values of the kernel settings for a state of the knob ip_forward.
func ForwardingBits(state string) (v4, v6 string) {
	v4, v6 = "0", "0"
	if state == "on" || state == "ipv4" {
		v4 = "1"
	}

	if state == "on" || state == "ipv6" {
		v6 = "1"
	}

	return v4, v6
}

func applyForwarding(s State) error {
	v4, v6 := ForwardingBits(s)
	if err := kernel.WriteSysctl(forwardIPv4, v4); err != nil {
		return err
	}

	err := kernel.WriteSysctl(forwardIPv6, v6)
	if errors.Is(err, kernel.ErrAbsent) && v6 == "0" {
		return nil
	}

	return err
}
