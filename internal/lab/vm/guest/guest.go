// Package guest implements the userland of a virtual machine that contains no other programs: init, which the
// kernel starts, modprobe, which the kernel runs, and starting the agent on the machine's port. It does not
// depend on QEMU, images or the agent.
package guest

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// Serve acts as init or modprobe if argv[0] is that name. It reports whether it did so, and the exit code.
// agentRole is the program's argument that makes it an agent.
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

// initSignals are the signals that Init handles.
var initSignals = []os.Signal{syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT}

// role returns "init" or "modprobe" if the program was started as such, else "". init requires both the name
// and PID 1, because the first process in a container has PID 1, too, and a user may start /init again.
func role(name string, pid int) string {
	base := filepath.Base(name)
	if base == "init" && pid == 1 || base == "modprobe" {
		return base
	}
	return ""
}

// Names in the image and on the kernel's command line.
const (
	modulesFile = "etc/chokepoint/modules" // modules to load at boot, one per line, in order
	portName    = "chokepoint.agent"       // name of the virtio port and of the kernel parameter
)

const searchPath = "/usr/sbin:/usr/bin:/sbin:/bin" // directories of programs in an image

// parameter returns the value of NAME=VALUE on the kernel's command line. The last occurrence counts, as in
// the kernel.
func parameter(cmdline, name string) (value string, ok bool) {
	for word := range strings.FieldsSeq(cmdline) {
		v, has := strings.CutPrefix(word, name+"=")
		if has {
			value, ok = v, true
		}
	}
	return value, ok
}

// serialDevice returns the device file for a serial port's name, such as ttyS1. It rejects paths.
func serialDevice(name string) (string, error) {
	if !strings.HasPrefix(name, "tty") || strings.ContainsAny(name, "/.") {
		return "", fmt.Errorf("kernel parameter %s=%s: want a serial line such as ttyS1", portName, name)
	}
	return "/dev/" + name, nil
}

// virtioPort returns the device file of a virtio port, given the directory /sys/class/virtio-ports and the
// port's name, or "" if it does not exist yet.
func virtioPort(class, name string) string {
	ports, _ := filepath.Glob(filepath.Join(class, "*", "name")) // the pattern is valid
	for _, file := range ports {
		b, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(b)) == name {
			return "/dev/" + filepath.Base(filepath.Dir(file))
		}
	}
	return ""
}

// moduleList parses the list of modules: one name per line, with "#" comments.
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

// oneLine returns an error's text on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
