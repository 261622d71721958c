package probe

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// pread reads a file of the kernel by a raw call, of which Go's scheduler is told nothing: what it does at
// each call, and its monitor meanwhile, cost as much as a source.
func pread(fd int, b []byte, offset int64) (int, error) {
	if unsafe.Sizeof(uintptr(0)) < 8 { // where the offset is two words, in an order of its own
		return unix.Pread(fd, b, offset)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&b[0])),
		uintptr(len(b)), uintptr(offset), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
