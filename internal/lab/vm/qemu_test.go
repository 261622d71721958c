package vm

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// TestVCPUs: an emulated x86 guest has one vCPU unless it is told otherwise, and then may hang.
func TestVCPUs(t *testing.T) {
	for _, tt := range []struct {
		arch    string
		cpus    int
		kvm     bool
		want    int
		fragile bool
	}{
		{"amd64", 0, false, 1, false},
		{"amd64", 2, false, 2, true},
		{"amd64", 0, true, 2, false},
		{"amd64", 1, true, 1, false},
		{"arm64", 0, false, 2, false},
		{"mipsel", 0, false, 1, false},
		{"mipsel", 2, false, 1, false},
	} {
		g := Guest{Image: Image{Arch: tt.arch}, CPUs: tt.cpus, KVM: tt.kvm}
		if got := g.VCPUs(); got != tt.want {
			t.Errorf("%s, --cpus %d, KVM %v: got %d vCPUs, want %d", tt.arch, tt.cpus, tt.kvm, got,
				tt.want)
		}

		if got := g.Fragile(); got != tt.fragile {
			t.Errorf("%s, --cpus %d, KVM %v: fragile: got %v, want %v", tt.arch, tt.cpus, tt.kvm, got,
				tt.fragile)
		}
	}
}

// TestMitigations: with KVM, where speeds count, the kernel decides, unless it is told.
func TestMitigations(t *testing.T) {
	for _, tt := range []struct {
		kvm        bool
		told, want string
	}{{false, "", "off"}, {true, "", "auto"}, {true, "off", "off"}, {false, "auto", "auto"}} {
		g := Guest{Image: Image{Arch: "amd64"}, KVM: tt.kvm, Mitigations: tt.told}
		words := strings.Fields(strings.Join(g.Args("g", nil, "console"), " "))
		if !slices.Contains(words, "mitigations="+tt.want) {
			t.Errorf("KVM %t, told %q: got %q, want mitigations=%s", tt.kvm, tt.told, words, tt.want)
		}
	}
}

// TestCheckEmulator: an emulator that is not there is a no, with the package that has it.
func TestCheckEmulator(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	a := CheckEmulator(t.Context(), "mipsel")
	if a.State != check.No || a.Hint != "install qemu-system-mips (Debian, Ubuntu)" {
		t.Errorf("got %+v, want a no with the package", a)
	}
}
