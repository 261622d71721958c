package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// completeRuns completes up to n arguments that name runs.
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

// completeOne completes a flag with one of some words.
func completeOne(cmd *cobra.Command, flag string, words []string) {
	cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// runNames lists everything that RUN can be, each with its plan.
func runNames(ctx context.Context, d app.Dirs) (names []string, err error) {
	runs, err := d.Runs(ctx)
	for _, r := range runs {
		if r.Damaged != "" {
			continue
		}

		if len(names) == 0 {
			names = append(names, "latest\tthe newest run")
		}

		names = append(names, r.ID+"\t"+r.Plan)
	}
	return names, err
}

// completeSet completes PATH=VALUE for the factors of a plan and their levels.
func completeSet(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	var found []string
	for _, d := range registry.Catalogue().Factors {
		path := "matrix." + d.Name
		if !strings.HasPrefix(prefix, path+"=") {
			found = append(found, path+"=\t"+d.Doc)
			continue
		}

		done := prefix[:strings.LastIndexAny(prefix, "=,")+1] // several levels stand side by side
		for _, level := range d.Levels {
			found = append(found, done+level)
		}
	}

	return slices.DeleteFunc(found, func(s string) bool { return !strings.HasPrefix(s, prefix) }), directive
}
