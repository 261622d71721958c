package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// versionOptions choose versions of a router, a plan and a lab; upgrade and bisect share them.
type versionOptions struct {
	app.UpgradeOptions
	plan  planOptions
	lab   labOptions
	fails bool
}

type upgradeOptions struct {
	versionOptions
	junit string
}

func newUpgradeCommand(p *program) *cobra.Command {
	var o upgradeOptions
	cmd := &cobra.Command{
		Use:   "upgrade OLD NEW... [PLAN]",
		Short: "Find what another version of the router's software changes",
		Long: `Measure versions of a router's software in turn, and report which cells changed: faster
or slower, by how much, and what else differs between the versions. Each later version
is compared with the first. In each block every version is measured once, in random
order, after a fresh boot. A change that all six blocks show is measured in six more
blocks, and counts only if these show it too.

` + versionKinds + `

Every run is stored. A command that was interrupted is continued with --resume.`,
		Args: func(_ *cobra.Command, args []string) error {
			if versions, _ := splitPlan(args); len(versions) < 2 {
				return app.Usage("chokepoint upgrade --lab vm OLD NEW",
					"upgrade: want two versions, and a plan if it is not quick")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := o.settle(cmd.Flags(), args)
			if err != nil {
				return err
			}
			return runUpgrade(cmd.Context(), o, names, p)
		},
	}
	o.addFlags(cmd)
	cmd.Flags().BoolVar(&o.fails, "fail-on-regression", false,
		"exit with 4 if a cell is worse in a later version")
	cmd.Flags().StringVar(&o.junit, "junit", "",
		"write a test for each cell to this `FILE` (JUnit XML)")
	addJSON(cmd, "print one JSON object per event, and the comparisons last")
	return cmd
}

// versionKinds is the part of the help that describes what a version can be.
const versionKinds = `With --lab vm, a version is a package of the distribution's kernel (such as
linux-image-6.1.0-50-cloud-amd64), a kernel FILE or FILE:MODULES, or the FILE of a disk
image. With a lab file, it is a level of the factor firmware, which the lab file's
command, or you, install on the router. A last argument is the plan if it is the name of
a built-in plan or ends in .yaml or .yml; --plan names any other.`

func (o *versionOptions) addFlags(cmd *cobra.Command) {
	o.plan.addFlags(cmd)
	o.lab.addFlags(cmd.Flags())
	f := cmd.Flags()
	// The versions on the command line replace these flags.
	for name := range strings.FieldsSeq("image kernel modules kernel-package") {
		f.Lookup(name).Hidden = true
	}

	f.StringVar(&o.plan.Name, "plan", "", "run this `PLAN` instead of quick")
	f.StringVar(&o.ID, "resume", "", "continue the measurements of this `ID`")
	f.Bool("quiet", false, "show no progress, only warnings, errors and the result")
}

// splitPlan separates the versions from a plan, if the last argument is one.
func splitPlan(args []string) (versions, plans []string) {
	if len(args) == 0 {
		return nil, nil
	}

	last := args[len(args)-1]
	_, known := plan.BuiltIn(last)
	if extension := filepath.Ext(last); !known && extension != ".yaml" && extension != ".yml" {
		return args, nil
	}

	return args[:len(args)-1], args[len(args)-1:]
}

// settle checks the flags, takes the plan from the arguments and returns the versions' names.
func (o *versionOptions) settle(flags *pflag.FlagSet, args []string) ([]string, error) {
	names, plans := splitPlan(args)
	if flags.Changed("plan") {
		if len(plans) > 0 {
			return nil, app.Usage("leave out one of them", "--plan and the plan %s", plans[0])
		}

		plans = []string{o.plan.Name}
	}

	if flags.Changed("resume") {
		if err := app.CheckID(o.ID); err != nil {
			return nil, err
		}
	}

	return names, o.plan.validate(flags, plans)
}

// read checks the lab and reads the versions. For each version, it also reads the plan of its runs.
func (o *versionOptions) read(names []string) error {
	plain, err := o.place()
	if err != nil {
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

		var pl *plan.Plan
		if i > 0 && v.Firmware == "" {
			pl = o.Plans[0]
		} else if pl, err = o.planOf(v, plain); err != nil {
			return err
		}

		o.Versions, o.Plans = append(o.Versions, v), append(o.Plans, pl)
	}

	return nil
}

// place reads and checks the lab, stores it for the runs, and returns it without a version.
func (o *versionOptions) place() (labOptions, error) {
	if err := o.lab.readFile(); err != nil {
		return labOptions{}, err
	}

	if o.lab.image.File != "" || o.lab.kernel != (record.OwnKernel{}) {
		return labOptions{}, app.Usage("OLD and NEW name them", "versions with --image or a kernel")
	}

	plain := o.lab
	plain.image, plain.kernel = record.DiskImage{}, record.OwnKernel{}
	if err := cmp.Or(plain.check(), plain.absolute()); err != nil {
		return labOptions{}, err
	}

	plain.describe(&o.On)
	return plain, nil
}

// planOf reads the plan for a run of a version. Each version has a single run in a block. More runs would
// delay the boot of the next version.
func (o *versionOptions) planOf(v app.RouterVersion, at labOptions) (*plan.Plan, error) {
	request := o.plan.PlanRequest
	request.Sets = append([]string{"method.runs=1"}, request.Sets...)
	if v.Firmware != "" {
		request.Sets = append(request.Sets, "matrix.firmware="+v.Firmware)
	}

	pl, err := request.ReadFitting(app.Peer{})
	if err == nil {
		at.condition(&pl.Design)
	}

	return pl, err
}

// tellApart renames versions that have the same name: "x", "x (2)".
func tellApart(versions []app.RouterVersion) {
	seen := map[string]int{}
	for i := range versions {
		name := versions[i].Name
		if seen[name]++; seen[name] > 1 {
			versions[i].Name = fmt.Sprintf("%s (%d)", name, seen[name])
		}
	}
}

func runUpgrade(ctx context.Context, o upgradeOptions, names []string, p *program) error {
	if len(names) > 2 && o.junit != "" {
		return app.Usage("compare one later version with the first", "--junit with %d versions", len(names))
	}

	if err := o.read(names); err != nil {
		return err
	}

	if len(distinct(names)) < len(names) && o.ID == "" {
		p.note("a version is named twice: what differs between the two is chance")
	}

	tellApart(o.Versions)
	all, labels, err := p.Upgrade(ctx, o.UpgradeOptions)
	for i, c := range all {
		if c == nil {
			continue
		}

		if o.junit != "" {
			content, wrong := report.ComparisonJUnit(c, labels, true)
			if wrong == nil {
				wrong = userfile.Put(userfile.Create, o.junit, content)
			}

			err = errors.Join(err, wrong)
		}

		text := comparisonText(c, labels, p.width())
		if i > 0 {
			text = "\n" + text
		}

		err = errors.Join(err, p.line(c, text))
		if o.fails {
			err = errors.Join(err, p.regressions(c, labels, true))
		}
	}

	return err
}

// version returns the version that a word of the command line names.
func (o *versionOptions) version(word string) (app.RouterVersion, error) {
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
