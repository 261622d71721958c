package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// aloneName is the name prefix of the sockets by which controllers of a machine find each other. At most one
// controller may change settings of a machine at a time. Each controller announces itself first and then
// looks for others, so if two start at the same time, at most one continues.
//
// An agent or its guard announces itself with an abstract Unix socket in its network namespace. The socket
// vanishes with the process (unix(7)). Its name consists of this prefix, the process ID and a random part. A
// driver cannot leave a process with such a socket on the machine. Instead, the guard of a driver is a script
// with a directory (see package driver). This script also looks for the sockets. Sockets and directories
// count only if they belong to root or this user, so that other users cannot block a controller.
const aloneName = "@chokepoint-agent-machine-"

// guardFolders lists the parent directories in which a driver's guard may create its directory.
const guardFolders = "/run /tmp /dev/shm /var/tmp"

// aloneWait is the maximum time to wait until another controller's agent has exited. If that controller was
// killed, the agent undoes its changes and exits within this time.
const aloneWait = 3 * time.Second

// alone reserves the machine for one controller until this process ends.
type alone struct {
	mu   sync.Mutex
	lock net.Listener
}

// take reserves the machine. It returns errTaken if another controller has it.
func (a *alone) take(ctx context.Context) error {
	return a.wait(ctx, func() error {
		name := fmt.Sprintf("%s%d-%x", aloneName, os.Getpid(), rand.Uint64())
		l, err := net.Listen("unix", name)
		if err != nil {
			return fmt.Errorf("take the machine for one controller: %w", err)
		}

		if err := others(name); err != nil {
			return errors.Join(err, l.Close())
		}

		a.lock = l
		return nil
	})
}

// free returns errTaken if another controller has reserved the machine. It reserves nothing.
func (a *alone) free(ctx context.Context) error {
	return a.wait(ctx, func() error { return others("") })
}

var errTaken = errors.New("another controller has set something on this machine")

// wait calls the function try repeatedly until it returns nil or an error other than errTaken, but not for
// longer than aloneWait. The pauses are random, so that two controllers do not collide repeatedly. If the
// machine is already reserved for our controller, wait returns nil at once.
func (a *alone) wait(ctx context.Context, try func() error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lock != nil {
		return nil
	}

	for end := time.Now().Add(aloneWait); ; {
		err := try()
		if !errors.Is(err, errTaken) || time.Now().After(end) {
			return err
		}

		pause := 100*time.Millisecond + rand.N(200*time.Millisecond)
		if err := host.Pause(ctx, pause); err != nil {
			return err
		}
	}
}

// others returns errTaken if an agent or guard of another controller runs on the machine.
func others(own string) error {
	const sockets = "/proc/thread-self/net/unix"
	b, err := os.ReadFile(sockets)
	if err != nil {
		return fmt.Errorf("look for other controllers: %w", err)
	}

	for line := range strings.Lines(string(b)) {
		// The fields are Num RefCount Protocol Flags Type St Inode Path.
		f := strings.Fields(line)
		if len(f) != 8 || f[7] == own || !strings.HasPrefix(f[7], aloneName) {
			continue
		}

		pid, _, _ := strings.Cut(strings.TrimPrefix(f[7], aloneName), "-")
		if holds(pid, f[6]) {
			return taken("its agent is process " + pid)
		}
	}

	net, err := os.Readlink("/proc/thread-self/ns/net")
	// A kernel without network namespaces has no such file.
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for other controllers: %w", err)
	}

	for _, top := range strings.Fields(guardFolders) {
		found, _ := filepath.Glob(top + "/chokepoint-guard-*") // cannot fail, because the pattern is valid
		for _, dir := range found {
			if guards(dir, net) {
				return taken("its guard is " + dir)
			}
		}
	}

	return nil
}

func taken(by string) error {
	return check.WithHint(fmt.Errorf("%w: %s", errTaken, check.Plain(by)), "wait until its run has ended; "+
		"if that was killed, run chokepoint lab restore where it was started")
}

// trusted reports whether path belongs to root or this user.
func trusted(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}

	owner := info.Sys().(*syscall.Stat_t).Uid
	return owner == 0 || int(owner) == os.Geteuid()
}

// holds reports whether the process pid, which root or this user owns, has the socket with the given inode
// open. If it has no permission to list the descriptors of the process, it only checks whether the process is
// the guard of an agent.
func holds(pid, inode string) bool {
	dir := "/proc/" + pid
	if !isNumber(pid) || !trusted(dir) {
		return false
	}

	files, err := os.ReadDir(dir + "/fd")
	if errors.Is(err, fs.ErrPermission) {
		b, err := os.ReadFile(dir + "/cmdline")
		return err == nil && bytes.HasSuffix(b, []byte("\x00"+GuardRole+"\x00"))
	}

	for _, f := range files {
		if to, err := os.Readlink(dir + "/fd/" + f.Name()); err == nil && to == "socket:["+inode+"]" {
			return true
		}
	}

	return false
}

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// guards reports whether dir belongs to a driver's guard that has settings to undo in the network namespace
// net.
func guards(dir, net string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || !trusted(dir) {
		return false
	}

	if _, err := os.Lstat(dir + "/touched"); err != nil {
		return false
	}

	b, err := os.ReadFile(dir + "/pid")
	pid, _, _ := strings.Cut(string(b), "\n")
	if err != nil || !isNumber(pid) {
		return false
	}

	line, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil || !bytes.Contains(line, []byte("chokepoint-guard")) {
		return false
	}

	at, err := os.Readlink("/proc/" + pid + "/ns/net")
	return err != nil || at == net
}
