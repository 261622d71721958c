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

// PortName is the name of the virtio port that the agent of a guest serves. QEMU connects the port to its own
// standard input and output.
const PortName = "chokepoint.agent"

// Guest describes a virtual machine. If a size is zero, the default for a typical router is used.
type Guest struct {
	Image    Image  `json:"image"`
	Kernel   string `json:"kernel"` // path of the kernel; Initrd contains its modules
	Initrd   string `json:"initrd"`
	CPUs     int    `json:"cpus,omitempty"`      // 0 means the default; see VCPUs
	MemoryMB int    `json:"memory_mb,omitempty"` // 0 means 320
	Model    string `json:"model,omitempty"`     // CPU model; "" means the default; see CPUModel
	KVM      bool   `json:"kvm,omitempty"`
	// Mitigations is the value of the kernel parameter mitigations, "auto" or "off". "" means auto with KVM
	// and off under emulation.
	Mitigations string `json:"mitigations,omitempty"`
	// Disk is the user's image to boot instead of Image. The Arch of Image still applies.
	Disk *Disk `json:"disk,omitempty"`
}

// NewGuest returns a guest that boots from img.
func NewGuest(img Image) Guest { return Guest{Image: img, Kernel: img.Kernel, Initrd: img.Initrd} }

// board describes the machine that QEMU emulates for an architecture. Its CPU model is the fastest under
// emulation, where vector instructions take more time than they save.
type board struct {
	program string
	debian  string // name of the Debian package that contains the program
	machine string
	model   string
	cpus    int      // default number of vCPUs under emulation
	most    int      // maximum number of vCPUs; 0 means unlimited
	cmdline string   // kernel parameters, including the name of the first serial port
	slots   []string // PCI addresses of the ports; nil means any
	serial  bool     // whether the agent is connected to the second UART
	single  bool     // whether all threads must run on one core; see SingleCore
}

var boards = map[string]board{
	"amd64": {
		program: "qemu-system-x86_64",
		debian:  "qemu-system-x86",
		machine: "q35",
		model:   "qemu64",
		cpus:    1,
		cmdline: "console=ttyS0 tsc=reliable no_timer_check",
	},
	"arm64": {
		program: "qemu-system-aarch64",
		debian:  "qemu-system-arm",
		machine: "virt,gic-version=3",
		model:   "cortex-a53",
		cpus:    2,
		cmdline: "console=ttyAMA0",
	},
	// malta has only two usable PCI interrupt lines, and two devices on the same line stall under load.
	// Therefore, there is no third port.
	"mipsel": {
		program: "qemu-system-mipsel",
		debian:  "qemu-system-mips",
		machine: "malta",
		model:   "24Kf",
		cpus:    1,
		most:    1,
		cmdline: "console=ttyS0 " + PortName + "=ttyS1",
		slots:   []string{"0x12", "0x14"},
		serial:  true,
		single:  true,
	},
}

// Sandbox is the value of QEMU's option -sandbox. It denies system calls that start programs, gain privileges
// or change resource limits.
const Sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

// Program returns the name of the emulator for the architecture of the guest.
func (g Guest) Program() string { return boards[g.Image.Arch].program }

// SingleCore reports whether all threads of the emulator must run on one core. Two threads of QEMU change the
// pending interrupts of a MIPS CPU (CP0_Cause) without a lock (target/mips/sysemu/cp0_timer.c,
// hw/mips/mips_int.c). If they run on two busy cores, it takes less than a minute until an interrupt is lost
// or remains pending. The guest then hangs, sometimes with "irq 23: nobody cared".
func (g Guest) SingleCore() bool { return boards[g.Image.Arch].single && !g.KVM }

// MaxCPUs returns the maximum number of vCPUs of a guest. 0 means unlimited.
func MaxCPUs(arch string) int { return boards[arch].most }

// HardwareAddr returns the hardware address of the i-th port of the n-th guest in a lab. The address is
// locally administered.
func HardwareAddr(n, i int) net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, 0, byte(n + 1), byte(i + 1)}
}

// Args returns the command line of QEMU. In the QEMU process, the file descriptors from 3 on are the taps of
// the ports with the hardware addresses macs. The console output of the guest is appended to the file
// console. The port of the agent is connected to standard input and output.
func (g Guest) Args(name string, macs []net.HardwareAddr, console string) []string {
	b := boards[g.Image.Arch]
	accel := "tcg"
	mitigations := "off" // under emulation, mitigations take CPU time but protect nothing
	switch {
	case g.KVM:
		accel, mitigations = "kvm", "auto"
	case g.VCPUs() > 1:
		accel = "tcg,thread=multi"
	}

	a := []string{"-name", name + ",debug-threads=on", "-nodefaults", "-no-user-config", "-display", "none",
		"-no-reboot", "-M", b.machine, "-smp", strconv.Itoa(g.VCPUs()), "-m", strconv.Itoa(g.Memory()),
		"-accel", accel, "-cpu", g.CPUModel(), "-chardev", g.Disk.console(console), "-serial",
		"chardev:console", "-chardev", "stdio,id=agent,signal=off"}
	if b.serial {
		a = append(a, "-serial", "chardev:agent")
	} else {
		a = append(a, strings.Fields("-device virtio-serial-pci -device virtio-rng-pci,romfile= -device "+
			"virtserialport,chardev=agent,name="+PortName)...)
	}

	if g.Disk != nil {
		a = append(a, g.Disk.args()...)
	} else {
		// nokaslr and cryptomgr.notests shorten the boot.
		a = append(a, "-kernel", g.Kernel, "-initrd", g.Initrd, "-append", b.cmdline+
			" quiet loglevel=4 panic=-1 nokaslr cryptomgr.notests mitigations="+
			cmp.Or(g.Mitigations, mitigations))
	}

	for i, mac := range macs {
		device := fmt.Sprintf("virtio-net-pci,netdev=n%d,mac=%s,romfile=", i, mac)
		if b.slots != nil {
			device += ",addr=" + b.slots[i]
		}

		a = append(a, "-netdev", fmt.Sprintf("tap,id=n%d,fd=%d", i, 3+i), "-device", device)
	}

	return a
}

// VCPUs returns the number of vCPUs. The default with KVM is two.
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

// Fragile reports whether QEMU may make the guest hang or crash. A kernel modifies code while its other vCPUs
// execute it (static keys for socket time stamps and nftables hooks, and tracepoints; see text_poke_bp in
// arch/x86/kernel/alternative.c). If each vCPU has a thread, QEMU 7.2 may continue to execute the old code:
// on a busy machine, none of three guests with two vCPUs survived 10,000 changes (docs/measured). A single
// thread for all vCPUs would avoid this, but each vCPU would then wait for the others, which distorts
// queueing delays.
func (g Guest) Fragile() bool { return !g.KVM && g.Image.Arch == "amd64" && g.VCPUs() > 1 }

// Memory returns the size of the guest's memory in MB.
func (g Guest) Memory() int { return cmp.Or(g.MemoryMB, 320) }

// CPUModel returns QEMU's name of the CPU model.
func (g Guest) CPUModel() string {
	switch {
	case g.KVM:
		return cmp.Or(g.Model, "host")
	case g.Disk != nil:
		return cmp.Or(g.Model, diskModel)
	}
	return cmp.Or(g.Model, boards[g.Image.Arch].model)
}

// comma escapes the commas in the value of a QEMU option.
func comma(text string) string { return strings.ReplaceAll(text, ",", ",,") }

// String returns a description of the guest for users.
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

// CheckEmulator reports whether the emulator for an architecture is installed, and in which version.
func CheckEmulator(ctx context.Context, arch string) check.Answer {
	g := Guest{Image: Image{Arch: arch}}
	out, err := host.Output(ctx, g.Program(), "--version")
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

// Package returns the name of the Debian package that contains the emulator.
func (g Guest) Package() string { return boards[g.Image.Arch].debian }

// CheckKVM reports whether this machine has KVM and this user may use it for a guest of arch. Whether KVM
// works can be found out only by booting a guest; see TryKVM.
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
