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

// PortName is of the virtio port that the guest's agent serves; our end is QEMU's standard input and output.
const PortName = "chokepoint.agent"

// Guest is a virtual machine to be run. The zero values of its sizes are those of a usual router.
type Guest struct {
	Image    Image  `json:"image"`
	Kernel   string `json:"kernel"` // file, as in Image, whose own do not travel
	Initrd   string `json:"initrd"`
	CPUs     int    `json:"cpus,omitempty"`      // 0 = see VCPUs
	MemoryMB int    `json:"memory_mb,omitempty"` // 0 = 320
	Model    string `json:"model,omitempty"`     // of the vCPUs; "" = see board
	KVM      bool   `json:"kvm,omitempty"`
	// of its kernel against faults of CPUs: "auto", "off"; "" = auto with KVM, where speeds count, else off
	Mitigations string `json:"mitigations,omitempty"`
	// a foreign image, booted instead of Image; Image gives the architecture alone
	Disk *Disk `json:"disk,omitempty"`
}

// NewGuest is a guest of an image.
func NewGuest(img Image) Guest { return Guest{Image: img, Kernel: img.Kernel, Initrd: img.Initrd} }

// board gives how QEMU is told to make a machine of an architecture. CPU models are the ones that are
// quickest under emulation: vector instructions cost more there than they save.
type board struct {
	program string
	machine []string
	model   string
	cpus    int      // of an emulated guest, unless it is told otherwise
	most    int      // vCPUs that the board can have; 0 = any number
	console string   // the kernel's name of the first serial line
	cmdline []string // further words for the kernel
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
	// Two devices on one of the board's two PCI interrupt lines stall under load, so there is no third port.
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

// Sandbox are the words of QEMU's option -sandbox: no system calls to start a program, to gain rights, or to
// take more of the machine than it is given.
const Sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

// Program is the emulator of the guest's architecture.
func (g Guest) Program() string { return boards[g.Image.Arch].program }

// SingleCore reports whether the emulator must have one core of the machine for all its threads. QEMU
// changes the interrupts that wait at a MIPS CPU from two threads without a lock (CP0_Cause, in
// target/mips/sysemu/cp0_timer.c and hw/mips/mips_int.c): on two busy cores one is lost or left over within
// a minute, and the guest hangs, at times with "irq 23: nobody cared".
func (g Guest) SingleCore() bool { return boards[g.Image.Arch].single && !g.KVM }

// MaxCPUs returns how many vCPUs a guest of an architecture can have, 0 = any.
func MaxCPUs(arch string) int { return boards[arch].most }

// HardwareAddr is the locally administered address of the i-th port of the n-th guest of a lab.
func HardwareAddr(n, i int) net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, 0, byte(n + 1), byte(i + 1)}
}

// Args is QEMU's command line. taps are the descriptors of the ports' taps in QEMU's process, in the order of
// macs; console is the file that its console is appended to. Standard input and output are the agent's line.
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
	mitigations := "off" // which cost an emulated CPU time, and protect nothing
	if g.KVM {
		mitigations = "auto"
	}

	// For time at boot, addresses are not randomised and the kernel's own tests of ciphers do not run.
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

// VCPUs returns how many the guest has: two with KVM, and one where several do not bear emulation.
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

// Fragile reports whether the guest may hang or crash for no reason of its own. A kernel patches code that
// its other vCPUs run (static keys, as sockets' time stamps and nftables' hooks have them, and tracepoints:
// text_poke_bp in arch/x86/kernel/alternative.c). With a thread for each vCPU, QEMU 7.2 may go on running
// what was there before: of three guests of two vCPUs on a busy machine none lasted 10,000 switches
// (docs/measured). One thread for two vCPUs has each wait for the other, which a queue's delays show.
func (g Guest) Fragile() bool { return !g.KVM && g.Image.Arch == "amd64" && g.VCPUs() > 1 }

// Memory is the guest's, in MB.
func (g Guest) Memory() int { return cmp.Or(g.MemoryMB, 320) }

// CPUModel is the model of the guest's vCPUs.
func (g Guest) CPUModel() string {
	switch {
	case g.KVM:
		return cmp.Or(g.Model, "host")
	case g.Disk != nil:
		return cmp.Or(g.Model, diskModel)
	}
	return cmp.Or(g.Model, boards[g.Image.Arch].model)
}

// comma doubles the commas of a value, as QEMU wants them.
func comma(text string) string { return strings.ReplaceAll(text, ",", ",,") }

// String says in words what the guest is.
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

// CheckEmulator says whether the emulator of an architecture is there, and which version it is.
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

// Package is the distribution's package that has the emulator.
func (g Guest) Package() string {
	switch g.Image.Arch {
	case "arm64":
		return "qemu-system-arm"
	case "mipsel":
		return "qemu-system-mips"
	}
	return "qemu-system-x86"
}

// CheckKVM says whether this machine may try hardware virtualisation for a guest. That it works is only
// known once a guest has booted with it.
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
