//go:build !linux

package traffic

import "golang.org/x/sys/unix"

// DontFragment makes a socket return an error if a packet would have to be fragmented (ip(4) and ip6(4) of
// FreeBSD; macOS since version 11).
func DontFragment(fd, ip int) error {
	if ip == 6 {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_DONTFRAG, 1)
}

// sharePort does nothing on this system.
func sharePort(int) error { return nil }
