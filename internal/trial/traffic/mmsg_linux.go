package traffic

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of recvmmsg(2) and sendmmsg(2).
type mmsghdr struct {
	header unix.Msghdr
	length uint32
}

// Batch is a set of datagrams for one system call; each has a fixed room of its own in one buffer, and one
// for control messages in another.
type Batch struct {
	buffer   []byte
	room     int
	control  []byte
	each     int // bytes of control per datagram
	used     int // datagrams of the last receive
	vectors  []unix.Iovec
	messages []mmsghdr
}

func NewBatch(n, room, control int) *Batch {
	b := &Batch{buffer: make([]byte, n*room), room: room, control: make([]byte, n*control), each: control,
		used: n, vectors: make([]unix.Iovec, n), messages: make([]mmsghdr, n)}
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

// At is the room of the i-th datagram.
func (b *Batch) At(i int) []byte { return b.buffer[i*b.room : (i+1)*b.room] }

// Size sets the length of the i-th datagram to be sent, and returns it.
func (b *Batch) Size(i, length int) []byte {
	b.vectors[i].SetLen(length)
	return b.At(i)[:length]
}

// Address makes the i-th datagram go somewhere, and with a control message; nil is where the socket is
// connected to, and none.
func (b *Batch) Address(i int, to *RawAddr, control []byte) {
	h := &b.messages[i].header
	h.Name, h.Namelen = nil, 0
	if to != nil {
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&to.Raw)), to.Length
	}
	h.Control = nil
	if len(control) > 0 {
		h.Control = &control[0]
	}
	h.SetControllen(len(control))
}

// Send gives the datagrams from i to j to the kernel and returns how many it took.
func (b *Batch) Send(fd, i, j int) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&b.messages[i])), uintptr(j-i), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// SendGSO gives the datagrams from i to j to the kernel as one write, which it cuts.
func (b *Batch) SendGSO(fd, i, j int) error {
	h := &b.messages[i].header
	b.vectors[i].SetLen((j - i) * b.room)
	_, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(h)), 0)
	b.vectors[i].SetLen(b.room)
	if errno != 0 {
		return errno
	}
	return nil
}

// Receive takes what is there without waiting. With MSG_TRUNC a datagram's length is its real one even
// where its room is smaller, so that only the header need be copied.
func (b *Batch) Receive(fd int) (int, error) {
	if b.each > 0 { // the kernel wrote how much of it it used
		for i := range b.used {
			b.messages[i].header.SetControllen(b.each)
		}
	}
	b.used = 0
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.messages[0])),
		uintptr(len(b.messages)), unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	b.used = int(n)
	return int(n), nil
}

// Length is the full length of the i-th received datagram.
func (b *Batch) Length(i int) int { return int(b.messages[i].length) }

const ScmTimestampNS = unix.SO_TIMESTAMPNS // a control message's type is its option's number

// Stamp is when the kernel received the i-th datagram, by its realtime clock; 0 if it did not say.
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

// StampRoom is what one time stamp takes as a control message.
func StampRoom() int { return unix.CmsgSpace(int(unsafe.Sizeof(unix.Timespec{}))) }

// RawAddr is an address in the kernel's form.
type RawAddr struct {
	Raw    unix.RawSockaddrInet6 // has room for either family
	Length uint32
}
