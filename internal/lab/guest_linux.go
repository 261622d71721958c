package lab

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
)

// bootedAs is what a machine process writes down of the guest that it has booted, where that is not known
// before.
type bootedAs struct {
	KVM bool   `json:"kvm"`
	Why string `json:"why,omitempty"` // why not KVM, although it was tried
	// Interrupts are the processors that serve those of each port.
	Interrupts map[string]string `json:"interrupts,omitempty"`

	// Of a foreign image: its distribution and its kernel.
	System  string `json:"system,omitempty"`
	Release string `json:"release,omitempty"`
}

// of completes what is known of a guest.
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

// guests tells how each node that is a guest was booted, in the order of the topology's nodes.
func (l *Lab) guests() []bootedAs {
	var out []bootedAs
	for _, n := range l.Topology.Nodes {
		name := n.Name
		if !l.OwnKernel(name) {
			continue
		}
		var b bootedAs
		if text, err := os.ReadFile(bootedFile(l.dir, name)); err == nil {
			json.Unmarshal(text, &b) // of another version: it tells nothing
		}
		out = append(out, b)
	}
	return out
}

// MayTrace reports whether tracepoints of a node may be switched: its machine is the lab's alone, and bears
// it, see vm.Guest.Fragile.
func (l *Lab) MayTrace(node string) bool {
	if !l.OwnKernel(node) {
		return false
	}
	return !slices.ContainsFunc(l.guests(), func(b bootedAs) bool { return b.of(*l.Guest).Fragile() })
}

// guestNote says what the routers are, and what was tried in vain.
func (l *Lab) guestNote() string {
	if l.Guest == nil {
		return ""
	}
	var said []string
	for _, b := range l.guests() {
		g := b.of(*l.Guest)
		text := g.String()
		if b.System != "" {
			text += " of " + b.System
		}
		if b.Why != "" {
			text += " (" + b.Why + ")"
		}
		if g.Fragile() {
			text += ", which may hang: several emulated processors do not bear that a kernel patches its code"
		}
		if !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	return strings.Join(said, "; ")
}

// GuestFacts are what a reader must know of the routers that are guests, to compare their numbers with
// others'. There are none if they are not.
func (l *Lab) GuestFacts(ctx context.Context) map[string]string {
	if l.Guest == nil {
		return nil
	}
	g := *l.Guest
	accels := map[bool]string{false: "tcg", true: "kvm"}
	var accel, interrupts []string
	system := ""
	for _, b := range l.guests() {
		for _, port := range slices.Sorted(maps.Keys(b.Interrupts)) {
			interrupts = append(interrupts, port+" on "+b.Interrupts[port])
		}
		g.KVM = g.KVM || b.KVM
		if g.Disk != nil {
			g.Image.Release, system = b.Release, b.System
		}
		accel = append(accel, accels[b.KVM])
	}
	facts := map[string]string{
		"guest_accel":     strings.Join(slices.Compact(accel), ", "),
		"guest_arch":      g.Image.Arch,
		"guest_cpu_model": g.CPUModel(),
		"guest_cpus":      strconv.Itoa(g.VCPUs()),
		"guest_memory_mb": strconv.Itoa(g.Memory()),
		"guest_kernel":    g.Image.Release,
		"guest_image":     g.Image.Key,
	}
	if len(interrupts) > 0 {
		facts["guest_irq_affinity"] = strings.Join(interrupts, ", ")
	}
	if g.Disk != nil {
		facts["guest_image"], facts["guest_system"], facts["guest_login"] = g.Disk.String(), system,
			g.Disk.Login.String()
	}
	if version := qemuVersion(ctx, g); version != "" {
		facts["guest_qemu"] = version
	}
	return facts
}

// qemuVersion is the first line of what the emulator says of itself.
func qemuVersion(ctx context.Context, g vm.Guest) string {
	out, err := host.Run(ctx, host.Local(), host.Command{Path: g.Program(), Args: []string{"--version"}})
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(strings.TrimSpace(first), "QEMU emulator version ")
}
