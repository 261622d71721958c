//go:build !linux

package probe

import "golang.org/x/sys/unix"

func pread(fd int, b []byte, offset int64) (int, error) { return unix.Pread(fd, b, offset) }
