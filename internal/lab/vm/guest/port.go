package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// parameter finds NAME=VALUE on the kernel's command line; the last one counts, as in the kernel.
func parameter(cmdline, name string) (value string, ok bool) {
	for word := range strings.FieldsSeq(cmdline) {
		if v, has := strings.CutPrefix(word, name+"="); has {
			value, ok = v, true
		}
	}
	return value, ok
}

// serialDevice is the device file of a serial line named on the kernel's command line, which is ttyS1 or
// the like and no path.
func serialDevice(name string) (string, error) {
	if !strings.HasPrefix(name, "tty") || strings.ContainsAny(name, "/.") {
		return "", fmt.Errorf("kernel parameter %s=%s: want a serial line such as ttyS1", portName, name)
	}
	return "/dev/" + name, nil
}

// virtioPort finds the device file of the virtio port with a name, below /sys/class/virtio-ports; it is ""
// if there is none yet.
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

// moduleList reads which modules are loaded at boot: one name per line; "#" begins a comment.
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

// oneLine is an error for a console or a log, of which each line is an entry.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
