package vm

import (
	"bytes"
	"debug/elf"
	"debug/macho"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// machine describes an architecture that guests support, or a system and architecture that agents support.
type machine struct {
	arch    string // Debian's name; preceded by the system, unless that is Linux
	goos    string
	goarch  string
	elf     elf.Machine
	order   binary.ByteOrder
	class   elf.Class
	kernels []string // names of kernel packages, of which the first available one is used
}

// machines lists the architectures of guests in display order.
var machines = []machine{
	// The cloud kernel has only virtio drivers, and is a quarter of the size of the other kernels. Ubuntu's
	// counterpart is linux-image-virtual.
	{"amd64", "linux", "amd64", elf.EM_X86_64, binary.LittleEndian, elf.ELFCLASS64, strings.Fields(
		"linux-image-cloud-amd64 linux-image-amd64 linux-image-virtual linux-image-generic")},
	{"arm64", "linux", "arm64", elf.EM_AARCH64, binary.LittleEndian, elf.ELFCLASS64, strings.Fields(
		"linux-image-arm64 linux-image-virtual linux-image-generic")},
	{"mipsel", "linux", "mipsle", elf.EM_MIPS, binary.LittleEndian, elf.ELFCLASS32, []string{
		"linux-image-4kc-malta"}},
}

// foreign lists machines that only agents support.
var foreign = []machine{
	{"arm", "linux", "arm", elf.EM_ARM, binary.LittleEndian, elf.ELFCLASS32, nil},
	{"mips", "linux", "mips", elf.EM_MIPS, binary.BigEndian, elf.ELFCLASS32, nil},
	{"riscv64", "linux", "riscv64", elf.EM_RISCV, binary.LittleEndian, elf.ELFCLASS64, nil},
	{arch: "freebsd-amd64", goos: "freebsd", goarch: "amd64", elf: elf.EM_X86_64},
	{arch: "freebsd-arm64", goos: "freebsd", goarch: "arm64", elf: elf.EM_AARCH64},
	{arch: "darwin-amd64", goos: "darwin", goarch: "amd64"},
	{arch: "darwin-arm64", goos: "darwin", goarch: "arm64"},
}

// AgentArches returns the names of the machines for which an agent can be built. The system precedes the
// architecture unless the system is Linux.
func AgentArches() []string {
	names := Arches()
	for _, m := range foreign {
		names = append(names, m.arch)
	}
	return names
}

// Arches returns the architectures that guests support, the usual one first.
func Arches() []string {
	var names []string
	for _, m := range machines {
		names = append(names, m.arch)
	}
	return names
}

// NativeArch returns the architecture of this machine, or "" if guests do not support it.
func NativeArch() string {
	for _, m := range machines {
		if m.goarch == runtime.GOARCH {
			return m.arch
		}
	}
	return ""
}

func machineOf(arch string) (machine, error) {
	for _, m := range machines {
		if m.arch == arch {
			return m, nil
		}
	}
	return machine{}, check.WithHint(fmt.Errorf("build an image for architecture %q: it is not known", arch),
		"choose one of "+strings.Join(Arches(), ", "))
}

// targetOf returns the machine for an element of AgentArches.
func targetOf(arch string) (machine, error) {
	for _, m := range foreign {
		if m.arch == arch {
			return m, nil
		}
	}
	return machineOf(arch)
}

// runs reports whether the machine can run an ELF file.
func (m machine) runs(f *elf.File) bool {
	if m.goos == "freebsd" { // the kernel of FreeBSD checks EI_OSABI; see elf(3) of FreeBSD
		return f.Machine == m.elf && f.OSABI == elf.ELFOSABI_FREEBSD
	}
	return f.Machine == m.elf && f.Class == m.class && f.ByteOrder == m.order &&
		(f.OSABI == elf.ELFOSABI_NONE || f.OSABI == elf.ELFOSABI_LINUX)
}

// checkMacho returns an error if a file is not a macOS executable for m.
func checkMacho(path string, m machine) error {
	f, err := macho.Open(path)
	if err != nil {
		return fmt.Errorf("read the agent's program %s: %w", path, err)
	}
	defer f.Close()
	cpu := map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}[m.goarch]
	if f.Type != macho.TypeExec || f.Cpu != cpu {
		return fmt.Errorf("read the agent's program %s: it is for %v, not for %s", path, f.Cpu, m.arch)
	}

	return nil
}

// checkProgram returns an error if a file is not a static executable for arch.
func checkProgram(path, arch string) error {
	m, err := targetOf(arch)
	if err != nil {
		return err
	}

	if m.goos == "darwin" {
		return checkMacho(path, m)
	}

	e, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("read the guest's program %s: %w", path, err)
	}
	defer e.Close()
	if e.Type != elf.ET_EXEC && e.Type != elf.ET_DYN {
		return fmt.Errorf("read the guest's program %s: not an executable", path)
	}

	if !m.runs(e) {
		return fmt.Errorf("read the guest's program %s: it is for %v, not for %s", path, e.Machine, arch)
	}

	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			return check.WithHint(fmt.Errorf("read the guest's program %s: it needs shared libraries", path),
				"build it with CGO_ENABLED=0")
		}
	}

	return nil
}

// CheckKernel returns an error if QEMU cannot boot a file as a kernel on arch. On amd64, the file must have
// the header that Documentation/arch/x86/boot.rst describes. On arm64, it must have the header that
// Documentation/arch/arm64/booting.rst describes, be compressed, or be an EFI program. On mipsel, it must be
// an ELF file.
func CheckKernel(file, arch string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read the kernel: %w", err)
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return fmt.Errorf("read the kernel: %w", err)
	}

	has := func(at int, magic string) bool {
		return at <= len(head) && bytes.HasPrefix(head[at:], []byte(magic))
	}
	ok := false
	switch arch {
	case "amd64":
		ok = has(0x202, "HdrS")
	case "arm64":
		ok = has(0x38, "ARM\x64") || has(0, "\x1f\x8b") || has(0, "MZ")
	case "mipsel":
		ok = has(0, "\x7fELF")
	}

	if !ok {
		return fmt.Errorf("read the kernel: %s is no kernel for %s", file, arch)
	}

	return nil
}
