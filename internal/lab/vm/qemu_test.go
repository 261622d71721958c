package vm

import (
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

// TestCheckEmulator: an emulator that is not there is a no, with the package that has it.
func TestCheckEmulator(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	a := CheckEmulator(t.Context(), "mipsel")
	if a.State != check.No || a.Hint != "install qemu-system-mips (Debian, Ubuntu)" {
		t.Errorf("got %+v, want a no with the package", a)
	}
}
