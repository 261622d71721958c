package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
)

// cage confines QEMU, in case a guest exploits a vulnerability in QEMU. QEMU gets file descriptors instead of
// paths, filters its own system calls, and runs as a user who owns no files.
type cage struct {
	words   []string // options for QEMU
	files   []*os.File
	console string
	as      *host.User
	root    string // reason why QEMU runs as root, or ""
}

// cagedUser is a UID that no distribution assigns. It is outside the UID ranges of systemd's dynamic users
// and of containers (see systemd's table of UIDs and GIDs).
const cagedUser = 65533

// newCage opens the guest's files. QEMU inherits them as descriptors next, next+1 and so on, and newCage
// changes g to refer to the descriptors.
func newCage(g *vm.Guest, console string, next int) (*cage, error) {
	c := &cage{}
	c.as, c.root = userFor(g.KVM)
	give := func(name string, flags int, mode os.FileMode) (string, error) {
		f, err := os.OpenFile(name, flags, 0o600)
		if err != nil {
			return "", fmt.Errorf("open a file of the guest's: %w", err)
		}

		c.files = append(c.files, f)
		// QEMU reopens the files, so its user needs permission. Other users have no access, because the
		// directory is private.
		if c.as != nil {
			if err := f.Chmod(mode); err != nil {
				return "", err
			}
		}

		return fmt.Sprintf("/proc/self/fd/%d", next+len(c.files)-1), nil
	}
	var err error
	if g.Disk == nil { // the kernel and the initrd are in the cache
		if g.Kernel, err = give(g.Kernel, os.O_RDONLY, 0o644); err == nil {
			g.Initrd, err = give(g.Initrd, os.O_RDONLY, 0o644)
		}
	}

	if err == nil {
		c.console, err = give(console, os.O_WRONLY|os.O_APPEND, 0o622)
	}

	if err != nil {
		c.close()
		return nil, err
	}

	// A QEMU that was built without seccomp support rejects the option.
	sandbox := []string{"-sandbox", vm.Sandbox}
	if _, err := host.Output(context.Background(), g.Program(), append(sandbox, "-version")...); err == nil {
		c.words = sandbox
	}

	return c, nil
}

// userFor returns the user as which to run QEMU, or nil for the current user. If u is nil and QEMU runs as
// root, root is the reason. An ordinary user has no privileges to drop, and its user namespace maps no other
// user.
func userFor(kvm bool) (u *host.User, root string) {
	ids, err := os.ReadFile("/proc/self/uid_map")
	if os.Geteuid() != 0 || err != nil || strings.Join(strings.Fields(string(ids)), " ") != "0 0 4294967295" {
		return nil, ""
	}

	if !kvm {
		return &host.User{ID: cagedUser}, ""
	}

	var device syscall.Stat_t
	if err := syscall.Stat("/dev/kvm", &device); err != nil {
		return nil, fmt.Sprintf("QEMU runs as root: /dev/kvm: %v", err)
	}

	return userOfKVM(device.Mode, device.Gid)
}

// userOfKVM returns a user that owns no files and can access /dev/kvm, which has the given mode and group. It
// never uses group root, because that group can read many files.
func userOfKVM(mode, group uint32) (u *host.User, root string) {
	u = &host.User{ID: cagedUser}
	switch {
	case mode&0o006 == 0o006:
		return u, ""
	case mode&0o060 == 0o060 && group != 0:
		u.Groups = []uint32{group}
		return u, ""
	}
	return nil, "QEMU runs as root: nobody else may use /dev/kvm, which distributions give to a group kvm"
}

func (c *cage) close() {
	for _, f := range c.files {
		f.Close()
	}

	c.files = nil
}
