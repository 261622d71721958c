package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func newLabImageCommand(p *program) *cobra.Command {
	arch := vm.NativeArch()
	kernel := record.OwnKernel{}
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Build the image that --lab vm boots",
		Long: `Build the image of a virtual router: the distribution's kernel (Debian, Ubuntu) or your
own, its modules, this program as init and agent, and a few tools for interactive use.
It needs no privileges. The image is kept, and rebuilt only if a package, the kernel or
this program has changed. run --lab vm does this by itself.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := cmp.Or(known("architecture %q is not known", arch, "architectures", vm.Arches()...),
				checkKernel(arch, kernel))
			if err != nil {
				return err
			}

			began := time.Now()
			img, err := p.BuildImage(cmd.Context(), arch, kernel)
			if err != nil {
				return err
			}

			return p.line(map[string]any{"arch": img.Arch, "release": img.Release, "key": img.Key,
				"kernel": img.Kernel, "initrd": img.Initrd, "packages": img.Packages},
				fmt.Sprintf("image %s: %s, Linux %s, in %v\n  kernel  %s\n  initrd  %s\n", img.Key, img.Arch,
					img.Release, time.Since(began).Round(10*time.Millisecond), img.Kernel, img.Initrd))
		},
	}
	cmd.Flags().StringVar(&arch, "arch", arch, "`ARCH` of the guest: "+list(vm.Arches()))
	addKernelFlags(cmd.Flags(), &kernel)
	return addJSON(cmd, "print the image as one line of JSON")
}
