// Package guest implements the first processes of a virtual machine whose only userland is the program
// itself: the init that the kernel starts, the modprobe that the kernel calls, and the start of the agent on
// the machine's port. It does not depend on QEMU, on images, or on the agent's work.
package guest

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// Serve runs a program that a guest's kernel, or its user, started by name: as the first process or as
// modprobe. It reports whether this is one, and the exit code. agentRole makes the program an agent.
func Serve(argv []string, agentRole string) (code int, isGuest bool) {
	switch role(argv[0], os.Getpid()) {
	case "init":
		signals := make(chan os.Signal, 64)
		signal.Notify(signals, initSignals...)
		fmt.Fprintf(os.Stderr, "chokepoint: error: %v\n", Init(signals, []string{agentRole}))
		return 1, true
	case "modprobe":
		if !Modprobe(argv[1:], os.Stderr) {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// initSignals lists the signals that Init handles.
var initSignals = []os.Signal{syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT}

// role returns "init", "modprobe" or "", by the name under which the program was started. Neither the name
// nor number 1 alone identifies init: the first process of a container has number 1 as well, and a user may
// start /init a second time.
func role(name string, pid int) string {
	base := filepath.Base(name)
	if base == "init" && pid == 1 || base == "modprobe" {
		return base
	}
	return ""
}

// Files of the image, below its root.
const (
	modulesFile = "etc/chokepoint/modules" // loaded at boot, one per line, in order
	portName    = "chokepoint.agent"       // of the virtio port, and the kernel's parameter
)

const searchPath = "/usr/sbin:/usr/bin:/sbin:/bin" // where an image keeps its programs

// parameter finds NAME=VALUE on the kernel's command line; the last one counts, as in the kernel.
func parameter(cmdline, name string) (value string, ok bool) {
	for word := range strings.FieldsSeq(cmdline) {
		v, has := strings.CutPrefix(word, name+"=")
		if has {
			value, ok = v, true
		}
	}
	return value, ok
}

// serialDevice returns the device file of a serial line on the kernel's command line: a name such as ttyS1,
// not a path.
func serialDevice(name string) (string, error) {
	if !strings.HasPrefix(name, "tty") || strings.ContainsAny(name, "/.") {
		return "", fmt.Errorf("kernel parameter %s=%s: want a serial line such as ttyS1", portName, name)
	}
	return "/dev/" + name, nil
}

// virtioPort finds the device file of a virtio port by name, below /sys/class/virtio-ports; "" = none yet.
func virtioPort(class, name string) string {
	ports, _ := filepath.Glob(filepath.Join(class, "*", "name")) // the pattern is well formed
	for _, file := range ports {
		b, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(b)) == name {
			return "/dev/" + filepath.Base(filepath.Dir(file))
		}
	}
	return ""
}

// moduleList parses the list of modules to load at boot: one name per line; "#" begins a comment.
func moduleList(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			names = append(names, line)
		}
	}
	return names
}

// oneLine returns an error as one line, for a console or a line-based log.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
