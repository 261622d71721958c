//go:build !linux

package probe

import (
	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func pread(fd int, b []byte, offset int64) (int, error) { return unix.Pread(fd, b, offset) }

type dumpSocket struct{}

func openDump(int, uint16, int, string) (*dumpSocket, error) {
	return nil, absent("netlink is a Linux thing")
}

func (*dumpSocket) of(int32)     {}
func (*dumpSocket) Close() error { return nil }

func (*dumpSocket) dump(func(uint16, []byte) error) error { return absent("netlink is a Linux thing") }

func openKernelLog(string) (Sampler, error) {
	return nil, absent("the kernel log is read on Linux only")
}

func allowedCores() ([]int, error) { return nil, absent("a thread cannot choose its core here") }
func onCore(int, func()) error     { return absent("a thread cannot choose its core here") }

func inventory(Root) *record.Inventory { return nil }
