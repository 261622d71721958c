package vm

import (
	"bytes"
	"debug/elf"
	"debug/macho"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// TestGuestProgramFromSource builds the agent from this very tree.
func TestGuestProgramFromSource(t *testing.T) {
	arch := NativeArch()
	if arch == "" {
		t.Skip("skip: no guest has this machine's architecture")
	}

	cache := filepath.Join(t.TempDir(), "cache")
	var said []string
	say := func(text string) { said = append(said, text) }
	built, err := GuestProgram(t.Context(), arch, cache, ownTree(t), say)
	must(t, err)
	if err := checkProgram(built, arch); err != nil || filepath.Dir(built) != cache {
		t.Errorf("program: got %s, %v; want one in %s", built, err, cache)
	}

	began := time.Now()
	again, err := GuestProgram(t.Context(), arch, cache, ownTree(t), say)
	if err != nil || again != built {
		t.Errorf("second time: got %s, %v; want %s", again, err, built)
	}

	spent := time.Since(began)
	if spent > 2*time.Second {
		t.Errorf("second time: took %v, want it from the cache", spent)
	}

	if len(said) != 1 {
		t.Errorf("said: got %q, want one word, about the first time", said)
	}

	if left, err := filepath.Glob(filepath.Join(cache, "agent-new-*")); err != nil || left != nil {
		t.Errorf("left over: %q, %v", left, err)
	}
}

// TestGuestProgramElsewhere: away from the sources, only this executable is left, for its own architecture
// and if it needs no libraries.
func TestGuestProgramElsewhere(t *testing.T) {
	for _, arch := range AgentArches() {
		got, err := GuestProgram(t.Context(), arch, t.TempDir(), "", nil)
		if checkProgram("/proc/self/exe", arch) == nil {
			if err != nil || got != "/proc/self/exe" {
				t.Errorf("%s: got %q, %v; want this executable", arch, got, err)
			}
			continue
		}

		named := arch
		if !strings.Contains(arch, "-") {
			named = "linux-" + arch
		}

		if expect.Hint(t, arch, err, "chokepoint-agent-"+named); got != "" {
			t.Errorf("%s: got %q, want none", arch, got)
		}
	}

	if _, err := GuestProgram(t.Context(), "sparc", t.TempDir(), "", nil); err == nil {
		t.Error("sparc: got no error")
	}
}

func TestSourceTree(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ours/go.mod"), []byte("module "+modulePath+"\n\ngo 1.26\n"))
	write(t, filepath.Join(dir, "ours/testdata/go.mod"), []byte("module example.org/x\n"))
	must(t, os.MkdirAll(filepath.Join(dir, "ours/cmd/x"), 0o755))
	for at, want := range map[string]bool{"ours": true, "ours/cmd/x": true, "ours/testdata": false,
		".": false} {
		got := SourceTree(filepath.Join(dir, at))
		if want != (got == filepath.Join(dir, "ours")) || !want && got != "" {
			t.Errorf("%s: got %q; want %v", at, got, want)
		}
	}
}

// ownTree is the source tree that is tested.
func ownTree(t *testing.T) string {
	t.Helper()
	here, err := os.Getwd()
	must(t, err)
	return SourceTree(here)
}

// TestOwnSource: an agent is built only from the tree that this program came from, wherever it is started.
func TestOwnSource(t *testing.T) {
	want := ownTree(t)
	theirs := t.TempDir()
	write(t, filepath.Join(theirs, "go.mod"), []byte("module "+modulePath+"\n"))
	t.Chdir(theirs)
	got := OwnSource()
	if got != want && got != "" { // "" of one that was built with -trimpath
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTheirSource: nothing is built from a tree of which others can change a file.
func TestTheirSource(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module " + modulePath + "\n", "go.sum": "",
		agentSource + "/main.go": "package main\n", "internal/x/x.go": "package x\n",
		"internal/x/x_test.go": "package x\n", "internal/x/testdata/y": ""} {
		write(t, filepath.Join(dir, name), []byte(text))
	}

	build := func() error {
		_, err := GuestProgram(t.Context(), "arm64", t.TempDir(), dir, func(string) {})
		return err
	}
	for _, name := range []string{"go.mod", "internal/x/x.go", "internal/x", "cmd",
		agentSource + "/main.go", "."} {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		must(t, err)
		must(t, os.Chmod(path, info.Mode()|0o002))
		expect.Error(t, name, build(), "others can change "+path)
		must(t, os.Chmod(path, info.Mode()))
	}

	must(t, os.Symlink("/proc/self/cwd/go.mod", filepath.Join(dir, "internal/x/z.go")))
	if err := build(); err == nil {
		t.Error("a tree without a program: got no error")
	}
}

// TestUnfitProgramBeside: an agent that is there and cannot be used is named, and why.
func TestUnfitProgramBeside(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "dynamic"), madeBinary(t, elf.EM_X86_64, "/lib64/ld-linux-x86-64.so.2\x00",
		"libc.so.6"))
	write(t, filepath.Join(dir, "static"), madeProgram(t, elf.EM_X86_64, ""))
	write(t, filepath.Join(dir, "theirs"), madeProgram(t, elf.EM_X86_64, ""))
	must(t, os.Chmod(filepath.Join(dir, "theirs"), 0o777))
	for name, want := range map[string]string{"dynamic": "needs shared libraries",
		"theirs": "others can change"} {
		path, unfit := fittingProgram(dir, "amd64", name, "none")
		if path != "" || unfit == nil ||
			!strings.Contains(unfit.Error(), name+" is there, but cannot be used") ||
			!strings.Contains(unfit.Error(), want) {
			t.Errorf("%s: got %q, %v, want %q", name, path, unfit, want)
		}
	}

	if path, _ := fittingProgram(dir, "amd64", "dynamic", "static"); path != filepath.Join(dir, "static") {
		t.Errorf("got %q, want the static one", path)
	}

	bin := filepath.Join(dir, "bin")
	installed := filepath.Join(dir, "lib/chokepoint/agent")
	write(t, installed, madeProgram(t, elf.EM_X86_64, ""))
	if path, _ := fittingProgram(bin, "amd64", "none", agentFolder+"/agent"); path != installed {
		t.Errorf("an installed one: got %q, want %q", path, installed)
	}

	if path, unfit := fittingProgram(dir, "amd64", "none"); path != "" || unfit != nil {
		t.Errorf("none there: got %q, %v", path, unfit)
	}
}

func TestCheckProgram(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		file []byte
		ok   bool
	}{
		"static":      {madeProgram(t, elf.EM_X86_64, ""), true},
		"dynamic":     {madeBinary(t, elf.EM_X86_64, "/lib64/ld-linux-x86-64.so.2\x00", "libc.so.6"), false},
		"other":       {madeProgram(t, elf.EM_AARCH64, ""), false},
		"relocatable": {madeModule(t, elf.EM_X86_64), false},
		"text":        {[]byte("#!/bin/sh\n"), false},
		"cut":         {madeProgram(t, elf.EM_X86_64, "")[:40], false},
	} {
		write(t, filepath.Join(dir, name), tt.file)
		if err := checkProgram(filepath.Join(dir, name), "amd64"); (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want accepted: %v", name, err, tt.ok)
		}
	}
}

// TestCheckProgramOfOtherSystems: the mark of the system in an ELF file counts, and what kind of file it is.
func TestCheckProgramOfOtherSystems(t *testing.T) {
	freeBSD := madeProgram(t, elf.EM_X86_64, "")
	freeBSD[elf.EI_OSABI] = byte(elf.ELFOSABI_FREEBSD)
	machO := func(cpu macho.Cpu, kind macho.Type) []byte {
		var b bytes.Buffer
		must(t, binary.Write(&b, binary.LittleEndian, struct {
			macho.FileHeader
			Reserved uint32
		}{FileHeader: macho.FileHeader{Magic: macho.Magic64, Cpu: cpu, Type: kind}}))
		return b.Bytes()
	}
	file := filepath.Join(t.TempDir(), "program")
	for name, tt := range map[string]struct {
		file []byte
		of   string // the one target that takes it, "" = none
	}{
		"Linux":            {madeProgram(t, elf.EM_X86_64, ""), "amd64"},
		"FreeBSD":          {freeBSD, "freebsd-amd64"},
		"macOS on Intel":   {machO(macho.CpuAmd64, macho.TypeExec), "darwin-amd64"},
		"macOS on Apple's": {machO(macho.CpuArm64, macho.TypeExec), "darwin-arm64"},
		"a library":        {machO(macho.CpuArm64, macho.TypeDylib), ""},
	} {
		write(t, file, tt.file)
		for _, arch := range AgentArches() {
			if err := checkProgram(file, arch); (err == nil) != (arch == tt.of) {
				t.Errorf("%s for %s: got %v, want it accepted for %q alone", name, arch, err, tt.of)
			}
		}
	}
}
