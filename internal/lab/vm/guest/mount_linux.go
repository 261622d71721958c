package guest

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mount is a file system of a guest.
type mount struct {
	where, kind, options string
	flags                uintptr
	optional             bool // only where the kernel has it
}

const strict = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

var mounts = []mount{
	{where: "/proc", kind: "proc", flags: strict},
	{where: "/sys", kind: "sysfs", flags: strict},
	{where: "/dev", kind: "devtmpfs", options: "mode=755", flags: unix.MS_NOSUID},
	{where: "/dev/pts", kind: "devpts", options: "mode=620,ptmxmode=666",
		flags: unix.MS_NOSUID | unix.MS_NOEXEC},
	{where: "/dev/shm", kind: "tmpfs", options: "mode=1777", flags: unix.MS_NOSUID | unix.MS_NODEV},
	{where: "/run", kind: "tmpfs", options: "mode=755", flags: unix.MS_NOSUID | unix.MS_NODEV},
	{where: "/tmp", kind: "tmpfs", options: "mode=1777", flags: unix.MS_NOSUID | unix.MS_NODEV},
	{where: "/sys/kernel/tracing", kind: "tracefs", flags: strict, optional: true},
	{where: "/sys/fs/cgroup", kind: "cgroup2", flags: strict, optional: true},
}

// mountAll mounts what a guest needs. The kernel may have mounted /dev.
func mountAll() error {
	for _, m := range mounts {
		if m.optional {
			if _, err := os.Stat(m.where); err != nil {
				continue
			}
		} else if err := os.MkdirAll(m.where, 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", m.where, err)
		}
		err := unix.Mount(m.kind, m.where, m.kind, m.flags, m.options)
		if err != nil && !errors.Is(err, unix.EBUSY) && !m.optional {
			return fmt.Errorf("mount %s: %w", m.where, err)
		}
	}
	return nil
}
