package agent

import (
	"context"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// listenExact opens a UDP socket whose packets are never fragmented by the sender and may not be on the way
// (ip(7), IP_PMTUDISC_PROBE: DF is set and the cached path MTU ignored, so that each size is really tried).
func listenExact(ctx context.Context, at netip.AddrPort) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
		var err error
		ctl := rc.Control(func(fd uintptr) {
			if at.Addr().Is6() {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER,
					unix.IPV6_PMTUDISC_PROBE)
				return
			}
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		})
		if ctl != nil {
			return ctl
		}
		return err
	}}
	network := "udp4"
	if at.Addr().Is6() {
		network = "udp6"
	}
	c, err := lc.ListenPacket(ctx, network, at.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}
