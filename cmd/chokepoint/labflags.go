package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/meter"
)

// maxQueues bounds what can be asked for of a virtual link.
const maxQueues = 256

// labOptions say what the routers of a lab are, and its links.
type labOptions struct {
	kind     string
	size     record.GuestSize
	image    record.DiskImage
	kernel   record.OwnKernel
	queues   int
	driver   string
	machines record.Machines // none: the lab is made here
	alone    bool            // a router will do, without ends
	meter    *record.Meter   // of power; nil: none
}

func (o *labOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.kind, "lab", record.LabLocal,
		"`KIND` of lab: local (namespaces of this machine), vm (a guest with a kernel of its own), "+
			"vm:ARCH, or the lab file of real machines")
	f.IntVar(&o.size.CPUs, "cpus", 0, "with --lab vm: `N` vCPUs for each virtual router (default 2 with KVM "+
		"and for arm64, else 1)")
	f.IntVar(&o.size.MemoryMB, "memory", 0,
		"with --lab vm: `MB` of memory for each virtual router (default 320)")
	f.StringVar(&o.size.Model, "cpu-model", "",
		"with --lab vm: `MODEL` of the vCPUs, as QEMU names it (default the fastest to emulate)")
	f.StringVar(&o.image.File, "image", "",
		"with --lab vm: boot this disk image `FILE` (qcow2 or raw) as the router; it is not changed")
	f.StringVar(&o.image.Login, "image-login", "",
		"log in to the image by `METHOD`: ssh, ssh:USER, serial or serial:USER (default ssh:root)")
	f.StringVar(&o.image.Key, "image-key", "", "private key `FILE` for ssh")
	f.StringVar(&o.image.Password, "image-password", "", "`FILE` whose first line is the user's password")
	f.BoolVar(&o.image.UEFI, "image-uefi", false, "boot the image by UEFI instead of BIOS")
	addKernelFlags(f, &o.kernel)
	f.StringVar(&o.driver, "driver", "",
		"set and watch the routers by commands of their shell, through `DRIVER`, such as linux")
	f.IntVar(&o.queues, "queues", 1, "with --lab local: `N` transmit and receive queues of each virtual "+
		"link, as a NIC has one for each core")
}

// oneLab keeps a command from being told of two labs, by the flags of labOptions, --attach and --peer.
func oneLab(cmd *cobra.Command) {
	for _, name := range []string{"lab", "cpus", "memory", "cpu-model", "image", "kernel", "driver",
		"queues"} {
		cmd.MarkFlagsMutuallyExclusive(name, "attach")
		cmd.MarkFlagsMutuallyExclusive(name, "peer")
	}
	cmd.MarkFlagsMutuallyExclusive("attach", "peer")
}

func addKernelFlags(f *pflag.FlagSet, k *record.OwnKernel) {
	f.StringVar(&k.File, "kernel", "", "boot the virtual router with this kernel `FILE`")
	f.StringVar(&k.Modules, "modules", "", "`DIR` of its modules, such as /lib/modules/RELEASE")
}

// readFile takes the machines from a lab file, if one is named.
func (o *labOptions) readFile() (err error) {
	accept := o.machines.AcceptNew
	o.machines.AcceptNew = false
	named := o.machines != record.Machines{}
	switch {
	case isLabFile(o.kind) && named:
		return &usageError{"a lab file and flags of machines", "leave out one of them"}
	case isLabFile(o.kind):
		if o.machines, err = readLabFile(o.kind); err != nil {
			return err
		}
		o.kind = record.LabSSH
		o.meter, o.machines.Meter = cmp.Or(o.meter, o.machines.Meter), nil
	case accept && !named:
		return &usageError{"--accept-new without machines", "name them, or a lab file: --lab FILE"}
	}
	o.machines.AcceptNew = accept
	return nil
}

// settle takes the machines from a lab file, if one is named, and refuses a lab that cannot be built.
func (o *labOptions) settle() error {
	if err := o.readFile(); err != nil {
		return err
	}
	return cmp.Or(o.check(), o.absolute())
}

// readMeter takes the power meter that is named by a flag, if one is, instead of the lab file's, and makes
// sure that its password can be read.
func (o *labOptions) readMeter(at string) error {
	if at != "" {
		m, err := meter.Parse(at)
		if err != nil {
			return &usageError{fmt.Sprintf("--meter: %v", err), check.HintOf(err)}
		}
		o.meter = &m
	}
	if o.meter == nil || o.meter.TypedIn() {
		return nil
	}
	if _, err := meter.Open(*o.meter, ""); err != nil {
		const hint = "set the variable, or name a file that you can read"
		return &usageError{err.Error(), cmp.Or(check.HintOf(err), hint)}
	}
	return nil
}

// condition notes the rate of the slowest link in a design that does not name it.
func (o *labOptions) condition(d *record.Design) {
	if o.machines.LinkSpeed != "" && d.Conditions[record.LinkCondition] == "" {
		d.Conditions = maps.Clone(d.Conditions)
		if d.Conditions == nil {
			d.Conditions = map[string]string{}
		}
		d.Conditions[record.LinkCondition] = o.machines.LinkSpeed
	}
}

// arch is the architecture of the lab's guests, "" if it has none.
func (o labOptions) arch() (string, error) {
	arch, guests := record.GuestArch(o.kind)
	arch = cmp.Or(arch, vm.NativeArch())
	switch {
	case record.InNamespaces(o.kind):
		return "", nil
	case guests && slices.Contains(vm.Arches(), arch):
		return arch, nil
	}
	return "", &usageError{fmt.Sprintf("lab %q is not known", o.kind), "labs: local, vm, vm:" +
		strings.Join(vm.Arches(), ", vm:")}
}

// describe notes in a run what its lab was asked to be.
func (o *labOptions) describe(run *record.Run) {
	run.Lab, run.Driver, run.Meter = o.kind, o.driver, o.meter
	if o.machines != (record.Machines{}) {
		run.Lab, run.Machines = record.LabSSH, &o.machines
		run.Machines.Router.Driver, run.Driver = cmp.Or(o.driver, o.machines.Router.Driver), ""
	}
	if o.size != (record.GuestSize{}) {
		run.GuestSize = &o.size
	}
	if o.image.File != "" {
		run.Image = &o.image
	}
	if o.kernel.File != "" {
		run.OwnKernel = &o.kernel
	}
	if o.queues > 1 {
		run.Queues = o.queues
	}
}

// labOptionsOf are those that a run was made with.
func labOptionsOf(run record.Run) labOptions {
	return labOptions{kind: run.Lab, queues: max(run.Queues, 1), driver: run.Driver,
		size: *cmp.Or(run.GuestSize, &record.GuestSize{}), image: *cmp.Or(run.Image, &record.DiskImage{}),
		kernel:   *cmp.Or(run.OwnKernel, &record.OwnKernel{}),
		machines: *cmp.Or(run.Machines, &record.Machines{}), meter: run.Meter}
}

// check refuses a lab that cannot be built, before anything is made.
func (o labOptions) check() error {
	if o.machines != (record.Machines{}) {
		o.machines.Router.Driver = cmp.Or(o.driver, o.machines.Router.Driver)
		return checkMachines(o.machines, o.alone)
	}
	arch, err := o.arch()
	_, known := driver.Named(o.driver)
	most := vm.MaxCPUs(arch)
	size := o.size
	switch {
	case err != nil:
		return err
	case size != record.GuestSize{} && arch == "":
		return &usageError{"--cpus, --memory or --cpu-model with lab local, whose routers are namespaces",
			"--lab vm boots virtual routers"}
	case size.CPUs < 0 || size.CPUs > factor.MaxVCPUs:
		return &usageError{fmt.Sprintf("--cpus %d", size.CPUs), fmt.Sprintf("a number from 1 to %d",
			factor.MaxVCPUs)}
	case most > 0 && size.CPUs > most:
		return &usageError{fmt.Sprintf("--cpus %d with a guest of %s", size.CPUs, arch),
			fmt.Sprintf("its board has %d", most)}
	case size.MemoryMB != 0 && (size.MemoryMB < factor.LeastMemory || size.MemoryMB > factor.MostMemory):
		return &usageError{fmt.Sprintf("--memory %d", size.MemoryMB), fmt.Sprintf("megabytes, from %d to %d",
			factor.LeastMemory, factor.MostMemory)}
	case strings.ContainsFunc(size.Model, func(r rune) bool { return r <= ' ' || r > '~' }) ||
		strings.HasPrefix(size.Model, "-"):
		return &usageError{fmt.Sprintf("--cpu-model %q", size.Model),
			"one of those that qemu-system-x86_64 -cpu help lists, for amd64"}
	case o.driver != "" && !known:
		return unknownDriver(o.driver)
	case o.driver != "" && o.image.File != "":
		return &usageError{"--driver with --image", "an image gets an agent: leave out one of them"}
	case o.queues < 1 || o.queues > maxQueues:
		return &usageError{fmt.Sprintf("--queues %d", o.queues), fmt.Sprintf("a number from 1 to %d",
			maxQueues)}
	case o.queues > 1 && arch != "":
		return &usageError{"--queues with --lab vm, whose links have one",
			"--lab local has virtual links of several"}
	case o.kernel.File != "" && arch == "":
		return &usageError{"--kernel with lab local, whose routers are namespaces",
			"--lab vm boots the kernel"}
	case o.kernel.File != "" && o.image.File != "":
		return &usageError{"--kernel with --image, which has a kernel of its own", "leave out one of them"}
	}
	if err := checkKernel(arch, o.kernel); err != nil {
		return err
	}
	switch {
	case o.image == record.DiskImage{}:
		return nil
	case o.image.File == "":
		return &usageError{"--image-login, --image-key, --image-password or --image-uefi without --image",
			"name the disk image: --image FILE"}
	case arch == "":
		return &usageError{"--image with lab local, whose routers are namespaces", "--lab vm boots the image"}
	case arch != "amd64":
		return &usageError{fmt.Sprintf("--image with a guest of %s: disk images are booted on amd64 only",
			arch), "--lab vm:amd64"}
	}
	_, err = openDisk(o.image)
	return err
}

func unknownDriver(name string) error {
	return &usageError{fmt.Sprintf("driver %q is not known", name), "drivers: " +
		strings.Join(each(driver.All(), driver.Driver.Name), ", ")}
}

// checkKernel refuses a kernel that cannot boot, before anything is made.
func checkKernel(arch string, k record.OwnKernel) error {
	if k.Modules != "" && k.File == "" {
		return &usageError{"--modules without --kernel", "name the kernel that the modules belong to"}
	}
	for _, path := range []string{k.File, k.Modules} {
		if _, err := os.Stat(path); path != "" && err != nil {
			return &usageError{fmt.Sprintf("read the kernel: %v", err),
				"give a kernel's file, such as /boot/vmlinuz, and the folder of its modules"}
		}
	}
	if k.File == "" {
		return nil
	}
	if err := vm.CheckKernel(k.File, arch); err != nil {
		return &usageError{err.Error(),
			"QEMU boots a bzImage on amd64, an Image on arm64 and a vmlinux (ELF) on mipsel"}
	}
	return nil
}

// openDisk checks the user's disk image and the files of its login.
func openDisk(i record.DiskImage) (vm.Disk, error) {
	d, err := vm.OpenDisk(i.File)
	if err != nil {
		return d, &usageError{err.Error(), check.HintOf(err)}
	}
	if i.UEFI {
		if err := d.BootByUEFI(); err != nil {
			return d, err
		}
	}
	if d.Login, err = vm.ParseLogin(cmp.Or(i.Login, vm.LoginSSH)); err != nil {
		return d, &usageError{err.Error(), "--image-login is ssh, ssh:USER, serial or serial:USER"}
	}
	if i.Key != "" && d.Login.Method != vm.LoginSSH {
		return d, &usageError{"--image-key with a login on the serial console",
			"--image-password FILE names a file that holds a password"}
	}
	readable := func(flag, file string) (string, error) {
		if file == "" {
			return "", nil
		}
		f, err := openRegular(file)
		if err != nil {
			return "", &usageError{fmt.Sprintf("%s: %v", flag, err), "name a file that you can read"}
		}
		f.Close()
		return filepath.Abs(file)
	}
	if d.Login.Key, err = readable("--image-key", i.Key); err == nil {
		d.Login.Password, err = readable("--image-password", i.Password)
	}
	if err == nil && i.Password != "" {
		if _, err := host.Password(i.Password); err != nil {
			return d, &usageError{fmt.Sprintf("--image-password: %v", err), check.HintOf(err)}
		}
	}
	return d, err
}

// absolute makes the paths absolute, because a run may be resumed from another folder.
func (o *labOptions) absolute() error {
	return absolute(append(pathsOf(&o.machines), &o.image.File, &o.image.Key, &o.image.Password,
		&o.kernel.File, &o.kernel.Modules)...)
}

// guest builds the image that the lab needs, or finds it built, and returns what its routers are; nil if
// they are namespaces.
func (o labOptions) guest(ctx context.Context, p *program) (*vm.Guest, error) {
	arch, err := o.arch()
	if err != nil || arch == "" {
		return nil, err
	}
	if a := vm.CheckEmulator(ctx, arch); a.State == check.No { // before packages are fetched for it
		return nil, check.WithHint(fmt.Errorf("boot a router of lab %s: %s", o.kind, a.Reason), a.Hint)
	}
	var g vm.Guest
	if o.image.File == "" {
		img, err := buildImage(ctx, p, arch, o.kernel)
		if err != nil {
			return nil, err
		}
		g = vm.NewGuest(img)
	} else {
		d, err := openDisk(o.image)
		if err != nil {
			return nil, err
		}
		if err := d.Identify(); err != nil {
			return nil, err
		}
		if d.Agent, err = p.agentProgram(ctx, "amd64"); err != nil {
			return nil, err
		}
		g = vm.NewForeignGuest(d)
	}
	g.CPUs, g.MemoryMB, g.Model = o.size.CPUs, cmp.Or(o.size.MemoryMB, g.MemoryMB), o.size.Model
	return &g, nil
}

// agentProgram finds or builds the agent for an architecture.
func (p *program) agentProgram(ctx context.Context, arch string) (string, error) {
	cache := p.dirs.vmCache()
	if err := prepare(cache); err != nil {
		return "", err
	}
	return vm.GuestProgram(ctx, arch, cache, vm.OwnSource(), func(text string) { p.note("%s", text) })
}

func buildImage(ctx context.Context, p *program, arch string, k record.OwnKernel) (vm.Image, error) {
	r := vm.Recipe{Arch: arch, Kernel: k.File, Modules: k.Modules, Cache: p.dirs.vmCache(),
		Say: func(text string) { p.note("%s", text) }}
	var err error
	if r.Program, err = p.agentProgram(ctx, r.Arch); err != nil {
		return vm.Image{}, err
	}
	return r.Image(ctx)
}
