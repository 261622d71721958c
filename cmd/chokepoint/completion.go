package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// completeRuns completes up to n arguments with names of runs.
func completeRuns(p *program, n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}

		names, err := runNames(cmd.Context(), p.Dirs)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}

		names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeOne completes a flag with one of the words.
func completeOne(cmd *cobra.Command, flag string, words []string) {
	cmd.RegisterFlagCompletionFunc(flag, fixed(words))
}

func fixed(words []string) cobra.CompletionFunc {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

// completions returns the completions of flags that have the same meaning in all commands, by flag.
func (p *program) completions() map[string]cobra.CompletionFunc {
	causes := each(diagnosis.Rules(), func(r diagnosis.Rule) string { return r.Class })
	devices := p.completeCatalogue((*catalogue.Catalogue).Names)
	labels := func(d *analysis.Document) []string {
		return each(d.Cells, func(c analysis.Cell) string { return c.Label })
	}
	versions := fixed([]string{"4", "6"})
	return map[string]cobra.CompletionFunc{
		"format":    fixed(formats),
		"chart":     p.completeOfRun(report.Charts),
		"cell":      p.completeOfRun(labels),
		"device":    devices,
		"against":   devices,
		"source":    p.completeCatalogue(sourceIDs),
		"tunnel":    fixed(catalogTunnels),
		"protocol":  fixed([]string{"tcp", "udp"}),
		"direction": fixed([]string{factor.Up, factor.Down, factor.Both}),
		"ip":        versions,
		"outer-ip":  versions,
		"cause":     fixed(causes),
		"driver":    fixed(app.Drivers()),
		"arch":      fixed(vm.Arches()),
		"isp":       fixed(knob.Accesses()),
		"attach":    p.completeLabs,
		"into":      completeRuns(p, 1000),
		"lab":       cobra.FixedCompletions(app.LabKinds(), cobra.ShellCompDirectiveDefault), // or a lab file
	}
}

// completeCatalogue completes a flag with names from the catalogue and the stored bundles.
func (p *program) completeCatalogue(names func(*catalogue.Catalogue) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, _, err := p.joined(cmd.Context(), "", "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names(c), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeOfRun completes a flag with names from the document of the run on the command line, or of the
// newest run.
func (p *program) completeOfRun(names func(*analysis.Document) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		doc, err := p.Dirs.Document(cmd.Context(), append(args, "latest")[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return each(names(doc), check.Plain), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeLabs completes the name of a running lab.
func (p *program) completeLabs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	labs, err := lab.List(p.Dirs.Labs())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}

	var up []string
	for _, i := range labs {
		if i.Detached && i.Alive() {
			up = append(up, i.ID+"\t"+i.Topology.Name)
		}
	}

	return up, cobra.ShellCompDirectiveNoFileComp
}

// runNames lists names and ids of runs, with their plans.
func runNames(ctx context.Context, d app.Dirs) (names []string, err error) {
	runs, err := d.Runs(ctx)
	for _, r := range runs {
		if r.Damaged != "" {
			continue
		}

		if len(names) == 0 {
			names = append(names, "latest\tthe newest run")
		}

		// A shell prints the plan's name, which may come from someone else's store.
		about := line(check.Plain(r.Plan))
		if store.CheckName(r.Name) == nil {
			names = append(names, r.Name+"\t"+about+", "+r.ID)
			about += ", " + r.Name
		}

		names = append(names, r.ID+"\t"+about)
	}
	return names, err
}

// completeSet completes PATH=VALUE with the factors and levels of a plan.
func completeSet(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	var found []string
	for _, d := range registry.Catalogue().Factors {
		path := "matrix." + d.Name
		if !strings.HasPrefix(prefix, path+"=") {
			found = append(found, path+"=\t"+d.Doc)
			continue
		}

		done := prefix[:strings.LastIndexAny(prefix, "=,")+1] // levels may be separated by commas
		for _, level := range d.Levels {
			found = append(found, done+level)
		}
	}

	return slices.DeleteFunc(found, func(s string) bool { return !strings.HasPrefix(s, prefix) }), directive
}
