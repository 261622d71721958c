package tunnel

import (
	"errors"
	"io/fs"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// kernelDevice is the kernel's implementation.
type kernelDevice struct{ name string }

func openKernelDevice(r request) (device, error) {
	if err := kernel.AddWireGuard(r.Device, r.MTU); err != nil {
		return nil, err
	}
	return kernelDevice{r.Device}, nil
}

func (d kernelDevice) configure(w kernel.WireGuard) error {
	return kernel.ConfigureWireGuard(d.name, w)
}

func (d kernelDevice) handshake() (time.Time, error) {
	s, err := kernel.ReadWireGuard(d.name)
	return s.Handshake, err
}

func (kernelDevice) complaint() string { return "" }

func (d kernelDevice) close() error { return kernel.DeleteLink(d.name) }

func probeKernelDevice() check.Answer {
	err := kernel.ProbeWireGuard()
	switch {
	case err == nil:
		return check.OK()
	case errors.Is(err, kernel.ErrUnsupported):
		return check.Not("the kernel has no WireGuard").Hinted("load the module wireguard, or take " +
			"wireguard-userspace")
	case errors.Is(err, fs.ErrPermission):
		return check.Not("%v", err).Hinted("run as root, or where user namespaces are allowed")
	}
	return check.CouldNotTell("%v", err)
}
