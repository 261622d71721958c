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

// batch is a set of datagrams for one system call; each has a fixed room of
// its own in one buffer.
type batch struct {
	buffer   []byte
	room     int
	vectors  []unix.Iovec
	messages []mmsghdr
}

func newBatch(n, room int) *batch {
	b := &batch{
		buffer: make([]byte, n*room), room: room,
		vectors: make([]unix.Iovec, n), messages: make([]mmsghdr, n),
	}
	for i := range b.messages {
		b.vectors[i].Base = &b.buffer[i*room]
		b.vectors[i].SetLen(room)
		b.messages[i].header.Iov = &b.vectors[i]
		b.messages[i].header.SetIovlen(1)
	}
	return b
}

// at is the room of the i-th datagram.
func (b *batch) at(i int) []byte { return b.buffer[i*b.room : (i+1)*b.room] }

// send gives the datagrams from i to j to the kernel and returns how many it
// took.
func (b *batch) send(fd, i, j int) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&b.messages[i])), uintptr(j-i), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// receive takes what is there without waiting. With MSG_TRUNC a datagram's
// length is its real one even where its room is smaller, so that only the
// header need be copied.
func (b *batch) receive(fd int) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&b.messages[0])), uintptr(len(b.messages)), unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// length is the full length of the i-th received datagram.
func (b *batch) length(i int) int { return int(b.messages[i].length) }
