package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckKernel(t *testing.T) {
	tests := []struct {
		name, content string
		good          string // the one architecture that it is a kernel of
	}{
		{"bzImage", strings.Repeat("\x00", 0x202) + "HdrS\x0f\x02", "amd64"},
		{"Image", strings.Repeat("\x00", 0x38) + "ARMd", "arm64"},
		{"compressed Image", "\x1f\x8b\x08", "arm64"},
		{"vmlinux", "\x7fELF\x01\x01", "mipsel"},
		{"text", "name: one", ""},
		{"empty", "", ""},
		{"cut off", strings.Repeat("\x00", 0x202) + "Hd", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kernel")
			must(t, os.WriteFile(file, []byte(tt.content), 0o600))
			for _, arch := range Arches() {
				if err := CheckKernel(file, arch); (err == nil) != (arch == tt.good) {
					t.Errorf("on %s: got %v, good is %q", arch, err, tt.good)
				}
			}
		})
	}

	if err := CheckKernel(t.TempDir(), "amd64"); err == nil {
		t.Error("a folder was taken for a kernel")
	}
}
