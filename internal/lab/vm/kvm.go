package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// exitSector is a boot sector that writes 0x10 to the port of QEMU's isa-debug-exit device. QEMU then exits
// with status 0x10<<1|1 (hw/misc/debugexit.c).
var exitSector = []byte{
	0xb0, 0x10, // mov al, 0x10
	0xba, 0xf4, 0x00, // mov dx, 0xf4
	0xee, // out dx, al
	0xf4, // hlt
}

const (
	sectorSize = 512
	sectorExit = 0x10<<1 | 1
	bootLimit  = 2 * time.Second
)

// TryKVM reports whether hardware virtualisation works. CheckKVM only checks whether /dev/kvm can be opened.
// This may succeed even if guests do not run, for example because nested virtualisation is disabled or KVM
// rejects the state of the CPU. On amd64, TryKVM therefore boots a guest of one sector, with a time limit of
// two seconds. On other architectures, it reports that it could not tell.
func TryKVM(ctx context.Context) check.Answer {
	arch := NativeArch()
	a := CheckKVM(arch)
	if a.State != check.Yes {
		return a
	}

	if arch != "amd64" {
		return check.CouldNotTell("/dev/kvm can be opened; no guest was tried on %s", arch)
	}

	return trySector(ctx, "kvm", bootLimit)
}

// trySector boots exitSector with the given QEMU accelerator.
func trySector(ctx context.Context, accel string, limit time.Duration) check.Answer {
	dir, err := os.MkdirTemp("", "chokepoint-kvm-")
	if err != nil {
		return check.CouldNotTell("%v", err)
	}
	defer os.RemoveAll(dir)
	disk := filepath.Join(dir, "sector")
	sector := make([]byte, sectorSize)
	copy(sector, exitSector)
	sector[sectorSize-2], sector[sectorSize-1] = 0x55, 0xaa
	if err := os.WriteFile(disk, sector, 0o600); err != nil {
		return check.CouldNotTell("%v", err)
	}

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	g := Guest{Image: Image{Arch: "amd64"}}
	args := strings.Fields("-accel " + accel + " -nodefaults -no-user-config -display none -m 16 -net none " +
		"-device isa-debug-exit,iobase=0xf4,iosize=0x4 -sandbox " + Sandbox)
	_, err = host.Output(ctx, g.Program(), append(args, "-drive",
		"if=floppy,format=raw,readonly=on,file="+comma(disk))...)
	code, ended := host.ExitCode(err)
	switch {
	case errors.Is(err, host.ErrUnsupported):
		return check.CouldNotTell("%s is not installed, so that no guest was tried", g.Program()).
			Hinted("install %s (Debian, Ubuntu)", g.Package())
	case ended && code == sectorExit:
		return check.OKBecause("a guest of one sector ran")
	case ctx.Err() != nil:
		return check.Not("/dev/kvm is there, but a guest of one sector did not run within %s", limit)
	}

	return check.Not("/dev/kvm is there, but a guest of one sector did not run: %v", err)
}
