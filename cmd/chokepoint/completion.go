package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// shells are what completion can write for.
var shells = []string{"bash", "zsh", "fish"}

func newCompletionCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a script that completes commands, flags and runs in a shell",
		Long: "Print a script that completes commands, flags and the names of runs in a\n" +
			"shell: bash, zsh or fish.\n\n" +
			"  bash:  source <(chokepoint completion bash)\n" +
			"  zsh:   chokepoint completion zsh > \"${fpath[1]}/_chokepoint\"\n" +
			"  fish:  chokepoint completion fish | source",
		Args:      exactArgs("SHELL"),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runCompletion(cmd.Context(), cmd.Root(), args[0], p.streams)
		},
	}
}

func runCompletion(_ context.Context, root *cobra.Command, shell string, s streams) error {
	script := map[string]func(io.Writer) error{
		"bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"zsh":  root.GenZshCompletion,
		"fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	}[shell]
	if script == nil {
		return &usageError{fmt.Sprintf("no completion for shell %q", shell), "shells: " +
			strings.Join(shells, ", ")}
	}
	if err := script(s.Out); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

// completeRuns completes up to n arguments that name runs.
func completeRuns(p *program, n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, err := runNames(cmd.Context(), p.dirs)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// runNames are all that can be written for RUN, each with its plan.
func runNames(ctx context.Context, d dirs) ([]string, error) {
	st, err := readStore(ctx, d)
	if errors.Is(err, store.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	runs, err := st.Runs(ctx)
	if err := errors.Join(err, st.Close()); err != nil || len(runs) == 0 {
		return nil, err
	}
	names := []string{"latest\tthe newest run"}
	for _, r := range runs {
		names = append(names, r.ID+"\t"+r.Design.Name)
	}
	return names, nil
}
