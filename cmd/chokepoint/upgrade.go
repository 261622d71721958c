package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

type upgradeOptions struct {
	app.UpgradeOptions
	plan  planOptions
	lab   labOptions
	fails bool
	junit string
}

func newUpgradeCommand(p *program) *cobra.Command {
	var o upgradeOptions
	cmd := &cobra.Command{
		Use:   "upgrade OLD NEW [PLAN]",
		Short: "Find what another version of the router's software changes",
		Long: `Measure two versions of a router's software in turn, and report which cells changed:
faster or slower, by how much, and what else differs between the versions. In each block
both versions are measured once, in random order, after a fresh boot. A change that all
six blocks show is measured in six more blocks, and counts only if these show it too.

With --lab vm, a version is a package of the distribution's kernel (such as
linux-image-6.1.0-50-cloud-amd64), a kernel FILE or FILE:MODULES, or the FILE of a disk
image. With a lab file, it is a level of the factor firmware, which the lab file's
command, or you, install on the router.

Every run is stored. A command that was interrupted is continued with --resume.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 {
				return app.Usage("chokepoint upgrade --lab vm OLD NEW",
					"upgrade: want two versions, and a plan if it is not quick")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.plan.validate(cmd.Flags(), args[2:]); err != nil {
				return err
			}
			return runUpgrade(cmd.Context(), o, args[:2], p)
		},
	}
	o.plan.addFlags(cmd)
	o.lab.addFlags(cmd.Flags())
	f := cmd.Flags()
	for _, name := range []string{"image", "kernel", "modules", "kernel-package"} { // OLD and NEW name them
		f.Lookup(name).Hidden = true
	}

	f.StringVar(&o.ID, "resume", "", "continue the measurements of this `ID`")
	f.BoolVar(&o.fails, "fail-on-regression", false, "exit with 4 if a cell is worse in the new version")
	f.StringVar(&o.junit, "junit", "", "write a test for each cell to this `FILE` (JUnit XML)")
	addJSON(cmd, "print one JSON object per event, and the comparison last")
	f.Bool("quiet", false, "show no progress, only warnings, errors and the result")
	return cmd
}

func runUpgrade(ctx context.Context, o upgradeOptions, names []string, p *program) error {
	if err := o.lab.readFile(); err != nil {
		return err
	}

	if o.lab.image.File != "" || o.lab.kernel != (record.OwnKernel{}) {
		return app.Usage("OLD and NEW name them", "upgrade with --image or a kernel")
	}

	if names[0] == names[1] && o.ID == "" {
		p.note("both versions are the same: what differs is chance")
	}

	plain := o.lab
	plain.image, plain.kernel = record.DiskImage{}, record.OwnKernel{}
	if err := cmp.Or(plain.check(), plain.absolute()); err != nil {
		return err
	}

	for i, name := range names {
		v, err := o.version(name)
		if err != nil {
			return err
		}

		its := plain
		its.image = *cmp.Or(v.Image, &record.DiskImage{})
		its.kernel = *cmp.Or(v.Kernel, &record.OwnKernel{})
		if err := its.check(); err != nil {
			return err
		}

		// One run of each version makes a block; more would lengthen it before the router boots anew.
		request := o.plan.PlanRequest
		request.Sets = append([]string{"method.runs=1"}, request.Sets...)
		if v.Firmware != "" {
			request.Sets = append(request.Sets, "matrix.firmware="+v.Firmware)
		}

		if i > 0 && v.Firmware == "" {
			o.Plans[i] = o.Plans[0]
		} else if o.Plans[i], err = request.ReadFitting(app.Peer{}); err != nil {
			return err
		}

		plain.condition(&o.Plans[i].Design)
		o.Versions[i] = v
	}

	if o.Versions[0].Name == o.Versions[1].Name {
		o.Versions[0].Name += " (A)"
		o.Versions[1].Name += " (B)"
	}

	plain.describe(&o.On)
	c, labels, err := p.Upgrade(ctx, o.UpgradeOptions)
	if c == nil {
		return err
	}

	if o.junit != "" {
		content, wrong := report.ComparisonJUnit(c, labels, true)
		if wrong == nil {
			wrong = userfile.Put(userfile.Create, o.junit, content)
		}

		err = errors.Join(err, wrong)
	}

	width, _, _ := p.screen()
	err = errors.Join(err, p.line(c, comparisonText(c, labels, width)))
	if o.fails {
		err = errors.Join(err, p.regressions(c, labels, true))
	}

	return err
}

// version returns what a word of the command line names.
func (o *upgradeOptions) version(word string) (app.RouterVersion, error) {
	v := app.RouterVersion{Name: word}
	if o.lab.machines != (record.Machines{}) {
		v.Firmware = word
		return v, nil
	}

	arch, err := app.GuestArch(o.lab.kind)
	if err != nil {
		return v, err
	}

	if arch == "" {
		return v, app.Usage("--lab vm, whose router boots what you name, or a lab file",
			"versions of a router with lab %s, whose router is this machine's own kernel", o.lab.kind)
	}

	file, modules, _ := strings.Cut(word, ":")
	_, missing := os.Stat(file)
	switch {
	case missing != nil && !strings.Contains(word, "/"):
		v.Kernel = &record.OwnKernel{Package: word}
	case missing != nil:
		return v, app.Usage("name a file, or a package of the distribution's kernel", "%v", missing)
	case vm.CheckKernel(file, arch) == nil:
		v.Kernel = &record.OwnKernel{File: file, Modules: modules}
	default:
		image := o.lab.image
		image.File = file
		v.Image = &image
		if _, err := app.OpenDisk(image); err != nil {
			return v, err
		}
	}

	if v.Kernel == nil {
		return v, app.Absolute(&v.Image.File, &v.Image.Key, &v.Image.Password)
	}

	return v, cmp.Or(checkKernel(arch, *v.Kernel), app.Absolute(&v.Kernel.File, &v.Kernel.Modules))
}
