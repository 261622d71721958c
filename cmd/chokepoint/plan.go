package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

func newPlanCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "List and check plans",
		Long: `A plan defines what to compare. It is a YAML file or one of the built-in plans. Of
these commands only check with a lab touches a machine.`,
	}
	cmd.AddCommand(newPlanListCommand(p), newPlanShowCommand(p), newPlanCheckCommand(p))
	return cmd
}

// listedPlan is a built-in plan in the output of plan list --json.
type listedPlan struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Cells       int    `json:"cells"`
	Runs        int    `json:"runs"`
	Estimate    int64  `json:"estimated_ns"`
}

func newPlanListCommand(p *program) *cobra.Command {
	return addJSON(&cobra.Command{
		Use:   "list",
		Short: "List the built-in plans with their times; the first is the default",
		RunE: func(*cobra.Command, []string) error {
			var list []listedPlan
			vocabulary := registry.Vocabulary()
			for _, name := range plan.BuiltIns() {
				pl, err := plan.ReadBuiltIn(name, vocabulary, nil)
				if err != nil {
					return err
				}

				list = append(list, listedPlan{name, pl.Design.Description, len(pl.Cells()),
					pl.Design.Method.Runs, int64(pl.Estimate(app.RowOverhead))})
			}

			return printLines(p, list, planListText(list, p.width()))
		},
	}, "print one JSON object per plan")
}

// planListText formats plans for a width in columns; 0 means unlimited.
func planListText(list []listedPlan, width int) string {
	var rows grid
	for _, l := range list {
		rows.add(l.Name, unit.Seconds(time.Duration(l.Estimate).Round(time.Second)),
			fmt.Sprintf("%s × %d", unit.Count(l.Cells, "cell"), l.Runs), "")
	}

	var b strings.Builder
	for i, head := range strings.Split(strings.TrimSuffix(table(rows, 0), "\n"), "\n") {
		b.WriteString(hang(head, check.Plain(summary(list[i].Description)), width))
	}

	return b.String()
}

var summaryEnd = check.Pattern(`[:.](\s|$)`)

// summary returns the beginning of a description, up to the first colon or full stop, without line breaks.
func summary(description string) string {
	at := summaryEnd().FindStringIndex(description)
	if at != nil {
		description = description[:at[0]]
	}
	return strings.Join(strings.Fields(description), " ")
}

func newPlanShowCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:       "show NAME",
		Short:     "Print a built-in plan, to copy and change",
		Args:      exactArgs("NAME"),
		ValidArgs: plan.BuiltIns(),
		RunE: func(_ *cobra.Command, args []string) error {
			data, ok := plan.BuiltIn(args[0])
			if !ok {
				return known("there is no built-in plan %s", args[0], "built-in plans", plan.BuiltIns()...)
			}
			return p.print(string(data))
		},
	}
}

// completePlans completes names of built-in plans and files.
func completePlans(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return plan.BuiltIns(), cobra.ShellCompDirectiveDefault
}

func newPlanCheckCommand(p *program) *cobra.Command {
	var o planOptions
	var on labOptions
	var to app.RunOptions
	cmd := &cobra.Command{
		Use:   "check [PLAN]",
		Short: "Read a plan and print a summary, or all its errors",
		Long: `Read a plan and print a summary, or all its errors. With --lab or any other lab flag of
run, it brings the labs up and down again, and lists the cells that would be skipped
there and what would make them possible. If all cells would be skipped, it exits with
code 3, as run does. It runs no trial. Without a name it reads the default plan of run:
quick, or path with --peer. A peer that was started with --once counts the check as its
run, and ends. To list the trials, use chokepoint run --dry-run.`,
		Args:              optionalArg,
		ValidArgsFunction: completePlans,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(cmd.Flags(), args); err != nil {
				return err
			}

			pl, err := o.ReadFitting(to.Peer)
			if err == nil {
				err = cmp.Or(on.settle(), to.Peer.Check())
			}

			if err == nil && (labAsked(cmd) || to != (app.RunOptions{})) {
				head := record.Run{RunHead: record.RunHead{ID: "plan-" + app.NewID()}, Design: pl.Design}
				on.describe(&head)
				pl, err = p.Skips(cmd.Context(), pl, head, to)
			}

			if err != nil {
				return err
			}

			doc := expandPlan(pl)
			doc.Rows = nil
			return errors.Join(p.document(doc, planHead(pl)), app.CanMeasure(pl))
		},
	}
	o.addFlags(cmd)
	addTarget(cmd, &on, &to, "list what would be skipped in this `LAB`, started by lab up",
		"list what would be skipped with `HOST`, where the command peer runs")
	f := cmd.Flags()
	f.Lookup("lab").Usage = "list what would be skipped in this `KIND` of lab: local, vm, " +
		"vm:ARCH, or a lab file"
	f.Lookup("lab").DefValue = "" // the default is different if another flag of the lab is set
	return addJSON(cmd, "print one JSON document")
}

// labAsked reports whether a flag of labOptions is set.
func labAsked(cmd *cobra.Command) bool {
	asked := false
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(labOptions).addFlags(all)
	all.VisitAll(func(flag *pflag.Flag) { asked = asked || cmd.Flags().Changed(flag.Name) })
	return asked
}

// expanded is the output of plan check --json and run --dry-run --json.
type expanded struct {
	Format   string           `json:"format"`
	Design   record.Design    `json:"design"`
	Notes    []string         `json:"notes"`
	Trials   int              `json:"trials"`
	Estimate int64            `json:"estimated_ns"`
	Cells    []plannedCell    `json:"cells"`
	Skipped  []record.Skipped `json:"skipped"`        // with their ids
	Rows     []record.Row     `json:"rows,omitempty"` // set only by run
}

// plannedCell is a cell with its id, in the form that documents use.
type plannedCell struct {
	ID      string         `json:"id"`
	Factors record.Factors `json:"factors"`
}

func expandPlan(p *plan.Plan) expanded {
	rows := p.Rows()
	out := expanded{
		Format:   "chokepoint-plan/1",
		Design:   p.Design,
		Notes:    append([]string{}, p.Notes()...),
		Trials:   len(rows),
		Estimate: int64(p.Estimate(app.RowOverhead)),
		Cells:    []plannedCell{},
		Skipped:  append([]record.Skipped{}, p.Skipped()...),
		Rows:     rows,
	}
	for _, c := range p.Cells() {
		out.Cells = append(out.Cells, plannedCell{c.ID(), c})
	}

	for i, s := range out.Skipped {
		out.Skipped[i].ID = s.Factors.ID()
	}

	return out
}

// planHead describes a plan: its size, the levels that all cells share, what is omitted, and why.
func planHead(p *plan.Plan) string {
	var b builder
	d := p.Design
	cells := p.Cells()
	b.printf("plan %s: %s\n", d.Name, planSize(p))
	m := d.Method
	measured := m.Duration.String() + " measured"
	if m.Search != nil {
		measured = "as long measured as the search asks"
		if p.Searches() < len(cells) {
			measured += ", " + m.Duration.String() + " of a share of what it found"
		}
	}

	b.printf("each trial: %s of warm-up, %s, %s of pause; order: %s, seed %d\n",
		m.Warmup, measured, m.Cooldown, m.Order, m.Seed)
	varying := varyingFactors(cells)
	if len(cells) > 0 {
		common := cells[0].Clone()
		for _, name := range varying {
			delete(common, name)
		}

		b.printf("in every cell: %s\n", common.Key())
	}

	levels := p.Firmwares()
	if len(levels) > 0 {
		b.printf("firmware: %s: unless the router tells that version, your step installs it before "+
			"the first trial of it\n", strings.Join(levels, ", then "))
	}

	for _, note := range p.Notes() {
		word := "dropped"
		if strings.HasPrefix(note, "exclude: ") || strings.HasPrefix(note, "condition ") { // it drops nothing
			word = "note"
		}

		b.printf("%s: %s\n", word, note)
	}

	all := slices.Clone(cells)
	for _, sk := range p.Skipped() {
		all = append(all, sk.Factors)
	}

	apart := varyingFactors(all)
	for rest := slices.Clone(p.Skipped()); len(rest) > 0; {
		sk := rest[0]
		var cells []record.Factors
		rest = slices.DeleteFunc(rest, func(s record.Skipped) bool {
			same := s.Reason == sk.Reason && s.Hint == sk.Hint
			if same {
				cells = append(cells, s.Factors)
			}
			return same
		})
		b.printf("skipped: %s: %s\n", groupText(cells, apart), sk.Reason)
		if sk.Hint != "" {
			b.printf("  to make it possible: %s\n", sk.Hint)
		}
	}

	for _, cut := range d.Cuts {
		b.printf("cut to fit: %s\n", cut)
	}

	return b.String()
}

// rowTable formats the rows in order, with a column for each factor that varies. A dash means that a factor
// has no meaning in a cell.
func rowTable(p *plan.Plan) string {
	varying := varyingFactors(p.Cells())
	registry.Catalogue().Sort(varying)
	rows := grid{append([]string{"trial", "row", "kind"}, varying...)}
	for _, row := range p.Rows() {
		line := []any{row.Index, row.ID, row.Kind}
		for _, name := range varying {
			line = append(line, cmp.Or(row.Factors[name], "-"))
		}

		rows.add(line...)
	}

	return table(rows, 0)
}

// varyingFactors returns the names of the factors that differ between cells, sorted.
func varyingFactors(cells []record.Factors) []string {
	varying := map[string]bool{}
	for _, c := range cells {
		for _, f := range []record.Factors{c, cells[0]} {
			for name := range f {
				if c[name] != cells[0][name] { // a missing factor is "", which is not a level
					varying[name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(varying))
}

// groupText describes a single cell by its varying factors, or by all if none vary. It describes several
// cells by their number and common levels.
func groupText(cells []record.Factors, varying []string) string {
	common := cells[0].Clone()
	apart := varyingFactors(cells)
	maps.DeleteFunc(common, func(name, _ string) bool {
		return !slices.Contains(varying, name) || slices.Contains(apart, name)
	})
	n := unit.Count(len(cells), "cell")
	switch {
	case len(cells) == 1:
		return cmp.Or(common.Key(), cells[0].Key())
	case len(common) == 0:
		return n
	}

	return common.Key() + " (" + n + ")"
}
