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

func listenExact(context.Context, netip.AddrPort) (*net.UDPConn, error) {
	return nil, fmt.Errorf("unfragmented packets: %w on %s", host.ErrUnsupported, runtime.GOOS)
}

func findRoute(context.Context, FindRoute) (FoundRoute, error) {
	return FoundRoute{}, fmt.Errorf("the kernel's memory of ICMP errors: %w on %s", host.ErrUnsupported,
		runtime.GOOS)
}
