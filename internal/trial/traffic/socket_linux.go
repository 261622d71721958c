package traffic

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// socket is a descriptor that several threads use and one closes.
type socket struct {
	fd int

	mu     sync.Mutex
	closed bool
}

func (s *socket) shutdown(how int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		unix.Shutdown(s.fd, how)
	}
}

// close drops what is still queued, so that nothing of this load is under way during the next one.
func (s *socket) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	unix.Close(s.fd)
}

func (s *socket) option(level, name int) int {
	v, err := unix.GetsockoptInt(s.fd, level, name)
	if err != nil {
		return 0
	}
	return v
}

// local is the socket's own address and port.
func (s *socket) local() string {
	sa, err := unix.Getsockname(s.fd)
	if err != nil {
		return ""
	}
	return addrPort(sa).String()
}

func sockaddr(a netip.AddrPort) (domain int, sa unix.Sockaddr) {
	if ip := a.Addr().Unmap(); ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// newPeer is an address as a message names it.
func newPeer(a netip.AddrPort) *peer {
	p := &peer{}
	if ip := a.Addr().Unmap(); ip.Is4() {
		raw := (*unix.RawSockaddrInet4)(unsafe.Pointer(&p.raw))
		raw.Family, raw.Addr, p.length = unix.AF_INET, ip.As4(), unix.SizeofSockaddrInet4
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&raw.Port))[:], a.Port())
		return p
	}
	p.raw.Family, p.raw.Addr, p.length = unix.AF_INET6, a.Addr().As16(), unix.SizeofSockaddrInet6
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&p.raw.Port))[:], a.Port())
	return p
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// bindUDP opens a UDP socket on an address; several may share a port that is asked for, and the kernel
// prefers the one that is connected to a packet's sender. Where the kernel chooses the port it must be
// nobody else's: leave to share it comes after.
func bindUDP(at netip.AddrPort) (int, error) {
	domain, sa := sockaddr(at)
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a UDP socket: %w", err)
	}
	if at.Port() != 0 {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err := unix.Bind(fd, sa); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("bind udp %v: %w", at, err)
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	return fd, nil
}

// dontFragment makes a packet that does not fit an error instead of fragments: the packet size is what is
// being measured.
func dontFragment(fd int, ip int) error {
	if ip == 6 {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
}

// bigBuffer asks for a socket buffer beyond the system's limit, which an ordinary user does not get; it
// returns what was granted.
func bigBuffer(s *socket, forced, plain, bytes int) int {
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, forced, bytes) != nil {
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, plain, bytes)
	}
	return s.option(unix.SOL_SOCKET, plain)
}

// markDSCP sets the differentiated services field (RFC 2474) of what is sent.
func markDSCP(fd int, load record.Load) error {
	if load.DSCP == 0 {
		return nil
	}
	level, option := unix.IPPROTO_IP, unix.IP_TOS
	if load.IP == 6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	if err := unix.SetsockoptInt(fd, level, option, load.DSCP<<2); err != nil {
		return fmt.Errorf("set DSCP %d: %w", load.DSCP, err)
	}
	return nil
}

// setPacing limits a socket to a rate. Kernels before 4.20, and those of 32 bits, take 32 bits of it.
func setPacing(fd int, bytesPerSecond uint64) error {
	const word = unsafe.Sizeof(uintptr(0))
	b := binary.NativeEndian.AppendUint64(nil, bytesPerSecond)
	if word == 4 {
		b = binary.NativeEndian.AppendUint32(nil, uint32(min(bytesPerSecond, math.MaxUint32)))
	}
	return unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, string(b))
}
