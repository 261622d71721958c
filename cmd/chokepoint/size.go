package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Bounds of a guest's size: less memory than this does not boot the image.
const (
	minMemoryMB = 128
	maxMemoryMB = 64 << 10
	maxCPUs     = 64
)

func addSizeFlags(f *pflag.FlagSet, s *record.GuestSize) {
	f.IntVar(&s.CPUs, "cpus", 0, "with --lab vm: `N` processors for each virtual router (default 2 with KVM "+
		"and for arm64, else 1)")
	f.IntVar(&s.MemoryMB, "memory", 0, "with --lab vm: `MB` of memory for each virtual router (default 320)")
	f.StringVar(&s.Model, "cpu-model", "",
		"with --lab vm: `MODEL` of the processors, in QEMU's words (default the quickest to emulate)")
}

// checkSize refuses a size that no guest of the architecture can have.
func checkSize(arch string, s record.GuestSize) error {
	switch most := vm.MaxCPUs(arch); {
	case s == record.GuestSize{}:
		return nil
	case arch == "":
		return &usageError{"--cpus, --memory or --cpu-model with lab local, whose routers are namespaces",
			"--lab vm boots virtual routers"}
	case s.CPUs < 0 || s.CPUs > maxCPUs:
		return &usageError{fmt.Sprintf("--cpus %d", s.CPUs), fmt.Sprintf("a number from 1 to %d", maxCPUs)}
	case most > 0 && s.CPUs > most:
		return &usageError{fmt.Sprintf("--cpus %d with a guest of %s", s.CPUs, arch),
			fmt.Sprintf("its board has %d", most)}
	case s.MemoryMB != 0 && (s.MemoryMB < minMemoryMB || s.MemoryMB > maxMemoryMB):
		return &usageError{fmt.Sprintf("--memory %d", s.MemoryMB), fmt.Sprintf("megabytes, from %d to %d",
			minMemoryMB, maxMemoryMB)}
	case strings.ContainsFunc(s.Model, func(r rune) bool { return r <= ' ' || r > '~' }) ||
		strings.HasPrefix(s.Model, "-"):
		return &usageError{fmt.Sprintf("--cpu-model %q", s.Model),
			"one of those that qemu-system-x86_64 -cpu help lists, for amd64"}
	}
	return nil
}

// sized is a guest of a size.
func sized(g *vm.Guest, s record.GuestSize) *vm.Guest {
	g.CPUs, g.MemoryMB, g.Model = s.CPUs, cmp.Or(s.MemoryMB, g.MemoryMB), s.Model
	return g
}
