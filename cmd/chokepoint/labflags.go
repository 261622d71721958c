package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/meter"
)

// maxQueues is the maximum number of queues of a virtual link.
const maxQueues = 256

// labOptions describes the routers and links of a lab.
type labOptions struct {
	kind     string
	size     record.GuestSize
	image    record.DiskImage
	kernel   record.OwnKernel
	queues   int
	driver   string
	machines record.Machines // machines of a real lab; none if the lab is created on this machine
	alone    bool            // a router without endpoints is enough
	meter    *record.Meter   // power meter; nil if there is none
}

func (o *labOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.kind, "lab", record.LabLocal,
		"`KIND` of lab: local (namespaces of this machine), vm (a guest with its own kernel), "+
			"vm:ARCH, or the lab file of real machines")
	f.IntVar(&o.size.CPUs, "cpus", 0,
		"with --lab vm: `N` vCPUs for each virtual router (default 2 with KVM and for arm64, else 1)")
	f.IntVar(&o.size.MemoryMB, "memory", 0,
		"with --lab vm: `MB` of memory for each virtual router (default 320)")
	f.StringVar(&o.size.Model, "cpu-model", "",
		"with --lab vm: `MODEL` of the vCPUs, by QEMU's name (default the fastest to emulate)")
	f.StringVar(&o.image.File, "image", "",
		"with --lab vm: boot this disk image `FILE` (qcow2 or raw) as the router; it is not changed")
	f.StringVar(&o.image.Login, "image-login", "",
		"log in to the image by `METHOD`: ssh, ssh:USER, serial or serial:USER (default ssh:root)")
	f.StringVar(&o.image.Key, "image-key", "", "private key `FILE` for ssh to the image")
	f.StringVar(&o.image.Password, "image-password", "",
		"`FILE` whose first line is the password for --image-login")
	f.BoolVar(&o.image.UEFI, "image-uefi", false, "boot the image by UEFI instead of BIOS")
	addKernelFlags(f, &o.kernel)
	f.StringVar(&o.driver, "driver", "",
		"configure and sample the routers through their shell, without an agent, with this `DRIVER`, "+
			"such as linux")
	f.IntVar(&o.queues, "queues", 1, "with --lab local: `N` transmit and receive queues for each virtual "+
		"link, like a NIC with a queue for each core")
}

// addTarget adds the flags that select where a plan runs: in a new lab, in a running one, or with a peer.
// They exclude each other.
func addTarget(cmd *cobra.Command, o *labOptions, to *app.RunOptions, attach, peer string) {
	o.addFlags(cmd.Flags())
	addPeerFlags(cmd.Flags(), &to.Peer, peer)
	cmd.Flags().StringVar(&to.Attach, "attach", "", attach)
	for _, name := range slices.Concat(newLabFlags, []string{"driver"}) {
		cmd.MarkFlagsMutuallyExclusive(name, "attach")
		cmd.MarkFlagsMutuallyExclusive(name, "peer")
	}

	cmd.MarkFlagsMutuallyExclusive("attach", "peer")
}

// useLab is the help of --attach in commands that run plans.
const useLab = "use this `LAB`, started by lab up"

// newLabFlags lists the flags that describe a lab to create, whose routers are not real machines.
var newLabFlags = strings.Fields("lab cpus memory cpu-model image kernel kernel-package queues")

func addKernelFlags(f *pflag.FlagSet, k *record.OwnKernel) {
	f.StringVar(&k.File, "kernel", "", "boot the virtual router with this kernel `FILE`")
	f.StringVar(&k.Modules, "modules", "", "`DIR` of the modules of --kernel, such as /lib/modules/RELEASE")
	f.StringVar(&k.Package, "kernel-package", "", "boot the virtual router with the kernel in this "+
		"distribution `PACKAGE`, such as linux-image-6.1.0-50-cloud-amd64")
}

// readFile reads the machines from the lab file, if there is one.
func (o *labOptions) readFile() (err error) {
	accept := o.machines.AcceptNew
	o.machines.AcceptNew = false
	named := o.machines != record.Machines{}
	switch {
	case isLabFile(o.kind) && named:
		return app.Usage("leave out one of them", "a lab file and flags of machines")
	case isLabFile(o.kind):
		if o.machines, err = app.ReadLabFile(o.kind); err != nil {
			return err
		}

		o.kind = record.LabSSH
		o.meter = cmp.Or(o.meter, o.machines.Meter)
		o.machines.Meter = nil
	case accept && !named:
		return app.Usage("name them, or a lab file: --lab FILE", "--accept-new without machines")
	}

	o.machines.AcceptNew = accept
	return nil
}

// settle reads the machines from the lab file, if there is one, and makes paths absolute. It returns an
// error if the lab cannot be created.
func (o *labOptions) settle() error {
	return cmp.Or(o.readFile(), o.check(), o.absolute())
}

// readMeter parses at, the value of --meter, and uses that power meter in place of the lab file's. If at is
// empty, it keeps the lab file's meter. It returns an error if the meter's password cannot be read.
func (o *labOptions) readMeter(at string) error {
	if at != "" {
		m, err := meter.Parse(at)
		if err != nil {
			return app.Usage(check.HintOf(err), "--meter: %v", err)
		}

		o.meter = &m
	}

	if o.meter == nil || o.meter.TypedIn() {
		return nil
	}

	if _, err := meter.Open(*o.meter, ""); err != nil {
		const hint = "set the variable, or name a file that you can read"
		return app.Usage(cmp.Or(check.HintOf(err), hint), "%v", err)
	}

	return nil
}

// condition adds the rate of the slowest link to a design that lacks this condition.
func (o *labOptions) condition(d *record.Design) {
	if o.machines.LinkSpeed != "" && d.Conditions[record.LinkCondition] == "" {
		d.Conditions = maps.Clone(d.Conditions)
		if d.Conditions == nil {
			d.Conditions = map[string]string{}
		}

		d.Conditions[record.LinkCondition] = o.machines.LinkSpeed
	}
}

// describe stores the requested lab in a run.
func (o *labOptions) describe(run *record.Run) {
	run.Lab = o.kind
	run.Driver = o.driver
	run.Meter = o.meter
	if o.machines != (record.Machines{}) {
		run.Lab = record.LabSSH
		run.Machines = &o.machines
		run.Machines.Router.Driver = cmp.Or(o.driver, o.machines.Router.Driver)
		run.Driver = ""
		run.Device = cmp.Or(o.machines.Device, run.Device)
		if o.machines.Notes != nil {
			run.Notes = slices.Concat(run.Notes, *o.machines.Notes)
		}
	}

	if o.size != (record.GuestSize{}) {
		run.GuestSize = &o.size
	}

	if o.image.File != "" {
		run.Image = &o.image
	}

	if o.kernel != (record.OwnKernel{}) {
		run.OwnKernel = &o.kernel
	}

	if o.queues > 1 {
		run.Queues = o.queues
	}
}

// check returns an error if the lab cannot be created. It is called before anything is changed.
func (o labOptions) check() error {
	if o.machines != (record.Machines{}) {
		o.machines.Router.Driver = cmp.Or(o.driver, o.machines.Router.Driver)
		return checkMachines(o.machines, o.alone)
	}

	arch, err := app.GuestArch(o.kind)
	most := vm.MaxCPUs(arch)
	size := o.size
	kernel := "--kernel"
	if o.kernel.Package != "" {
		kernel = "--kernel-package"
	}

	switch {
	case err != nil:
		return err
	case size != record.GuestSize{} && arch == "":
		return app.Usage("--lab vm boots virtual routers",
			"--cpus, --memory or --cpu-model with lab local, whose routers are namespaces")
	case size.CPUs < 0 || size.CPUs > factor.MaxVCPUs:
		return app.Usage(fmt.Sprintf("a number from 1 to %d", factor.MaxVCPUs), "--cpus %d", size.CPUs)
	case most > 0 && size.CPUs > most:
		return app.Usage(fmt.Sprintf("its board has %d", most), "--cpus %d with a guest of %s", size.CPUs,
			arch)
	case size.MemoryMB != 0 && (size.MemoryMB < factor.MinMemory || size.MemoryMB > factor.MaxMemory):
		return app.Usage(fmt.Sprintf("megabytes, from %d to %d",
			factor.MinMemory, factor.MaxMemory), "--memory %d", size.MemoryMB)
	case strings.ContainsFunc(size.Model, func(r rune) bool { return r <= ' ' || r > '~' }) ||
		strings.HasPrefix(size.Model, "-"):
		return app.Usage("one of those that qemu-system-x86_64 -cpu help lists, for amd64", "--cpu-model %q",
			size.Model)
	case app.KnownDriver(o.driver) != nil:
		return app.KnownDriver(o.driver)
	case o.driver != "" && o.image.File != "":
		return app.Usage("an image gets an agent: leave out one of them", "--driver with --image")
	case o.queues < 1 || o.queues > maxQueues:
		return app.Usage(fmt.Sprintf("a number from 1 to %d", maxQueues), "--queues %d", o.queues)
	case o.queues > 1 && arch != "":
		return app.Usage("--lab local has virtual links of several",
			"--queues with --lab vm, whose links have one")
	case o.kernel.File+o.kernel.Package != "" && arch == "":
		return app.Usage("--lab vm boots the kernel", "%s with lab local, whose routers are namespaces",
			kernel)
	case o.kernel.File+o.kernel.Package != "" && o.image.File != "":
		return app.Usage("leave out one of them", "%s with --image, which has a kernel of its own",
			kernel)
	}

	if err := checkKernel(arch, o.kernel); err != nil {
		return err
	}

	switch {
	case o.image == record.DiskImage{}:
		return nil
	case o.image.File == "":
		return app.Usage("name the disk image: --image FILE",
			"--image-login, --image-key, --image-password or --image-uefi without --image")
	case arch == "":
		return app.Usage("--lab vm boots the image", "--image with lab local, whose routers are namespaces")
	case arch != "amd64":
		return app.Usage("--lab vm:amd64", "--image with a guest of %s: disk images are booted on amd64 only",
			arch)
	}

	_, err = app.OpenDisk(o.image)
	return err
}

// checkKernel returns an error if the kernel cannot boot. It is called before anything is changed.
func checkKernel(arch string, k record.OwnKernel) error {
	if k.Package != "" && k.File != "" {
		return app.Usage("leave out one of them", "--kernel-package with --kernel")
	}

	if !vm.PackageName(k.Package) {
		return app.Usage("apt-cache search linux-image lists them", "%q names no package", k.Package)
	}

	if k.Modules != "" && k.File == "" {
		return app.Usage("name the kernel that the modules belong to", "--modules without --kernel")
	}

	for _, path := range []string{k.File, k.Modules} {
		if _, err := os.Stat(path); path != "" && err != nil {
			return app.Usage("give a kernel's file, such as /boot/vmlinuz, and the folder of its modules",
				"read the kernel: %v", err)
		}
	}

	if k.File == "" {
		return nil
	}

	if err := vm.CheckKernel(k.File, arch); err != nil {
		return app.Usage("QEMU boots a bzImage on amd64, an Image on arm64 and a vmlinux (ELF) on mipsel",
			"%v", err)
	}

	return nil
}

// guest returns the guest that the lab's routers boot, or nil if routers are namespaces.
func (o labOptions) guest(ctx context.Context, p *program) (*vm.Guest, error) {
	var run record.Run
	o.describe(&run)
	return p.Guest(ctx, run)
}

// absolute makes paths absolute, because a run may be resumed from another directory.
func (o *labOptions) absolute() error {
	return app.Absolute(append(app.PathsOf(&o.machines), &o.image.File, &o.image.Key, &o.image.Password,
		&o.kernel.File, &o.kernel.Modules)...)
}
