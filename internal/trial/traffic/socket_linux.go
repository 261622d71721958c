package traffic

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Socket holds a file descriptor that several threads use, one of which closes it.
type Socket struct {
	FD int

	mu     sync.Mutex
	Closed bool
}

func (s *Socket) Shutdown(how int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.Closed {
		unix.Shutdown(s.FD, how)
	}
}

// Close closes the socket and discards queued data, so that no packet of this load is in transit during
// the next one.
func (s *Socket) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Closed {
		return
	}

	s.Closed = true
	unix.SetsockoptLinger(s.FD, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	unix.Close(s.FD)
}

// Option returns the value of an option, or 0 on error.
func (s *Socket) Option(level, name int) int {
	v, _ := unix.GetsockoptInt(s.FD, level, name)
	return v
}

// Local returns the local address and port, or "" on error.
func (s *Socket) Local() string {
	sa, err := unix.Getsockname(s.FD)
	if err != nil {
		return ""
	}
	return addrPort(sa).String()
}

func Sockaddr(a netip.AddrPort) (domain int, sa unix.Sockaddr) {
	ip := a.Addr().Unmap()
	if ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// NewRawAddr converts an address to the kernel's format.
func NewRawAddr(a netip.AddrPort) *RawAddr {
	p := &RawAddr{}
	ip := a.Addr().Unmap()
	if ip.Is4() {
		raw := (*unix.RawSockaddrInet4)(unsafe.Pointer(&p.Raw))
		raw.Family, raw.Addr, p.Length = unix.AF_INET, ip.As4(), unix.SizeofSockaddrInet4
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&raw.Port))[:], a.Port())
		return p
	}

	p.Raw.Family, p.Raw.Addr, p.Length = unix.AF_INET6, a.Addr().As16(), unix.SizeofSockaddrInet6
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&p.Raw.Port))[:], a.Port())
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

// Connect connects a UDP socket and forbids fragmentation.
func Connect(fd int, to netip.AddrPort, ip int) error {
	_, sa := Sockaddr(to)
	if err := unix.Connect(fd, sa); err != nil {
		return fmt.Errorf("connect to %v: %w", to, err)
	}

	if err := DontFragment(fd, ip); err != nil {
		return fmt.Errorf("forbid fragments to %v: %w", to, err)
	}

	return nil
}

// DontFragment makes a socket return an error if a packet would have to be fragmented, because fragments
// differ in size from the packets to measure.
func DontFragment(fd int, ip int) error {
	if ip == 6 {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
}

// bigBuffer requests a socket buffer larger than the system's limit, which requires CAP_NET_ADMIN. Without
// that right, it requests a buffer up to the limit. It returns the size granted in bytes.
func bigBuffer(s *Socket, forced, plain, bytes int) int {
	if unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, forced, bytes) != nil {
		unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, plain, bytes)
	}
	return s.Option(unix.SOL_SOCKET, plain)
}

// MarkDSCP sets the DSCP (RFC 2474) of sent packets.
func MarkDSCP(fd int, load record.Load) error {
	if load.DSCP == 0 {
		return nil
	}

	level := unix.IPPROTO_IP
	option := unix.IP_TOS
	if load.IP == 6 {
		level = unix.IPPROTO_IPV6
		option = unix.IPV6_TCLASS
	}

	if err := unix.SetsockoptInt(fd, level, option, load.DSCP<<2); err != nil {
		return fmt.Errorf("set DSCP %d: %w", load.DSCP, err)
	}

	return nil
}

// SetPacing limits the rate of a socket. Kernels before 4.20 and 32-bit kernels accept only 32-bit rates.
func SetPacing(fd int, bytesPerSecond uint64) error {
	const word = unsafe.Sizeof(uintptr(0))
	b := binary.NativeEndian.AppendUint64(nil, bytesPerSecond)
	if word == 4 {
		b = binary.NativeEndian.AppendUint32(nil, uint32(min(bytesPerSecond, math.MaxUint32)))
	}

	return unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, string(b))
}

// Batch size and waiting times of a UDP receiver. The receiver polls with a timer instead of being woken
// for every packet, so that senders on the same machine do not spend CPU time on wake-ups.
const (
	ReceiveBatch = 512
	ReceivePoll  = 300 * time.Microsecond
	BacklogTime  = time.Second // limit of the time to read what has arrived by the end
)

// Sizes in bytes and timeouts of UDP sockets.
const (
	receiveRoom = 64 << 20 // size of the receive buffer to request
	minRoom     = 256 << 10
	sendRoom    = 4 << 20
	sendTimeout = 50 * time.Millisecond // maximum time of a write to a full buffer
)

// UDPRoom requests large socket buffers and returns the sizes granted in bytes. With many flows, the
// receive buffer of each socket is smaller.
func UDPRoom(s *Socket, flows int) (rcvbuf, sndbuf int) {
	rcvbuf = bigBuffer(s, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, max(receiveRoom/max(flows/OwnThreads, 1),
		minRoom))
	sndbuf = bigBuffer(s, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendRoom)
	tv := unix.NsecToTimeval(int64(sendTimeout))
	unix.SetsockoptTimeval(s.FD, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
	return rcvbuf, sndbuf
}

// SocketDrops returns the number of packets that the socket dropped because its buffer was full
// (SK_MEMINFO_DROPS, since Linux 4.12), or 0 on error.
func (s *Socket) SocketDrops() uint32 {
	const memInfo, drops = 9, 8
	var v [memInfo]uint32
	size := uint32(unsafe.Sizeof(v))
	unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.FD), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&size)), 0)
	return v[drops]
}

// mmsghdr is struct mmsghdr of recvmmsg(2) and sendmmsg(2).
type mmsghdr struct {
	header unix.Msghdr
	length uint32
}

// Batch holds datagrams for one system call. Each datagram has a fixed amount of space in a common buffer,
// and in another buffer for control messages.
type Batch struct {
	buffer   []byte
	room     int
	control  []byte
	each     int // space for control messages per datagram, in bytes
	used     int // number of datagrams in the last Receive
	vectors  []unix.Iovec
	messages []mmsghdr
}

func NewBatch(n, room, control int) *Batch {
	b := &Batch{
		buffer:   make([]byte, n*room),
		room:     room,
		control:  make([]byte, n*control),
		each:     control,
		used:     n,
		vectors:  make([]unix.Iovec, n),
		messages: make([]mmsghdr, n),
	}
	for i := range b.messages {
		b.vectors[i].Base = &b.buffer[i*room]
		b.vectors[i].SetLen(room)
		b.messages[i].header.Iov = &b.vectors[i]
		b.messages[i].header.SetIovlen(1)
		if control > 0 {
			b.messages[i].header.Control = &b.control[i*control]
		}
	}
	return b
}

// At returns the buffer of datagram i.
func (b *Batch) At(i int) []byte { return b.buffer[i*b.room : (i+1)*b.room] }

// Size sets the length of datagram i for sending, and returns the datagram's buffer.
func (b *Batch) Size(i, length int) []byte {
	b.vectors[i].SetLen(length)
	return b.At(i)[:length]
}

// Address sets the destination and the control message of datagram i. If to is nil, the socket must be
// connected. If control is nil, the datagram has no control message.
func (b *Batch) Address(i int, to *RawAddr, control []byte) {
	h := &b.messages[i].header
	h.Name, h.Namelen = nil, 0
	if to != nil {
		h.Name = (*byte)(unsafe.Pointer(&to.Raw))
		h.Namelen = to.Length
	}

	h.Control = nil
	if len(control) > 0 {
		h.Control = &control[0]
	}

	h.SetControllen(len(control))
}

// Send passes datagrams i to j-1 to the kernel and returns the number of datagrams that the kernel
// accepted.
func (b *Batch) Send(fd, i, j int) (int, error) {
	return Returned(unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&b.messages[i])), uintptr(j-i), 0, 0, 0))
}

// SendGSO passes the first n datagrams to the kernel in one write, which the kernel splits into datagrams.
func (b *Batch) SendGSO(fd, n int) error {
	h := &b.messages[0].header
	b.vectors[0].SetLen(n * b.room)
	_, err := Returned(unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(h)), 0))
	b.vectors[0].SetLen(b.room)
	return err
}

// Receive receives available datagrams without waiting. With MSG_TRUNC, the kernel reports the full length
// of a datagram even if its buffer is shorter, so that only headers need to be copied.
func (b *Batch) Receive(fd int) (int, error) {
	if b.each > 0 { // reset, because the kernel has overwritten it with the length used
		for i := range b.used {
			b.messages[i].header.SetControllen(b.each)
		}
	}

	n, err := Returned(unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&b.messages[0])), uintptr(len(b.messages)),
		unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0))
	b.used = n
	return n, err
}

// Length returns the full length of the received datagram i.
func (b *Batch) Length(i int) int { return int(b.messages[i].length) }

const ScmTimestampNS = unix.SO_TIMESTAMPNS // type of the control message, which is the number of its option

// Stamp returns the kernel's time stamp (CLOCK_REALTIME, in ns) of the arrival of datagram i, or 0.
func (b *Batch) Stamp(i int) int64 {
	have := int(b.messages[i].header.Controllen)
	if b.each == 0 || have < unix.CmsgLen(int(unsafe.Sizeof(unix.Timespec{}))) {
		return 0
	}

	h := (*unix.Cmsghdr)(unsafe.Pointer(&b.control[i*b.each]))
	if h.Level != unix.SOL_SOCKET || h.Type != ScmTimestampNS {
		return 0
	}

	return (*unix.Timespec)(unsafe.Pointer(&b.control[i*b.each+unix.CmsgLen(0)])).Nano()
}

// StampRoom returns the size of a control message with one time stamp.
func StampRoom() int { return unix.CmsgSpace(int(unsafe.Sizeof(unix.Timespec{}))) }

// RawAddr is a socket address in the kernel's format.
type RawAddr struct {
	Raw    unix.RawSockaddrInet6 // large enough for either family
	Length uint32
}
