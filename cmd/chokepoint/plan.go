package main

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func newPlanCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "List, check and expand plans",
		Long: "A plan says what is compared: a YAML file, or one of the built-in plans.\n" +
			"None of these commands touches a machine.",
	}
	cmd.AddCommand(newPlanListCommand(p), newPlanShowCommand(p), newPlanCheckCommand(p),
		newPlanExpandCommand(p))
	return cmd
}

type planListOptions struct{ json bool }

func newPlanListCommand(p *program) *cobra.Command {
	var o planListOptions
	cmd := &cobra.Command{
		Use:   "list [--json]",
		Short: "List the built-in plans; the first is the default",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runPlanList(cmd.Context(), o, p.streams)
		},
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object per plan")
	return cmd
}

// listedPlan is a built-in plan as plan list --json prints it.
type listedPlan struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Cells       int    `json:"cells"`
	Runs        int    `json:"runs"`
	Estimate    int64  `json:"estimated_ns"`
}

func runPlanList(_ context.Context, o planListOptions, s streams) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, name := range plan.BuiltIns() {
		p, err := plan.ReadBuiltIn(name, vocabulary(), nil)
		if err != nil {
			return err
		}
		d := p.Design
		if o.json {
			line, err := jsonLine(listedPlan{name, d.Description, len(p.Cells()), d.Method.Runs,
				int64(p.Estimate(rowOverhead))})
			if err != nil {
				return err
			}
			b.Write(line)
			continue
		}
		first, _, _ := strings.Cut(d.Description, "\n")
		fmt.Fprintf(w, "%s\t%s\n", name, first)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("lay out the list: %v", err)
	}
	return write(s.Out, b.String())
}

func newPlanShowCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:       "show NAME",
		Short:     "Print a built-in plan, to be copied and changed",
		Args:      exactArgs("NAME"),
		ValidArgs: plan.BuiltIns(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPlanShow(cmd.Context(), args[0], p.streams)
		},
	}
}

func runPlanShow(_ context.Context, name string, s streams) error {
	data, ok := plan.BuiltIn(name)
	if !ok {
		return &usageError{"there is no built-in plan " + name, "built-in plans: " +
			strings.Join(plan.BuiltIns(), ", ")}
	}
	return write(s.Out, string(data))
}

// planViewOptions are those of check and expand.
type planViewOptions struct {
	planOptions
	json bool
}

// newPlanViewCommand makes a command that reads a plan and shows it.
func newPlanViewCommand(p *program, cmd *cobra.Command, run func(context.Context, planViewOptions,
	streams) error) *cobra.Command {
	var o planViewOptions
	cmd.Args = optionalArg
	cmd.ValidArgsFunction = completePlans
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			o.name = args[0]
		}
		if err := o.validate(cmd.Flags()); err != nil {
			return err
		}
		return run(cmd.Context(), o, p.streams)
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON document")
	return cmd
}

// completePlans completes the names of built-in plans, and files.
func completePlans(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return plan.BuiltIns(), cobra.ShellCompDirectiveDefault
}

func newPlanCheckCommand(p *program) *cobra.Command {
	return newPlanViewCommand(p, &cobra.Command{
		Use:   "check [NAME|FILE] [--set PATH=VALUE]... [--seed N] [--budget D] [--strict] [--json]",
		Short: "Read a plan and say what it amounts to, or what is wrong with it",
	}, runPlanCheck)
}

func newPlanExpandCommand(p *program) *cobra.Command {
	return newPlanViewCommand(p, &cobra.Command{
		Use:   "expand [NAME|FILE] [--set PATH=VALUE]... [--seed N] [--budget D] [--strict] [--json]",
		Short: "Print the exact trials of a plan in their order, and the estimated time",
		Long: "Print the exact trials of a plan in their order, and the estimated time. With\n" +
			"the same seed, run executes the same trials in the same order.",
	}, runPlanExpand)
}

// expanded is the document of plan check --json and plan expand --json.
type expanded struct {
	Format   string           `json:"format"`
	Design   record.Design    `json:"design"`
	Notes    []string         `json:"notes"`
	Trials   int              `json:"trials"`
	Estimate int64            `json:"estimated_ns"`
	Cells    []record.Factors `json:"cells"`
	Skipped  []record.Skipped `json:"skipped"`
	Rows     []record.Row     `json:"rows,omitempty"` // of expand
}

func expandPlan(p *plan.Plan) expanded {
	rows := p.Rows()
	return expanded{
		Format: record.Format, Design: p.Design, Notes: append([]string{}, p.Notes()...),
		Trials: len(rows), Estimate: int64(p.Estimate(rowOverhead)),
		Cells: p.Cells(), Skipped: append([]record.Skipped{}, p.Skipped()...), Rows: rows,
	}
}

func runPlanCheck(_ context.Context, o planViewOptions, s streams) error {
	p, err := o.read(vocabulary())
	if err != nil {
		return err
	}
	if o.json {
		doc := expandPlan(p)
		doc.Rows = nil
		return printJSON(s.Out, doc)
	}
	return write(s.Out, planHead(p))
}

func runPlanExpand(_ context.Context, o planViewOptions, s streams) error {
	p, err := o.read(vocabulary())
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(s.Out, expandPlan(p))
	}
	rows, err := rowTable(p)
	if err != nil {
		return err
	}
	return write(s.Out, planHead(p)+"\n"+rows)
}

// planHead is what a plan amounts to: its size, what all cells share, and what is left out, with the
// reasons.
func planHead(p *plan.Plan) string {
	var b strings.Builder
	d := p.Design
	fmt.Fprintf(&b, "plan %s: %s\n", d.Name, planSize(p))
	m := d.Method
	measured := m.Duration.String() + " measured"
	if m.Search != nil {
		measured = "as long measured as the search asks"
		if p.Searches() < len(p.Cells()) {
			measured += ", " + m.Duration.String() + " of a share of what it found"
		}
	}
	fmt.Fprintf(&b, "each trial: %s of warm-up, %s, %s of pause; order: %s, seed %d\n",
		m.Warmup, measured, m.Cooldown, m.Order, m.Seed)
	varying := varyingFactors(p.Cells())
	if len(p.Cells()) > 0 {
		common := p.Cells()[0].Clone()
		for _, name := range varying {
			delete(common, name)
		}
		fmt.Fprintf(&b, "in every cell: %s\n", common.Key())
	}
	for _, note := range p.Notes() {
		fmt.Fprintf(&b, "dropped: %s\n", note)
	}
	all := slices.Clone(p.Cells())
	for _, sk := range p.Skipped() {
		all = append(all, sk.Factors)
	}
	apart := varyingFactors(all)
	for _, sk := range p.Skipped() {
		fmt.Fprintf(&b, "skipped: %s: %s\n", factorText(sk.Factors, apart), sk.Reason)
	}
	for _, cut := range d.Cuts {
		fmt.Fprintf(&b, "cut to fit: %s\n", cut)
	}
	return b.String()
}

// rowTable shows the rows in their order, with a column for each factor that varies; a dash is a factor
// that means nothing there.
func rowTable(p *plan.Plan) (string, error) {
	varying := inOrder(varyingFactors(p.Cells()), vocabulary().Names())
	table := [][]string{append([]string{"trial", "row", "kind"}, varying...)}
	for _, row := range p.Rows() {
		line := []string{fmt.Sprint(row.Index), row.ID, row.Kind}
		for _, name := range varying {
			level := row.Factors[name]
			if level == "" {
				level = "-"
			}
			line = append(line, level)
		}
		table = append(table, line)
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, line := range table {
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	if err := w.Flush(); err != nil {
		return "", fmt.Errorf("lay out the trials: %v", err)
	}
	return b.String(), nil
}

// inOrder sorts names as they stand in order; those that do not, such as placed ones, come behind.
func inOrder(names, order []string) []string {
	rank := func(name string) int {
		if i := slices.Index(order, name); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	return names
}

// varyingFactors are the names of the factors that differ between cells, sorted.
func varyingFactors(cells []record.Factors) []string {
	var names []string
	for i, c := range cells {
		for name := range c {
			first, inFirst := cells[0][name]
			if !slices.Contains(names, name) && (!inFirst || first != c[name]) {
				names = append(names, name)
			}
		}
		if i > 0 {
			for name := range cells[0] {
				if _, here := c[name]; !here && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	sort.Strings(names)
	return names
}

// factorText is a cell by the factors that vary, or by all of them where none does.
func factorText(cell record.Factors, varying []string) string {
	short := record.Factors{}
	for _, name := range varying {
		if level, ok := cell[name]; ok {
			short[name] = level
		}
	}
	if len(short) == 0 {
		return cell.Key()
	}
	return short.Key()
}
