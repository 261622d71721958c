package vm

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

func amd64(t testing.TB) machine {
	t.Helper()
	m, err := machineOf("amd64")
	must(t, err)
	return m
}

func link(t testing.TB, to, name string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must(t, os.Symlink(to, name))
}

// unpackedPackages is a root with a shell and a program, whose libraries lie where packages of different
// ages put them.
func unpackedPackages(t testing.TB) root {
	t.Helper()
	dir := t.TempDir()
	const linker = "/lib64/ld-linux-x86-64.so.2\x00"
	binaries := map[string][]byte{
		"bin/dash":        madeBinary(t, elf.EM_X86_64, linker, "libc.so.6"),
		"usr/bin/busybox": madeProgram(t, elf.EM_X86_64, ""),
		"usr/sbin/tc": madeBinary(t, elf.EM_X86_64, linker, "libm.so.6",
			"libmnl.so.0"),
		"usr/lib/x86_64-linux-gnu/libc.so.6":     madeBinary(t, elf.EM_X86_64, "", "ld-linux-x86-64.so.2"),
		"usr/lib/x86_64-linux-gnu/libm.so.6":     madeBinary(t, elf.EM_X86_64, "", "libc.so.6"),
		"lib/x86_64-linux-gnu/libmnl.so.0.2.0":   madeBinary(t, elf.EM_X86_64, "", "libc.so.6"),
		"lib/x86_64-linux-gnu/ld-2.36.so":        madeBinary(t, elf.EM_X86_64, ""),
		"usr/lib/x86_64-linux-gnu/libunused.so":  madeBinary(t, elf.EM_X86_64, ""),
		"usr/lib/x86_64-linux-gnu/libgcc_s.so.1": madeBinary(t, elf.EM_X86_64, "", "libc.so.6"),
	}
	for name, data := range binaries {
		write(t, filepath.Join(dir, name), data)
	}

	write(t, filepath.Join(dir, "usr/lib/tc/normal.dist"), []byte("1 2 3\n"))
	write(t, filepath.Join(dir, "etc/protocols"), []byte("tcp 6\n"))
	link(t, "libmnl.so.0.2.0", filepath.Join(dir, "lib/x86_64-linux-gnu/libmnl.so.0"))
	// Absolute, to a folder that is a link on a whole system.
	link(t, "/usr/lib/x86_64-linux-gnu/ld-2.36.so", filepath.Join(dir, "lib64/ld-linux-x86-64.so.2"))
	return root{dir, amd64(t)}
}

func TestUserland(t *testing.T) {
	r := unpackedPackages(t)
	a := archive{}
	addSkeleton(a)
	must(t, r.addUserland(a))
	got := map[string]string{}
	for name, e := range a {
		switch {
		case e.mode == modeProgram:
			got[name] = "program"
		case name == "bin/sh", name == "bin/ls", name == "bin/modprobe":
			got[name] = "-> " + string(e.data)
		case name == "etc/protocols", strings.HasSuffix(name, ".dist"):
			got[name] = string(e.data)
		}
	}

	want := map[string]string{
		"bin/dash": "program", "bin/busybox": "program", "bin/tc": "program",
		"bin/sh": "-> dash", "bin/ls": "-> busybox", "bin/modprobe": "-> ../init",
		"lib/libc.so.6": "program", "lib/libm.so.6": "program", "lib/libmnl.so.0": "program",
		"lib/ld-linux-x86-64.so.2": "program", "lib/libgcc_s.so.1": "program",
		"etc/protocols": "tcp 6\n", "lib/tc/normal.dist": "1 2 3\n",
	}
	expect.Same(t, "userland", want, got)
}

func TestMissingLibrary(t *testing.T) {
	r := unpackedPackages(t)
	write(t, filepath.Join(r.dir, "usr/sbin/nft"), madeBinary(t, elf.EM_X86_64, "", "libnftables.so.1"))
	expect.Error(t, "program without its library", r.addUserland(archive{}), "libnftables.so.1")
}

func TestProgramOfAnotherMachine(t *testing.T) {
	r := unpackedPackages(t)
	write(t, filepath.Join(r.dir, "usr/sbin/nft"), madeBinary(t, elf.EM_AARCH64, ""))
	expect.Error(t, "program of another machine", r.addUserland(archive{}), "EM_AARCH64")
}

// TestFollow: links lead to places below the root, never out of it.
func TestFollow(t *testing.T) {
	r := root{t.TempDir(), amd64(t)}
	write(t, filepath.Join(r.dir, "usr/lib/file"), nil)
	write(t, filepath.Join(r.dir, "lib/other"), nil)
	for name, to := range map[string]string{
		"lib/link": "file", "usr/lib/up": "../../lib/other", "lib/absolute": "/usr/lib/file",
		"lib/out":    "../../../../../../../../etc/passwd",
		"lib/circle": "circle", "lib/nowhere": "/none", "lib/chain": "link",
	} {
		link(t, to, filepath.Join(r.dir, name))
	}

	for name, want := range map[string]string{
		"lib/file": "usr/lib/file", "usr/lib/other": "lib/other", "lib/link": "usr/lib/file",
		"usr/lib/up":   "lib/other",
		"lib/absolute": "usr/lib/file", "lib/chain": "usr/lib/file", "lib/out": "", "lib/circle": "",
		"lib/nowhere": "", "lib": "", "none": "",
	} {
		full, ok := r.follow(name)
		if ok != (want != "") || ok && full != filepath.Join(r.dir, want) {
			t.Errorf("%s: got %q, %v; want %q", name, full, ok, want)
		}
	}
}
