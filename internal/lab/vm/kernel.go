package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// CheckKernel refuses a file that QEMU could not boot as a kernel on arch: amd64 wants the header of
// Documentation/arch/x86/boot.rst, arm64 that of Documentation/arch/arm64/booting.rst, plain, compressed or
// as an EFI program, and mipsel an ELF file.
func CheckKernel(file, arch string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read the kernel: %w", err)
	}
	defer f.Close()
	head := make([]byte, 1024)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the kernel: %w", err)
	}
	has := func(at int, magic string) bool { return at <= n && bytes.HasPrefix(head[at:n], []byte(magic)) }
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
