package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// PortName names the virtio port that the guest's agent serves; our end is QEMU's standard input and output.
const PortName = "chokepoint.agent"

// Guest is a virtual machine to run. Zero sizes mean those of a usual router.
type Guest struct {
	Image    Image  `json:"image"`
	Kernel   string `json:"kernel"` // file, as in Image; its own modules are not transmitted
	Initrd   string `json:"initrd"`
	CPUs     int    `json:"cpus,omitempty"`      // 0 = see VCPUs
	MemoryMB int    `json:"memory_mb,omitempty"` // 0 = 320
	Model    string `json:"model,omitempty"`     // of the vCPUs; "" = see board
	KVM      bool   `json:"kvm,omitempty"`
	// of its kernel against CPU vulnerabilities: "auto", "off"; "" = auto with KVM, where speed matters, else
	// off
	Mitigations string `json:"mitigations,omitempty"`
	// a foreign image, booted instead of Image; Image then only gives the architecture
	Disk *Disk `json:"disk,omitempty"`
}

// NewGuest returns a guest for an image.
func NewGuest(img Image) Guest { return Guest{Image: img, Kernel: img.Kernel, Initrd: img.Initrd} }

// board describes QEMU's machine for an architecture. The CPU models are the fastest under emulation: vector
// instructions cost more there than they save.
type board struct {
	program string
	machine []string
	model   string
	cpus    int      // for an emulated guest, unless specified
	most    int      // vCPUs that the board can have; 0 = any number
	console string   // the kernel's name of the first serial line
	cmdline []string // additional kernel parameters
	slots   []string // PCI addresses of the ports; nil = any
	serial  bool     // the agent's line is the second UART
	single  bool     // see SingleCore
}

var boards = map[string]board{
	"amd64": {
		program: "qemu-system-x86_64",
		machine: []string{"-M", "q35"},
		model:   "qemu64",
		cpus:    1,
		console: "ttyS0",
		cmdline: []string{"tsc=reliable", "no_timer_check"},
	},
	"arm64": {
		program: "qemu-system-aarch64",
		machine: []string{"-M", "virt,gic-version=3"},
		model:   "cortex-a53",
		cpus:    2,
		console: "ttyAMA0",
	},
	// Two devices on the same one of the board's two PCI interrupt lines stall under load, so there is no
	// third port.
	"mipsel": {
		program: "qemu-system-mipsel",
		machine: []string{"-M", "malta"},
		model:   "24Kf",
		cpus:    1,
		most:    1,
		console: "ttyS0",
		slots:   []string{"0x12", "0x14"},
		serial:  true,
		single:  true,
	},
}

// Sandbox is the value of QEMU's option -sandbox: no system calls to start a program, to gain rights, or to
// use more resources than it is given.
const Sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

// Program returns the emulator for the guest's architecture.
func (g Guest) Program() string { return boards[g.Image.Arch].program }

// SingleCore reports whether the emulator must run all its threads on one core of the machine. QEMU changes
// the pending interrupts of a MIPS CPU from two threads without a lock (CP0_Cause, in
// target/mips/sysemu/cp0_timer.c and hw/mips/mips_int.c): on two busy cores an interrupt is lost or left
// pending within a minute, and the guest hangs, at times with "irq 23: nobody cared".
func (g Guest) SingleCore() bool { return boards[g.Image.Arch].single && !g.KVM }

// MaxCPUs returns how many vCPUs a guest of an architecture can have, 0 = any.
func MaxCPUs(arch string) int { return boards[arch].most }

// HardwareAddr returns the locally administered address of the i-th port of the n-th guest of a lab.
func HardwareAddr(n, i int) net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, 0, byte(n + 1), byte(i + 1)}
}

// Args returns QEMU's command line. taps are the descriptors of the ports' taps in QEMU's process, in the
// order of macs; its console is appended to the file console. Standard input and output are the agent's line.
func (g Guest) Args(name string, taps []int, macs []net.HardwareAddr, console string) []string {
	b := boards[g.Image.Arch]
	a := []string{"-name", name + ",debug-threads=on", "-nodefaults", "-no-user-config", "-display", "none",
		"-no-reboot"}
	a = append(a, b.machine...)
	a = append(a, "-smp", strconv.Itoa(g.VCPUs()), "-m", strconv.Itoa(g.Memory()))
	accel := "tcg"
	if g.KVM {
		accel = "kvm"
	} else if g.VCPUs() > 1 {
		accel = "tcg,thread=multi"
	}

	a = append(a, "-accel", accel, "-cpu", g.CPUModel())
	mitigations := "off" // it costs an emulated CPU time, and protects nothing
	if g.KVM {
		mitigations = "auto"
	}

	// To boot faster, addresses are not randomised and the kernel's own tests of ciphers do not run.
	words := append([]string{"console=" + b.console, "quiet", "loglevel=4", "panic=-1", "nokaslr",
		"mitigations=" + cmp.Or(g.Mitigations, mitigations), "cryptomgr.notests"}, b.cmdline...)
	a = append(a, "-chardev", g.Disk.console(console), "-serial", "chardev:console", "-chardev",
		"stdio,id=agent,signal=off")
	if b.serial {
		words = append(words, PortName+"=ttyS1")
		a = append(a, "-serial", "chardev:agent")
	} else {
		a = append(a, "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name="+
			PortName, "-device", "virtio-rng-pci,romfile=")
	}

	if g.Disk != nil {
		a = append(a, g.Disk.args()...)
	} else {
		a = append(a, "-kernel", g.Kernel, "-initrd", g.Initrd, "-append", strings.Join(words, " "))
	}

	for i, fd := range taps {
		device := fmt.Sprintf("virtio-net-pci,netdev=n%d,mac=%s,romfile=", i, macs[i])
		if b.slots != nil {
			device += ",addr=" + b.slots[i]
		}

		a = append(a, "-netdev", fmt.Sprintf("tap,id=n%d,fd=%d", i, fd), "-device", device)
	}

	return a
}

// VCPUs returns the guest's number of vCPUs: two with KVM, and one if several do not work under emulation.
func (g Guest) VCPUs() int {
	b := boards[g.Image.Arch]
	switch {
	case b.most == 1:
		return 1
	case g.KVM:
		return cmp.Or(g.CPUs, 2)
	}
	return cmp.Or(g.CPUs, b.cpus)
}

// Fragile reports whether the guest may hang or crash through no fault of its own. A kernel patches code that
// its other vCPUs run (static keys, used by sockets' time stamps and nftables' hooks, and tracepoints:
// text_poke_bp in arch/x86/kernel/alternative.c). With a thread for each vCPU, QEMU 7.2 may continue to run
// the old code: of three guests with two vCPUs on a busy machine, none survived 10,000 switches
// (docs/measured). With one thread for two vCPUs, each waits for the other, which shows in a queue's delays.
func (g Guest) Fragile() bool { return !g.KVM && g.Image.Arch == "amd64" && g.VCPUs() > 1 }

// Memory returns the guest's memory, in MB.
func (g Guest) Memory() int { return cmp.Or(g.MemoryMB, 320) }

// CPUModel returns the model of the guest's vCPUs.
func (g Guest) CPUModel() string {
	switch {
	case g.KVM:
		return cmp.Or(g.Model, "host")
	case g.Disk != nil:
		return cmp.Or(g.Model, diskModel)
	}
	return cmp.Or(g.Model, boards[g.Image.Arch].model)
}

// comma doubles the commas of a value, as QEMU requires.
func comma(text string) string { return strings.ReplaceAll(text, ",", ",,") }

// String describes the guest.
func (g Guest) String() string {
	accel := "emulated"
	if g.KVM {
		accel = "KVM"
	}

	what := "QEMU guest"
	if g.Disk != nil {
		what = "QEMU guest from disk image " + filepath.Base(g.Disk.File)
	}

	return fmt.Sprintf("%s, %s, %s, CPU %s × %d, %d MB, Linux %s", what, g.Image.Arch, accel,
		g.CPUModel(), g.VCPUs(), g.Memory(), g.Image.Release)
}

// CheckEmulator reports whether the emulator for an architecture exists, and its version.
func CheckEmulator(ctx context.Context, arch string) check.Answer {
	g := Guest{Image: Image{Arch: arch}}
	out, err := host.Run(ctx, host.Local(), host.Command{Path: g.Program(), Args: []string{"--version"}})
	version, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	switch {
	case errors.Is(err, host.ErrUnsupported):
		return check.Not("%s is not installed", g.Program()).Hinted("install %s (Debian, Ubuntu)",
			g.Package())
	case err != nil:
		return check.CouldNotTell("%v", err)
	}

	return check.OKBecause("%s", version)
}

// Package returns the distribution's package that contains the emulator.
func (g Guest) Package() string {
	switch g.Image.Arch {
	case "arm64":
		return "qemu-system-arm"
	case "mipsel":
		return "qemu-system-mips"
	}
	return "qemu-system-x86"
}

// CheckKVM reports whether this machine may try hardware virtualisation for a guest. Only booting a guest
// shows that it works.
func CheckKVM(arch string) check.Answer {
	if arch != NativeArch() {
		return check.Not("a guest of %s on a machine of %s", arch, NativeArch())
	}

	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return check.Not("open /dev/kvm: %v", err)
	}

	f.Close()
	return check.OK()
}
