package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// bootedAs describes how a machine process booted a guest.
type bootedAs struct {
	KVM bool   `json:"kvm"`
	Why string `json:"why,omitempty"` // reason why KVM failed, if it was tried
	// Root is the reason why QEMU runs as root, or "" if it does not.
	Root string `json:"root,omitempty"`
	agent.Arranged

	// These are the distribution and kernel release of a foreign guest.
	System  string `json:"system,omitempty"`
	Release string `json:"release,omitempty"`
}

// of returns a copy of g with the facts in b.
func (b bootedAs) of(g vm.Guest) vm.Guest {
	g.KVM = b.KVM
	if g.Disk != nil {
		g.Image.Release = b.Release
	}
	return g
}

func bootedFile(dir, node string) string {
	return filepath.Join(dir, filepath.Base(node)+".guest.json")
}

// KindOf returns the kind of lab whose routers are the given guests, as in record.Run.Lab.
func KindOf(guest *vm.Guest) string {
	switch {
	case guest == nil:
		return record.LabLocal
	case guest.Image.Arch == vm.NativeArch():
		return record.LabVM
	}
	return record.LabVM + ":" + guest.Image.Arch
}

// guestNodes returns the nodes that are guests, in the order of the topology.
func (o Local) guestNodes() (names []string) {
	for _, n := range o.Topology.Nodes {
		if n.Router {
			names = append(names, n.Name)
		}
	}
	return names
}

// bootedAs reads what the machine process of a node reported about its guest.
func (o Local) bootedAs(node string) (b bootedAs) {
	if text, err := os.ReadFile(bootedFile(o.dir(), node)); err == nil {
		json.Unmarshal(text, &b) // error ignored: another version may have written the file
	}
	return b
}

// describe sets the facts of a node that is a guest.
func (o Local) describe(n *Node) {
	n.Facts = record.NodeFacts{OwnKernel: true, CPUs: record.CPUsEmulated, Clock: record.ClockRelated}
	if o.bootedAs(n.Name).KVM {
		n.Facts.CPUs = record.CPUsVirtual
	}

	n.Trace = !slices.ContainsFunc(o.guestNodes(), func(name string) bool {
		return o.bootedAs(name).of(*o.Guest).Fragile()
	})
}

// guestNote describes the routers, including failed attempts to boot them.
func (o Local) guestNote() string {
	var said []string
	for _, name := range o.guestNodes() {
		b := o.bootedAs(name)
		as := b.of(*o.Guest)
		text := as.String()
		if b.System != "" {
			text += " of " + b.System
		}

		if b.Why != "" {
			text += " (" + b.Why + ")"
		}

		if b.Root != "" {
			text += "; " + b.Root
		}

		if as.Fragile() {
			text += ", which may hang: several emulated processors do not bear that a kernel patches its code"
		}

		if !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	return strings.Join(said, "; ")
}

func (o Local) guestFacts(ctx context.Context) map[string]string {
	guest := *o.Guest
	accels := map[bool]string{false: "tcg", true: "kvm"}
	var accel, interrupts []string
	system := ""
	for _, name := range o.guestNodes() {
		b := o.bootedAs(name)
		for _, port := range slices.Sorted(maps.Keys(b.Interrupts)) {
			interrupts = append(interrupts, port+" on "+b.Interrupts[port])
		}

		guest.KVM = guest.KVM || b.KVM
		if guest.Disk != nil {
			guest.Image.Release = b.Release
			system = b.System
		}

		accel = append(accel, accels[b.KVM])
	}

	facts := map[string]string{
		"guest_accel":     strings.Join(slices.Compact(accel), ", "),
		"guest_arch":      guest.Image.Arch,
		"guest_cpu_model": guest.CPUModel(),
		"guest_cpus":      strconv.Itoa(guest.VCPUs()),
		"guest_memory_mb": strconv.Itoa(guest.Memory()),
		"guest_kernel":    guest.Image.Release,
		"guest_image":     guest.Image.Key,
	}
	if len(interrupts) > 0 {
		facts["guest_irq_affinity"] = strings.Join(interrupts, ", ")
	}

	if guest.Disk != nil {
		facts["guest_image"], facts["guest_system"], facts["guest_login"] = guest.Disk.String(), system,
			guest.Disk.Login.String()
	}

	version := vm.CheckEmulator(ctx, guest.Image.Arch)
	if version.State == check.Yes && version.Reason != "" {
		facts["guest_qemu"] = strings.TrimPrefix(version.Reason, "QEMU emulator version ")
	}

	return facts
}

// consoleLines is the maximum number of console lines to quote.
const consoleLines = 6

// consoleMark precedes the output of each guest in the console file of a node. All guests of the node append
// to this file.
const consoleMark = "=== a guest is booted ==="

func markConsole(console string) error {
	f, err := os.OpenFile(console, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}

	_, err = fmt.Fprintf(f, "%s\n", consoleMark)
	return errors.Join(err, f.Close())
}

// These constants limit the size of a console file. If a guest does not stop writing, machine.guard truncates
// the file.
const (
	maxConsole  = 4 << 20
	keptConsole = 256 << 10
)

// cutConsole reduces a console file that is larger than maxConsole to its last keptConsole bytes. Programs
// that write to the file must append.
func cutConsole(console string) error {
	f, err := os.OpenFile(console, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil || i.Size() <= maxConsole {
		return err
	}

	end, err := io.ReadAll(io.NewSectionReader(f, i.Size()-keptConsole, keptConsole))
	if err == nil {
		err = f.Truncate(0)
	}

	if err == nil {
		_, err = f.Write(end)
	}

	return err
}

// readConsole returns the last maxConsole bytes of a console file, or all of it if it is smaller.
func readConsole(console string) ([]byte, error) {
	f, err := os.Open(console)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		return nil, err
	}

	return io.ReadAll(io.NewSectionReader(f, max(0, i.Size()-maxConsole), maxConsole))
}

// lastWords quotes QEMU's errors and the end of the guest's console output.
func lastWords(console string) string {
	complaint, _ := readConsole(console + ".qemu")
	said, _ := readConsole(console)
	i := bytes.LastIndex(said, []byte(consoleMark))
	if i >= 0 {
		said = said[i+len(consoleMark):]
	}

	return quoteConsole(slices.Concat(printable(complaint), printable(said)))
}

// printable returns the non-empty lines of a console's output.
func printable(b []byte) []string {
	var lines []string
	for l := range strings.Lines(check.Plain(string(b))) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	return lines
}

// alarms lists texts in fault messages of a kernel. Register dumps may follow such a message.
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

	most := consoleLines / 2
	if len(quoted) > 0 {
		tail = len(lines) - most
		quoted = append(quoted[max(0, len(quoted)-most):], "…")
	}

	return ": " + strings.Join(append(quoted, lines[tail:]...), " | ")
}

// consoleOf returns the path of the console file of a node.
func consoleOf(dir, node string) string { return filepath.Join(dir, filepath.Base(node)+".console") }

// replace writes a file that only this user can access. It replaces an existing file and does not follow
// links.
func replace(path string, data []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// keepConsoles copies the consoles of the lab's guests to dir as TOPOLOGY-NODE.console, because the originals
// are removed with the lab.
func (o Local) keepConsoles(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("keep consoles of lab %s: %w", o.ID, err)
	}

	var failed error
	for _, name := range o.Topology.Routers {
		said, err := readConsole(consoleOf(o.dir(), name))
		if err == nil {
			err = replace(consoleOf(dir, o.Topology.Name+"-"+name), said)
		}

		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("keep console of %s: %w", name, err))
		}
	}

	return failed
}
