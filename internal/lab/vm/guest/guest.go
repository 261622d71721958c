// Package guest implements the userland of a virtual machine that contains no other programs: init, which the
// kernel starts; modprobe, which the kernel runs; and the start of the agent on a port of the machine. The
// package does not depend on QEMU, images or the agent.
package guest

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// Serve acts as init if argv[0] is the name of init, and as modprobe if it is the name of modprobe. isGuest
// reports whether it did so, and code is the exit code. agentRole is the argument with which the program runs
// as an agent.
func Serve(argv []string, agentRole string) (code int, isGuest bool) {
	switch role(argv[0], os.Getpid()) {
	case "init":
		signals := make(chan os.Signal, 64)
		signal.Notify(signals, initSignals...)
		fmt.Fprintf(os.Stderr, "chokepoint: error: %v\n", Init(signals, []string{agentRole}))
		return 1, true
	case "modprobe":
		if !Modprobe(argv[1:]) {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// initSignals are the signals that Init handles.
var initSignals = []os.Signal{syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT}

// role returns "init" or "modprobe" if the program was started as such, and "" otherwise. It returns "init"
// only if both name and PID are those of init, because the first process in a container also has PID 1, and a
// user may start /init again.
func role(name string, pid int) string {
	base := filepath.Base(name)
	if base == "init" && pid == 1 || base == "modprobe" {
		return base
	}
	return ""
}

// These are names in the image and on the kernel's command line.
const (
	modulesFile = "etc/chokepoint/modules" // list of modules to load at boot, in this order, one per line
	portName    = "chokepoint.agent"       // name of both the virtio port and the kernel parameter
)

const searchPath = "/usr/sbin:/usr/bin:/sbin:/bin" // directories in an image that contain programs

// parameter returns the value of NAME=VALUE on the kernel's command line. As in the kernel, the last
// occurrence is used.
func parameter(cmdline, name string) (value string, ok bool) {
	for word := range strings.FieldsSeq(cmdline) {
		v, has := strings.CutPrefix(word, name+"=")
		if has {
			value, ok = v, true
		}
	}
	return value, ok
}

// serialDevice returns the device file of a serial port with a name such as ttyS1. It rejects names that are
// paths.
func serialDevice(name string) (string, error) {
	if !strings.HasPrefix(name, "tty") || strings.ContainsAny(name, "/.") {
		return "", fmt.Errorf("kernel parameter %s=%s: want a serial line such as ttyS1", portName, name)
	}
	return "/dev/" + name, nil
}

// virtioPort returns the device file of a virtio port, given the directory /sys/class/virtio-ports and the
// name of the port. It returns "" if the port does not exist yet.
func virtioPort(class, name string) string {
	ports, _ := filepath.Glob(filepath.Join(class, "*", "name")) // cannot fail, because the pattern is valid
	for _, file := range ports {
		b, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(b)) == name {
			return "/dev/" + filepath.Base(filepath.Dir(file))
		}
	}
	return ""
}

// moduleList parses a list of modules, which contains one name per line. Comments start with "#".
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

// oneLine returns the text of an error on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
