package app

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// GuestArch returns the architecture of the guests in a kind of lab, or "" if the lab's routers are
// namespaces.
func GuestArch(kind string) (string, error) {
	arch, guests := record.GuestArch(kind)
	arch = cmp.Or(arch, vm.NativeArch())
	switch {
	case record.InNamespaces(kind):
		return "", nil
	case guests && slices.Contains(vm.Arches(), arch):
		return arch, nil
	}

	hint := check.Choice(kind, "labs", append(LabKinds(), "a lab file (.yaml)"))
	return "", Usage(hint, "lab %q is not known", kind)
}

// LabKinds returns the kinds of lab that --lab accepts.
func LabKinds() []string {
	kinds := []string{record.LabLocal, record.LabVM}
	for _, arch := range vm.Arches() {
		kinds = append(kinds, record.LabVM+":"+arch)
	}
	return kinds
}

// OpenDisk opens and checks the user's disk image and its login files.
func OpenDisk(i record.DiskImage) (vm.Disk, error) {
	d, err := vm.OpenDisk(i.File)
	if err != nil {
		return d, Usage(check.HintOf(err), "%v", err)
	}

	if i.UEFI {
		if err := d.BootByUEFI(); err != nil {
			return d, err
		}
	}

	if d.Login, err = vm.ParseLogin(cmp.Or(i.Login, vm.LoginSSH)); err != nil {
		return d, Usage("--image-login is ssh, ssh:USER, serial or serial:USER", "%v", err)
	}

	if i.Key != "" && d.Login.Method != vm.LoginSSH {
		return d, Usage("--image-password FILE names a file that holds a password",
			"--image-key with a login on the serial console")
	}

	readable := func(flag, file string) (string, error) {
		if file == "" {
			return "", nil
		}

		f, err := userfile.OpenRegular(file)
		if err != nil {
			return "", Usage("name a file that you can read", "%s: %v", flag, err)
		}

		f.Close()
		return filepath.Abs(file)
	}
	if d.Login.Key, err = readable("--image-key", i.Key); err == nil {
		d.Login.Password, err = readable("--image-password", i.Password)
	}

	if err == nil && i.Password != "" {
		if _, err := host.Password(i.Password); err != nil {
			return d, Usage(check.HintOf(err), "--image-password: %v", err)
		}
	}

	return d, err
}

// Guest returns the guest that the routers of a run's lab boot, and builds its image if necessary. It returns
// nil if the routers are namespaces.
func (a *App) Guest(ctx context.Context, run record.Run) (*vm.Guest, error) {
	arch, err := GuestArch(run.Lab)
	if err != nil || arch == "" {
		return nil, err
	}

	e := vm.CheckEmulator(ctx, arch)
	if e.State == check.No { // check before packages are downloaded
		return nil, Hinted(e.Hint, "boot a router of lab %s: %s", run.Lab, e.Reason)
	}

	var g vm.Guest
	if run.Image == nil {
		img, err := a.BuildImage(ctx, arch, *cmp.Or(run.OwnKernel, &record.OwnKernel{}))
		if err != nil {
			return nil, err
		}

		g = vm.NewGuest(img)
	} else {
		d, err := OpenDisk(*run.Image)
		if err != nil {
			return nil, err
		}

		if err := d.Identify(); err != nil {
			return nil, err
		}

		if d.Agent, err = a.AgentProgram(ctx, "amd64"); err != nil {
			return nil, err
		}

		g = vm.NewForeignGuest(d)
	}

	size := run.GuestSize
	if size != nil {
		g.CPUs, g.MemoryMB, g.Model = size.CPUs, cmp.Or(size.MemoryMB, g.MemoryMB), size.Model
	}

	return &g, nil
}

// BuildImage returns the guest image for an architecture, and builds it if necessary.
func (a *App) BuildImage(ctx context.Context, arch string, k record.OwnKernel) (vm.Image, error) {
	r := vm.Recipe{
		Arch:    arch,
		Package: k.Package,
		Kernel:  k.File,
		Modules: k.Modules,
		Cache:   a.Dirs.VMCache(),
		Say:     a.noteText,
	}
	var err error
	if r.Program, err = a.AgentProgram(ctx, r.Arch); err != nil {
		return vm.Image{}, err
	}

	return r.Image(ctx)
}
