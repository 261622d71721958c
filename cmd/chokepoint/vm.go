package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// maxQueues is as many as the largest of machines has use for.
const maxQueues = 256

// labOptions say what the routers of a lab are, and its links.
type labOptions struct {
	kind   string
	size   record.GuestSize
	image  record.DiskImage
	kernel record.OwnKernel
	queues int
}

func (o *labOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.kind, "lab", "local",
		"`KIND` of lab: local (namespaces of this machine), vm (a guest with a kernel of its own), vm:ARCH")
	addSizeFlags(f, &o.size)
	f.StringVar(&o.image.File, "image", "",
		"with --lab vm: boot this disk image `FILE` of yours (qcow2 or raw) as the router; it is not changed")
	f.StringVar(&o.image.Login, "image-login", "",
		"log in to the image by `WAY`: ssh, ssh:USER, serial or serial:USER (default ssh:root)")
	f.StringVar(&o.image.Key, "image-key", "", "private key `FILE` for ssh")
	f.StringVar(&o.image.Password, "image-password", "", "`FILE` whose first line is the user's password")
	f.BoolVar(&o.image.UEFI, "image-uefi", false, "boot the image by UEFI instead of BIOS")
	addKernelFlags(f, &o.kernel)
	f.IntVar(&o.queues, "queues", 1, "with --lab local: `N` transmit and receive queues of each virtual "+
		"link, as a network card has one for each core")
}

func addKernelFlags(f *pflag.FlagSet, k *record.OwnKernel) {
	f.StringVar(&k.File, "kernel", "", "boot the virtual router with this kernel `FILE` of yours")
	f.StringVar(&k.Modules, "modules", "", "`DIR` of its modules, such as /lib/modules/RELEASE")
}

// arch is the architecture of the lab's guests, "" if it has none.
func (o labOptions) arch() (string, error) {
	kind, arch, _ := strings.Cut(o.kind, ":")
	switch {
	case o.kind == "local":
		return "", nil
	case o.kind == "vm" && vm.NativeArch() != "":
		return vm.NativeArch(), nil
	case kind == "vm" && slices.Contains(vm.Arches(), arch):
		return arch, nil
	}
	return "", &usageError{fmt.Sprintf("lab %q is not known", o.kind), "labs: local, vm, vm:" +
		strings.Join(vm.Arches(), ", vm:")}
}

// labOptionsOf are those that a run was made with.
func labOptionsOf(run record.Run) labOptions {
	o := labOptions{kind: run.Lab, queues: max(run.Queues, 1)}
	if run.GuestSize != nil {
		o.size = *run.GuestSize
	}
	if run.Image != nil {
		o.image = *run.Image
	}
	if run.OwnKernel != nil {
		o.kernel = *run.OwnKernel
	}
	return o
}

// check refuses a lab that cannot be meant before anything is made.
func (o labOptions) check() error {
	arch, err := o.arch()
	if err == nil {
		err = checkSize(arch, o.size)
	}
	switch {
	case err != nil:
		return err
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
	if o.image.File == "" {
		if o.image != (record.DiskImage{}) {
			return &usageError{"--image-login, --image-key, --image-password or --image-uefi without --image",
				"name the disk image: --image FILE"}
		}
		return nil
	}
	switch {
	case arch == "":
		return &usageError{"--image with lab local, whose routers are namespaces", "--lab vm boots the image"}
	case arch != "amd64":
		return &usageError{fmt.Sprintf("--image with a guest of %s: disk images are booted on amd64 only",
			arch), "--lab vm:amd64"}
	}
	_, err = openDisk(o.image)
	return err
}

// wholePaths makes the paths whole, because a run may be resumed from another folder.
func (o *labOptions) wholePaths() error {
	for _, path := range []*string{&o.image.File, &o.image.Key, &o.image.Password, &o.kernel.File,
		&o.kernel.Modules} {
		if *path == "" {
			continue
		}
		whole, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("find %s: %w", *path, err)
		}
		*path = whole
	}
	return nil
}

// guest builds the image that the lab needs, or finds it built, and returns what its routers are; nil if
// they are namespaces.
func (o labOptions) guest(ctx context.Context, p *program) (*vm.Guest, error) {
	arch, err := o.arch()
	if err != nil || arch == "" {
		return nil, err
	}
	if o.image.File != "" {
		g, err := foreignGuest(ctx, p, o.image)
		if err != nil {
			return nil, err
		}
		return sized(g, o.size), nil
	}
	img, err := buildImage(ctx, p, arch, o.kernel)
	if err != nil {
		return nil, err
	}
	g := vm.NewGuest(img)
	return sized(&g, o.size), nil
}

func buildImage(ctx context.Context, p *program, arch string, k record.OwnKernel) (vm.Image, error) {
	r := vm.Recipe{Arch: arch, Kernel: k.File, Modules: k.Modules,
		Cache: p.dirs.vmCache(), Say: func(text string) { p.streams.note("%s", text) }}
	if err := prepare(r.Cache); err != nil {
		return vm.Image{}, err
	}
	var err error
	if r.Program, err = vm.GuestProgram(ctx, r.Arch, r.Cache, r.Say); err != nil {
		return vm.Image{}, err
	}
	return r.Image(ctx)
}

// checkKernel refuses a kernel that cannot be meant before anything is made.
func checkKernel(arch string, k record.OwnKernel) error {
	if k.Modules != "" && k.File == "" {
		return &usageError{"--modules without --kernel", "name the kernel that the modules belong to"}
	}
	for _, path := range []string{k.File, k.Modules} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
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

func newVMCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "vm COMMAND", Short: "Make the image of the virtual router",
		Args: cobra.NoArgs}
	cmd.AddCommand(newVMBuildCommand(p))
	return cmd
}

func newVMBuildCommand(p *program) *cobra.Command {
	arch, kernel, asJSON := vm.NativeArch(), record.OwnKernel{}, false
	cmd := &cobra.Command{
		Use:   "build [--arch ARCH] [--kernel FILE [--modules DIR]] [--json]",
		Short: "Build the image that --lab vm boots",
		Long: "Build the image of a virtual router: the distribution's kernel (Debian, Ubuntu) or\n" +
			"your own, its modules, this program as init and agent, and a few tools for a human.\n" +
			"No privilege is needed. The image is kept; nothing is built anew unless a package,\n" +
			"the kernel or this program has changed. run --lab vm does this by itself.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(vm.Arches(), arch) {
				return &usageError{fmt.Sprintf("architecture %q is not known", arch), "architectures: " +
					strings.Join(vm.Arches(), ", ")}
			}
			if err := checkKernel(arch, kernel); err != nil {
				return err
			}
			began := time.Now()
			img, err := buildImage(cmd.Context(), p, arch, kernel)
			if err != nil {
				return err
			}
			if asJSON {
				line, err := jsonLine(map[string]any{"arch": img.Arch, "release": img.Release, "key": img.Key,
					"kernel": img.Kernel, "initrd": img.Initrd, "packages": img.Packages})
				if err != nil {
					return err
				}
				return write(p.Out, string(line))
			}
			return write(p.Out, fmt.Sprintf("image %s: %s, Linux %s, in %v\n  kernel  %s\n  initrd  %s\n",
				img.Key, img.Arch, img.Release,
				time.Since(began).Round(10*time.Millisecond), img.Kernel, img.Initrd))
		},
	}
	cmd.Flags().StringVar(&arch, "arch", arch, "`ARCH` of the guest: "+strings.Join(vm.Arches(), ", "))
	addKernelFlags(cmd.Flags(), &kernel)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the image as one line of JSON")
	return cmd
}
