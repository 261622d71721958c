package frames

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// ring sends by AF_XDP (Documentation/networking/af_xdp.rst): frames lie in memory that the kernel shares
// (umem), their places go to it by one ring and come back by another once they are out. In copy mode any
// Ethernet device takes them, without a program of its own.
type ring struct {
	fd         int
	umem       []byte
	transmit   half // descriptors
	completion half // places
	free       []uint64
	size       uint32
	submitted  uint32 // descriptors that the kernel may see
	collected  uint32 // places that came back
}

// half is one ring: whoever produces writes its entries and then the number of them, whoever consumes
// writes how many it has taken.
type half struct {
	memory             []byte
	producer, consumer *atomic.Uint32
	entries            unsafe.Pointer
}

const (
	slotSize = 2048 // of umem; a page holds two
	slotMask = txSlots - 1
)

// openRing opens a ring to a device.
func openRing(device, size int) (*ring, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket of AF_XDP: %w", err)
	}
	r := &ring{fd: fd, size: uint32(size)}
	if err := r.open(device); err != nil {
		return nil, errors.Join(err, r.close())
	}
	for i := range txSlots {
		r.free = append(r.free, uint64(i*slotSize))
	}
	return r, nil
}

func (r *ring) open(device int) error {
	var err error
	if r.umem, err = unix.Mmap(-1, 0, txSlots*slotSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE); err != nil {
		return fmt.Errorf("map memory for frames: %w", err)
	}
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&r.umem[0]))), Len: uint64(len(r.umem)),
		Size: slotSize}
	// An ordinary user may lock so much memory, in all processes together, and the kernel counts that of a
	// socket for some time after it was closed (xdp_umem_release_deferred).
	region := string(unsafe.Slice((*byte)(unsafe.Pointer(&reg)), unsafe.Sizeof(reg)))
	if err := untilReturned(unix.ENOBUFS, func() error {
		return unix.SetsockoptString(r.fd, unix.SOL_XDP, unix.XDP_UMEM_REG, region)
	}); err != nil {
		return fmt.Errorf("share memory with AF_XDP: %w", err)
	}
	// A socket that only sends needs a fill ring all the same; it stays empty.
	for option, entries := range map[int]int{unix.XDP_UMEM_FILL_RING: 2,
		unix.XDP_UMEM_COMPLETION_RING: txSlots, unix.XDP_TX_RING: txSlots} {
		if err := unix.SetsockoptInt(r.fd, unix.SOL_XDP, option, entries); err != nil {
			return fmt.Errorf("make the rings of AF_XDP: %w", err)
		}
	}
	if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, txRoom); err != nil {
		return fmt.Errorf("bound what AF_XDP has under way: %w", err)
	}
	// A kernel may send more at each call than its usual 32 frames (6.17).
	unix.SetsockoptInt(r.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, txBurst)
	if err := r.mapRings(); err != nil {
		return err
	}
	// Of a device's queues it takes the first, which the kernel gives back some time after the socket that
	// had it was closed.
	address := &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(device)}
	if err := untilReturned(unix.EBUSY, func() error { return unix.Bind(r.fd, address) }); err != nil {
		return fmt.Errorf("bind AF_XDP to queue 0 of device %d: %w", device, err)
	}
	return nil
}

// untilReturned tries again while the kernel says that something is taken, for a second at most.
func untilReturned(taken error, try func() error) error {
	err := try()
	for until := traffic.Monotonic() + int64(time.Second); err == taken && traffic.Monotonic() < until; {
		traffic.Nap(5 * time.Millisecond)
		err = try()
	}
	return err
}

func (r *ring) mapRings() error {
	var at unix.XDPMmapOffsets
	size := uint32(unsafe.Sizeof(at))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(r.fd), unix.SOL_XDP, unix.XDP_MMAP_OFFSETS,
		uintptr(unsafe.Pointer(&at)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return fmt.Errorf("ask for the rings of AF_XDP: %w", errno)
	}
	if size != uint32(unsafe.Sizeof(at)) {
		return fmt.Errorf("map the rings of AF_XDP: %w (before Linux 5.4)", unix.EOPNOTSUPP)
	}
	var err error
	if r.transmit, err = mapHalf(r.fd, unix.XDP_PGOFF_TX_RING, at.Tx,
		unsafe.Sizeof(unix.XDPDesc{})); err == nil {
		r.completion, err = mapHalf(r.fd, unix.XDP_UMEM_PGOFF_COMPLETION_RING, at.Cr, 8)
	}
	if err != nil {
		return fmt.Errorf("map the rings of AF_XDP: %w", err)
	}
	return nil
}

func mapHalf(fd int, offset int64, at unix.XDPRingOffset, entry uintptr) (half, error) {
	b, err := unix.Mmap(fd, offset, int(at.Desc)+txSlots*int(entry), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return half{}, err
	}
	return half{
		memory:   b,
		producer: (*atomic.Uint32)(unsafe.Pointer(&b[at.Producer])),
		consumer: (*atomic.Uint32)(unsafe.Pointer(&b[at.Consumer])),
		entries:  unsafe.Pointer(&b[at.Desc]),
	}, nil
}

func (r *ring) frame(i int) []byte { return r.umem[i*slotSize:][:r.size] }

func (r *ring) slot() []byte {
	if len(r.free) == 0 {
		r.collect()
	}
	if len(r.free) == 0 {
		return nil
	}
	return r.umem[r.free[len(r.free)-1]:][:r.size]
}

// queue writes the descriptor; the kernel sees it by the next push.
func (r *ring) queue(length int) {
	last := len(r.free) - 1
	d := (*unix.XDPDesc)(unsafe.Add(r.transmit.entries,
		uintptr(r.submitted&slotMask)*unsafe.Sizeof(unix.XDPDesc{})))
	*d = unix.XDPDesc{Addr: r.free[last], Len: uint32(length)}
	r.free = r.free[:last]
	r.submitted++
}

// push shows the kernel the descriptors and calls it: in copy mode it sends within the call, some of them.
// What it has no room for stays queued.
func (r *ring) push() error {
	r.transmit.producer.Store(r.submitted)
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(r.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	r.collect()
	switch errno {
	case 0, unix.EAGAIN, unix.EINTR, unix.ENOBUFS:
		return nil
	case unix.EBUSY: // the device dropped one, which came back as all do
		return nil
	}
	return errno
}

// collect takes back the slots of frames that are out.
func (r *ring) collect() {
	for n := r.completion.producer.Load(); r.collected != n; r.collected++ {
		at := (*uint64)(unsafe.Add(r.completion.entries, uintptr(r.collected&slotMask)*8))
		r.free = append(r.free, *at)
	}
	r.completion.consumer.Store(r.collected)
}

func (r *ring) left() (queued, out int) {
	r.collect()
	return int(r.submitted - r.transmit.consumer.Load()), int(r.submitted - r.collected)
}

func (r *ring) close() error {
	var errs []error
	for _, b := range [][]byte{r.transmit.memory, r.completion.memory, r.umem} {
		if b != nil {
			errs = append(errs, unix.Munmap(b))
		}
	}
	r.transmit, r.completion, r.umem = half{}, half{}, nil
	return errors.Join(append(errs, unix.Close(r.fd))...)
}
