//go:build !linux

package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

func setHostname(string) error {
	return fmt.Errorf("%w on %s", host.ErrUnsupported, runtime.GOOS)
}

func guestInit() (tell func() error, err error) {
	return nil, fmt.Errorf("power off: %w on %s", host.ErrUnsupported, runtime.GOOS)
}

func listenExact(context.Context, netip.AddrPort) (*net.UDPConn, error) {
	return nil, fmt.Errorf("unfragmented packets: %w on %s", host.ErrUnsupported, runtime.GOOS)
}

func findRoute(context.Context, FindRoute) (FoundRoute, error) {
	return FoundRoute{}, fmt.Errorf("the kernel's memory of ICMP errors: %w on %s", host.ErrUnsupported,
		runtime.GOOS)
}
