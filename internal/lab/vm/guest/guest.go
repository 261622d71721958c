// Package guest is what the first processes of a virtual machine do when the program itself is its
// userland: it is the init that the kernel starts, the modprobe that the kernel calls, and what starts the
// agent on the machine's port. It knows nothing of QEMU, of images, or of what the agent does.
package guest

import (
	"os"
	"path/filepath"
	"syscall"
)

// Role is what the kernel, or a guest's user, started the program as.
type Role int

// Roles.
const (
	None Role = iota
	InitRole
	ModprobeRole
)

// RoleOf tells the role by the name that the program was started with. The name alone makes no init: in a
// container the first process has number 1 as well, and a user may start /init a second time.
func RoleOf(name string, pid int) Role {
	switch base := filepath.Base(name); {
	case base == "init" && pid == 1:
		return InitRole
	case base == "modprobe":
		return ModprobeRole
	}
	return None
}

// Signals are those that Init must be told of.
func Signals() []os.Signal {
	return []os.Signal{syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT}
}

// Files of the image, below its root.
const (
	modulesFile = "etc/chokepoint/modules" // loaded at boot, one per line, in order
	portName    = "chokepoint.agent"       // of the virtio port, and the kernel's parameter
)

// searchPath is where the programs of an image lie.
const searchPath = "/usr/sbin:/usr/bin:/sbin:/bin"
