package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
)

func packageOf(g vm.Guest) string {
	switch g.Image.Arch {
	case "arm64":
		return "qemu-system-arm"
	case "mipsel":
		return "qemu-system-mips"
	}
	return "qemu-system-x86"
}

// consoleLines is how much of a guest's console is quoted.
const consoleLines = 6

// A guest's console is one file for all guests that a node has had; a mark comes before what each has said.
const consoleMark = "=== a guest is booted ==="

func markConsole(console string) error {
	f, err := os.OpenFile(console, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\n", consoleMark)
	return errors.Join(err, f.Close())
}

// lastWords quotes what QEMU complained of and the end of the guest's console.
func lastWords(console string) string {
	complaint, _ := os.ReadFile(console + ".qemu")
	said, _ := os.ReadFile(console)
	if i := bytes.LastIndex(said, []byte(consoleMark)); i >= 0 {
		said = said[i+len(consoleMark):]
	}
	return quoteConsole(slices.Concat(printable(complaint), printable(said)))
}

// printable are the lines of a console that say something.
func printable(b []byte) []string {
	b = bytes.Map(func(r rune) rune {
		if r < ' ' && r != '\n' {
			return -1
		}
		return r
	}, b)
	var lines []string
	for l := range strings.Lines(string(b)) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	return lines
}

// alarms begin what a kernel says of its own fault. Pages of registers may follow.
var alarms = []string{"Kernel panic", "BUG:", "Oops:", "Out of memory", "watchdog:", "rcu: INFO",
	"general protection fault"}

func quoteConsole(lines []string) string {
	if len(lines) == 0 {
		return " (it said nothing)"
	}
	tail := max(0, len(lines)-consoleLines)
	var quoted []string
	for _, l := range lines[:tail] {
		if slices.ContainsFunc(alarms, func(a string) bool { return strings.Contains(l, a) }) {
			quoted = append(quoted, l)
		}
	}
	if most := consoleLines / 2; len(quoted) > 0 {
		tail = len(lines) - most
		quoted = append(quoted[max(0, len(quoted)-most):], "…")
	}
	return ": " + strings.Join(append(quoted, lines[tail:]...), " | ")
}

// consoleOf is the file of a guest's console in the lab's directory.
func consoleOf(dir, node string) string { return filepath.Join(dir, filepath.Base(node)+".console") }

// keepConsoles copies the consoles of a lab's guests, which go with the lab, to TOPOLOGY-NODE.console in a
// directory.
func (o Local) keepConsoles(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("keep consoles of lab %s: %w", o.ID, err)
	}
	var failed error
	for _, name := range o.Topology.Routers {
		said, err := os.ReadFile(consoleOf(o.dir(), name))
		if err == nil {
			err = os.WriteFile(consoleOf(dir, o.Topology.Name+"-"+name), said, 0o644)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("keep console of %s: %w", name, err))
		}
	}
	return failed
}
