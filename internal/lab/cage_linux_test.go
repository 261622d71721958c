package lab

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestCage: QEMU is given descriptors instead of names, and whoever has its rights can open them once more,
// but nothing else that is root's.
func TestCage(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"kernel", "initrd", "console", "secret"} {
		must(t, os.WriteFile(at(name), []byte(name), 0o600))
	}

	g := vm.Guest{Image: vm.Image{Arch: "amd64"}, Kernel: at("kernel"), Initrd: at("initrd")}
	c, err := newCage(&g, at("console"), 7)
	must(t, err)
	defer c.close()
	args := strings.Join(g.Args("router", nil, c.console), " ")
	if strings.Contains(args, dir) || len(c.files) != 3 || c.console != "/proc/self/fd/9" ||
		!strings.Contains(args, "-kernel /proc/self/fd/7 -initrd /proc/self/fd/8") {
		t.Errorf("got %d files and %s, want descriptors only", len(c.files), args)
	}

	if c.as == nil {
		t.Skip("skip: only root has rights to give up")
	}

	script := `id -u; id -G; cat /proc/self/fd/3; echo >>/proc/self/fd/5; cat "$0" 2>/dev/null; echo .`
	child, err := host.Spawn{
		Program: "sh",
		Args:    []string{"-c", script, at("secret")},
		Files:   c.files,
		As:      c.as,
		Bound:   true,
	}.Start()
	must(t, err)
	said, err := io.ReadAll(child)
	if err != nil || child.Close() != nil || string(said) != "65533\n65533\nkernel.\n" {
		t.Errorf("got %q, %v, want user and group 65533, the kernel, and not the secret", said, err)
	}

	if b, err := os.ReadFile(at("console")); err != nil || string(b) != "console\n" {
		t.Errorf("console: got %q, %v, want a line more", b, err)
	}

	// Where QEMU has no filter, the option would end it.
	if len(c.words) > 0 && !slices.Equal(c.words, []string{"-sandbox", vm.Sandbox}) {
		t.Errorf("words: got %q", c.words)
	}
}

// TestNobodyGetsRootsGroup for the sake of KVM; where only root may use it, that is said.
func TestNobodyGetsRootsGroup(t *testing.T) {
	const kvm = 104
	for _, tt := range []struct {
		mode, group uint32
		groups      []uint32
		root        bool
	}{{0o666, 0, nil, false}, {0o660, kvm, []uint32{kvm}, false}, {0o660, 0, nil, true},
		{0o600, kvm, nil, true}, {0o640, kvm, nil, true}} {
		u, why := userOfKVM(tt.mode, tt.group)
		if (u == nil) != tt.root || (why != "") != tt.root || u != nil && !slices.Equal(u.Groups, tt.groups) {
			t.Errorf("%o of group %d: got %+v, %q, want groups %v, root %v", tt.mode, tt.group, u, why,
				tt.groups, tt.root)
		}
	}

	o := Local{
		ID:       "x",
		Dir:      t.TempDir(),
		Guest:    &vm.Guest{Image: vm.Image{Arch: "amd64"}},
		Topology: record.Topology{Nodes: []record.TopoNode{{Name: "router", Router: true}}},
	}
	must(t, os.Mkdir(o.dir(), 0o700))
	booted := bootedAs{KVM: true, Root: "QEMU runs as root"}
	must(t, writeJSON(bootedFile(o.dir(), "router"), booted))
	note := o.guestNote()
	if !strings.Contains(note, "QEMU runs as root") {
		t.Errorf("note: got %q, want that it is said", note)
	}
}

// TestGuestsAreFound by what QEMU has open, since its command line names nothing of the lab's.
func TestGuestsAreFound(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	labs := at("labs")
	console := at("real/a/router.console")
	image := at("image")
	program := at("qemu-system-fake")
	for _, err := range []error{os.MkdirAll(filepath.Dir(console), 0o700), os.WriteFile(console, nil, 0o600),
		os.Mkdir(at("real/b"), 0o700), os.WriteFile(image, nil, 0o600), os.Symlink("real", labs),
		os.WriteFile(program, []byte("#!/bin/sh\nread x\n"), 0o700)} {
		must(t, err)
	}

	g := vm.Guest{Image: vm.Image{Arch: "amd64"}, Kernel: image, Initrd: image}
	foreignGuest := vm.NewForeignGuest(vm.Disk{Format: "raw", TerminalFD: 9})
	for name, g := range map[string]*vm.Guest{"ours": &g, "foreign": &foreignGuest} {
		c, err := newCage(g, console, 3)
		must(t, err)
		child, err := host.Spawn{
			Program: program,
			Args:    g.Args("router", nil, c.console),
			Files:   c.files,
			Bound:   true,
		}.Start()
		c.close()
		must(t, err)
		for lab, want := range map[string]string{labs + "/a": "router", labs: "router", labs + "/b": ""} {
			found, err := kernel.Guests(lab)
			if err != nil || found[child.Pid()] != want {
				t.Errorf("%s in %s: got %v, %v, want process %d: %q", name, lab, found, err, child.Pid(),
					want)
			}
		}

		child.Close()
	}
}
