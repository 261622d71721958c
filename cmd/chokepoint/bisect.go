package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

type bisectOptions struct {
	versionOptions
	cell       string
	skip       []string
	good, bad  string
	build      string
	repository string
	markdown   string
}

func newBisectCommand(p *program) *cobra.Command {
	var o bisectOptions
	cmd := &cobra.Command{
		Use:   "bisect GOOD VERSION... BAD [PLAN]",
		Short: "Find which version of the router's software changed a result",
		Long: `Find which of some versions of a router's software, the oldest first, changed a result.
The ends are compared as by chokepoint upgrade. If they differ, versions between them are
measured, one run after a fresh boot each, until one version has changed the cell with
the clearest change, or the one of --cell, with a probability of 94 %. Other answers are:
the ends are the same; not reproducible; no number at the bad end; no single culprit; it
is the tester; undecided.

` + versionKinds + `

With --build, the versions are the commits from --good to --bad, along first parents. The
command is run by sh in a checkout of a commit, $CHOKEPOINT_COMMIT. It must write a disk
image or a kernel to $CHOKEPOINT_OUTPUT, and can write modules below $CHOKEPOINT_MODULES.
As with git bisect run, a build that exits with 125 skips the commit, and one that exits
with 128 or more ends the search. Any other failure skips the commit, too.

Every run is stored. A command that was interrupted is continued with --resume.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := o.settle(cmd.Flags(), args)
			if err != nil {
				return err
			}

			if err := o.check(names); err != nil {
				return err
			}
			return runBisect(cmd.Context(), o, names, p)
		},
	}
	o.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.cell, "cell", "", "follow the cell whose label has these `WORDS`, in any order")
	f.StringArrayVar(&o.skip, "skip", nil, "leave out this `VERSION`; may be repeated")
	f.StringVar(&o.build, "build", "", "bisect commits: build each with this `COMMAND`")
	f.StringVar(&o.good, "good", "", "with --build: a good commit `REV`")
	f.StringVar(&o.bad, "bad", "", "with --build: a later, bad commit `REV`")
	f.StringVar(&o.repository, "repository", ".", "with --build: the git repository in this `DIR`")
	f.StringVar(&o.markdown, "markdown", "", "write the log as a page to this `FILE` (Markdown)")
	f.BoolVar(&o.fails, "fail-on-regression", false,
		"exit with 4 if the cell is worse in the last version")
	addJSON(cmd, "print one JSON object per event, and the result last")
	return cmd
}

// check returns an error if the versions and the flags do not fit together.
func (o *bisectOptions) check(names []string) error {
	commits := o.good + o.bad + o.build
	switch {
	case commits == "" && len(names) < 2:
		return app.Usage("chokepoint bisect --lab vm GOOD VERSION BAD", "bisect: want versions, oldest first")
	case commits == "":
		return nil
	case o.build == "" || o.good == "" || o.bad == "":
		return app.Usage("chokepoint bisect --lab vm --build COMMAND --good REV --bad REV",
			"bisect of commits: want --build, --good and --bad")
	case len(names) > 0:
		return app.Usage("leave out one of them", "bisect of commits and of the version %s", names[0])
	case len(o.skip) > 0:
		return app.Usage("let the command exit with 125 for it", "--skip of a commit")
	}
	return nil
}

func runBisect(ctx context.Context, o bisectOptions, names []string, p *program) (err error) {
	options := app.BisectOptions{Cell: o.cell, Skip: o.skip}
	var builds app.Builds
	fresh := o.ID == ""
	if o.build == "" {
		if err := o.read(names); err != nil {
			return err
		}

		tellApart(o.Versions)
	} else if builds, options.Prepare, err = o.commits(ctx, p); err != nil {
		return err
	}

	for _, name := range o.skip {
		if i := slices.Index(names, name); i <= 0 || i == len(names)-1 {
			return app.Usage("name a version between the first and the last one", "--skip %s", name)
		}
	}

	var log *userfile.File
	if o.markdown != "" {
		if log, err = userfile.Create(o.markdown); err != nil {
			return err
		}
		defer app.Closing(&err, log.Abort)
	}

	if o.build != "" && fresh { // --resume looks for the directory of the builds
		if err := app.Prepare(builds.Dir); err != nil {
			return err
		}
	}

	options.UpgradeOptions = o.UpgradeOptions
	x, err := p.Bisect(ctx, options)
	if err == nil && o.build != "" {
		err = builds.Clear()
	}

	if x == nil {
		return err
	}

	if log != nil {
		err = errors.Join(err, log.Commit(report.BisectionMarkdown(x)))
	}

	err = errors.Join(err, p.line(x, bisectionText(x)))
	if o.fails && x.Worse() {
		err = errors.Join(err, regression(x.Cell, "worse in "+o.Versions[len(o.Versions)-1].Name))
	}

	return err
}

// commits takes the versions from a repository. It also returns the function that builds a version.
func (o *bisectOptions) commits(ctx context.Context, p *program) (app.Builds,
	func(context.Context, int) (app.RouterVersion, error), error) {
	plain, err := o.place()
	if err != nil {
		return app.Builds{}, nil, err
	}

	arch, err := app.GuestArch(plain.kind)
	if err != nil || arch == "" {
		return app.Builds{}, nil, app.Usage("--lab vm, whose router boots what is built",
			"--build with lab %s", o.lab.kind)
	}

	if o.ID == "" {
		o.ID = app.NewID()
	}

	o.Build = o.build
	b := app.Builds{
		Repository: o.repository,
		Command:    o.build,
		Dir:        p.Dirs.BuildsDir(o.ID),
		Line:       func(line string) { p.note("build: %s", line) },
	}
	all, err := b.Commits(ctx, o.good, o.bad)
	if err != nil {
		return b, nil, err
	}

	pl, err := o.planOf(app.RouterVersion{}, plain)
	for _, c := range all {
		o.Versions = append(o.Versions, app.RouterVersion{Name: c.Name()})
		o.Plans = append(o.Plans, pl)
	}

	return b, func(ctx context.Context, i int) (app.RouterVersion, error) {
		file, err := b.Build(ctx, all[i])
		if err != nil {
			return app.RouterVersion{}, err
		}

		if modules := b.Modules(all[i]); userfile.Exists(modules) {
			file += ":" + modules
		}

		v, err := o.version(file)
		v.Name = all[i].Name()
		if err != nil {
			err = app.Mark(app.ErrUnusable, fmt.Errorf("its build made no image or kernel: %v", err))
		}

		return v, err
	}, err
}

// bisectionText formats a bisection: the answer, and a table of what was measured.
func bisectionText(x *analysis.Bisection) string {
	rows := heading("VERSION | SIDE | BOOTS | ÷ GOOD | INTERVAL")
	for _, v := range x.Versions {
		switch {
		case v.Skipped != "":
			rows.add(v.Name, "left out: "+v.Skipped, "", "", "")
		case v.Boots > 0:
			ratio, interval := "-", "-"
			if v.Ratio > 0 {
				ratio = "×" + unit.Significant(v.Ratio, 4)
				interval = "×" + unit.Significant(v.Low, 4) + " to ×" + unit.Significant(v.High, 4)
			}

			rows.add(v.Name, v.Side, v.Boots, ratio, interval)
		}
	}

	return check.Plain(table(rows, 0)) + "\n" + strings.Join(x.Summary, "\n") + "\n"
}
