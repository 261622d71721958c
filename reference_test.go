package chokepoint_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/meter"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

//go:generate go test -count=1 -run ^TestReference . -update

// written is the second line of a page that the code writes whole.
const written = "\n<!-- written by go generate -->\n"

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}

// holdPage compares a whole page with what the code says; -update rewrites it.
func holdPage(t *testing.T, file, want string) {
	t.Helper()
	want = strings.TrimRight(want, "\n") + "\n"
	got, err := os.ReadFile(file)
	if err != nil && !(*update && os.IsNotExist(err)) {
		t.Fatal(err)
	}

	switch {
	case string(got) == want:
	case !*update:
		t.Errorf("%s differs from the code (-code +document); go generate rewrites it:\n%s",
			file, cmp.Diff(want, string(got)))
	default:
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReferenceShowsEveryPlanKey: two plans that are valid and name every key that the reader of plans knows.
func TestReferenceShowsEveryPlanKey(t *testing.T) {
	const page = "docs/reference/plan-keys.md"
	for block, file := range map[string]string{"complete-plan": "complete.yaml",
		"search-plan": "search.yaml", "experiment-plan": "experiment.yaml"} {
		text := readText(t, "internal/plan/testdata/"+file)
		if _, err := plan.Read(file, []byte(text), registry.Vocabulary(), nil); err != nil {
			t.Error(err)
		}

		holdBlock(t, page, block, "\n```yaml\n"+strings.TrimSpace(text)+"\n```\n\n")
	}

	labFile := readText(t, "internal/plan/testdata/lab.yaml")
	_, err := plan.ReadMachines("lab.yaml", []byte(labFile), meter.Parse,
		func(*record.Machines) (string, error) { return "", nil })
	if err != nil {
		t.Error(err)
	}

	holdBlock(t, page, "lab-file", "\n```yaml\n"+strings.TrimSpace(labFile)+"\n```\n\n")
	bedFile := readText(t, "internal/plan/testdata/bed.yaml")
	_, err = plan.ReadBed("bed.yaml", []byte(bedFile), func(*plan.Bed) (string, error) { return "", nil })
	if err != nil {
		t.Error(err)
	}

	holdBlock(t, page, "bed-file", "\n```yaml\n"+strings.TrimSpace(bedFile)+"\n```\n\n")
	text := readText(t, page)
	keys := planKeys(t)
	if len(keys) < 40 {
		t.Errorf("keys of a plan: got %d, want 40 or more", len(keys))
	}

	for _, key := range keys {
		if !regexp.MustCompile(`(^|[^\w])` + key + `:`).MatchString(text) {
			t.Errorf("%s does not name the key %s", page, key)
		}
	}
}

// planKeys returns the names in the lists of fields of package plan, []field{r.text("name", …), …}, and in
// the table of a machine's keys.
func planKeys(t *testing.T) []string {
	t.Helper()
	tr, err := wholeTree()
	if err != nil {
		t.Fatal(err)
	}

	var keys []string
	for _, f := range tr.production() {
		if f.pkg != "plan" {
			continue
		}

		ast.Inspect(f.ast, func(n ast.Node) bool {
			list, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}

			array, ok := list.Type.(*ast.ArrayType)
			if !ok || !slices.Contains([]string{"field", "machineKey"}, fmt.Sprint(array.Elt)) {
				return true
			}

			for _, e := range list.Elts {
				keys = append(keys, fieldKey(e))
			}

			return true
		})
	}

	return keys
}

// fieldKey returns the first text of a field, or the name of the method that makes it: r.seed(…).
func fieldKey(e ast.Expr) string {
	key := ""
	ast.Inspect(e, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && key == "" {
			key, _ = strconv.Unquote(lit.Value)
		}
		return key == ""
	})
	call, made := e.(*ast.CallExpr)
	for key == "" && made {
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			key = sel.Sel.Name
		} else {
			call, made = call.Args[len(call.Args)-1].(*ast.CallExpr) // noted(&at, r.seed(…))
		}
	}

	return key
}

// TestReferenceListsEveryFactor: what a plan may vary, from the registry.
func TestReferenceListsEveryFactor(t *testing.T) {
	v := registry.Vocabulary()
	var b strings.Builder
	b.WriteString("# Factors\n" + written + `
The factors that matrix, include and exclude of a [plan](plan-keys.md) may name. *As found*: if a cell has no level,
nothing is changed. ` + "`@PLACE`" + ` applies a factor at a node or a node's port, such as ` +
		"`queue@router.wan`" + `. How
places and factors work together: [write a plan](../howto/write-a-plan.md#factors-and-places).
`)
	tables := map[factor.Kind]*strings.Builder{}
	for _, name := range v.Names() {
		full, shown := name, name
		if strings.HasSuffix(name, ":") {
			full = name + "net.core.rmem_max"
			shown = name + "NAME"
		}

		f, ok := v.Lookup(full)
		if !ok {
			t.Errorf("factor %s: listed, but not found", full)
			continue
		}

		if f.Placed != 0 {
			shown += "[@PLACE]"
		}

		def := f.Default
		switch {
		case def == "" && f.Derive != nil:
			def = "from other factors"
		case def == "":
			def = "as found"
		}

		levels := strings.Join(f.Levels, ", ")
		if levels == "" {
			levels = f.Unit
		}

		if tables[f.Kind] == nil {
			tables[f.Kind] = &strings.Builder{}
		}

		fmt.Fprintf(tables[f.Kind], "| `%s` | %s | %s | %s |\n", shown, def, levels, f.Doc)
	}

	for _, part := range []struct {
		kind  factor.Kind
		title string
	}{
		{factor.Path, "Path: what carries the traffic"},
		{factor.Activity, "Activity: who sends, or which cipher of a node is measured"},
		{factor.Load, "Load: what is sent over a path"},
		{factor.Setting, "Settings of the nodes"},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| factor | default | levels | meaning |\n|---|---|---|---|\n%s",
			part.title,
			tables[part.kind])
	}

	b.WriteString("\n## Faults\n\nThe levels of `fault`, several joined by `+`. Five lessons: " +
		"[teaching](../teaching.md).\n\n| fault | level | place | meaning |\n|---|---|---|---|\n")
	for _, f := range knob.Faults() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Unit, f.Where(), f.Doc)
	}

	holdPage(t, "docs/reference/factors.md", b.String())
}

// TestReferenceListsEveryMetric: the table is the declarations themselves, which must each say something.
func TestReferenceListsEveryMetric(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Metrics\n" + written + `
The metrics of the document and of ` + "`require`" +
		`. Most names end in the unit. Scope: a flow, the path from near to far, one
node, or the host that carries all nodes. How they are computed: [rates](../method/rates.md),
[latency](../method/latency.md), [flows](../method/flows.md), [search](../method/search.md).

| metric | in words | unit | better | scope | meaning |
|---|---|---|---|---|---|
`)
	for _, m := range metrics.Metrics() {
		if m.Name == "" || m.Unit == "" || m.Scope == "" || len(m.Doc) < 20 {
			t.Errorf("metric %+v: got an empty field, want name, unit, scope and a sentence", m)
		}

		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", m.Name, m.Label, m.Unit, orDash(m.Better),
			m.Scope,
			m.Doc)
	}

	holdPage(t, "docs/reference/metrics.md", b.String())
}

// TestReferenceListsEverySource: the probes of a node, with the stems of their columns. Columns that differ
// in nothing else share a row.
func TestReferenceListsEverySource(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Telemetry sources\n" + written + `
What an agent can read on its node, by source. In a run's samples and in the output of
` + "`chokepoint-agent probe --json`" + `, the label of a core, device or queue precedes the name of the column: ` +
		"`cpu0/softirq_ns`" + `.
The method: [telemetry](../method/telemetry.md), and [what it costs](../method/telemetry.md#what-observing-costs).
`)
	for _, p := range node.Probes() {
		fmt.Fprintf(&b, "\n## %s\n\n| column | unit | scope | meaning |\n|---|---|---|---|\n", p.Name)
		list := p.Metrics()
		for len(list) > 0 {
			first := list[0]
			names := "`" + first.Name + "`"
			list = list[1:]
			for len(list) > 0 && alike(list[0], first) {
				names += " `" + list[0].Name + "`"
				list = list[1:]
			}

			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", names, first.Unit, first.Scope, first.Doc)
		}
	}

	holdPage(t, "docs/reference/telemetry.md", b.String())
}

// alike reports whether two metrics of a probe differ only in their names.
func alike(a, b record.Metric) bool {
	return a.Unit == b.Unit && a.Scope == b.Scope && a.Doc == b.Doc
}

// TestReferenceListsEveryPlan: the built-in plans with their times, as plan list prints them.
func TestReferenceListsEveryPlan(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Times of the built-in plans\n" + written + `
The estimates of ` + "`chokepoint plan list`" + `. The time includes set-up, but not the boot of guests. The trials
include the idle measurements and the checks of paths. A search counts as one trial, whose duration depends on the
result. A plan can be [shortened to a given time](../howto/write-a-plan.md#change-a-plan-from-the-command-line).

| plan | time | cells | runs of each | trials | measures |
|---|---:|---:|---:|---:|---|
`)
	for _, name := range plan.BuiltIns() {
		p, err := plan.ReadBuiltIn(name, registry.Vocabulary(), nil)
		if err != nil {
			t.Errorf("read plan %s: %v", name, err)
			continue
		}

		d := p.Design
		about, _, _ := strings.Cut(strings.Join(strings.Fields(d.Description), " "), ". ")
		fmt.Fprintf(&b, "| `%s` | %s | %d | %d | %d | %s |\n", name,
			unit.Seconds(p.Estimate(app.RowOverhead).Round(time.Second)), len(p.Cells()), d.Method.Runs,
			len(p.Rows()), strings.TrimSuffix(about, "."))
	}

	holdPage(t, "docs/reference/plan-times.md", b.String())
}

// TestReferenceListsEveryPreset: the goals of each, by the names of RFC 9971.
func TestReferenceListsEveryPreset(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n| preset | goal | final trial | duration sum | loss | exceed | width | meaning " +
		"|\n|---|---|---|---|---|---|---|---|\n")
	for _, p := range method.Presets() {
		for _, g := range p.Goals {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %g %% | %g %% | %g %% | %s |\n",
				p.Name, g.Name, unit.Duration(g.FinalDuration), unit.Duration(g.DurationSum),
				100*g.LossRatio, 100*g.ExceedRatio, 100*g.Width, p.Doc)
		}
	}

	b.WriteString("\n")
	holdBlock(t, "docs/method/search.md", "presets", b.String())
}

// TestReferenceListsEveryKind: what is said of results beside their numbers, from the one registry; every
// kind of interval has a row.
func TestReferenceListsEveryKind(t *testing.T) {
	const page = "docs/reference/reasons.md"
	for block, class := range map[string]string{"reasons": evidence.ClassReason,
		"caveats":  evidence.ClassCaveat,
		"findings": evidence.ClassFinding} {
		var b strings.Builder
		b.WriteString("\n| kind | of | meaning | what to do |\n|---|---|---|---|\n")
		for _, k := range evidence.Kinds() {
			if k.Class == class {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, k.Of, k.Means, orDash(k.Do))
			}
		}

		b.WriteString("\n")
		holdBlock(t, page, block, b.String())
	}

	rows := rowNames(readText(t, page))
	for _, kind := range constants(t, "analysis/statistics", "Interval") {
		if !slices.Contains(rows, kind) {
			t.Errorf("%s has no row for interval %s", page, kind)
		}
	}
}

// TestReferenceListsEveryCommand: the help of every command of the built program, and so every flag.
func TestReferenceListsEveryCommand(t *testing.T) {
	program := filepath.Join(t.TempDir(), "chokepoint")
	if said, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o",
		program, "./cmd/chokepoint").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, said)
	}

	var labs, routers, others strings.Builder
	head := func(title, see string) string {
		return "# " + title + "\n" + written + "\nThe output of `--help` for each command. " + see +
			" Exit codes: [scripts](../howto/scripts.md).\n\n"
	}
	others.WriteString(head("Commands", "On other pages: [commands of labs](commands-labs.md), [commands "+
		"of the catalogue](commands-catalogue.md)."))
	routers.WriteString(head("Commands of the catalogue", "All other commands: [commands](commands.md)."))
	labs.WriteString(head("Commands of labs", "All other commands: [commands](commands.md)."))
	describe(t, func(first string) *strings.Builder {
		if slices.Contains([]string{"doctor", "lab", "peer", "watch"}, first) {
			return &labs
		}

		if slices.Contains([]string{"advise", "catalog", "effects", "predict"}, first) {
			return &routers
		}
		return &others
	}, program)
	holdPage(t, "docs/reference/commands.md", others.String())
	holdPage(t, "docs/reference/commands-labs.md", labs.String())
	holdPage(t, "docs/reference/commands-catalogue.md", routers.String())
}

// describe writes the help of a command and of those below it, to the page of the first word.
func describe(t *testing.T, page func(first string) *strings.Builder, program string, words ...string) {
	t.Helper()
	cmd := exec.Command(program, append(slices.Clone(words), "--help")...)
	cmd.Env = append(os.Environ(), "HOME=/nonexistent", "XDG_DATA_HOME=/nonexistent",
		"XDG_STATE_HOME=/nonexistent")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v --help: %v", words, err)
	}

	about, rest, ok := strings.Cut(string(out), "\n\nUSAGE\n")
	if !ok {
		t.Fatalf("%v --help: got %q, want a section USAGE", words, out)
	}

	usage, _, _ := strings.Cut(rest, "\n\nEXIT STATUS\n")
	subs := subcommands(usage)
	if len(subs) == 0 {
		fmt.Fprintf(page(words[0]), "## %s\n\n%s\n\n```text\n%s\n```\n\n", strings.Join(words, " "), about,
			indented(usage))
	}

	for _, sub := range subs {
		if len(words) > 0 || sub != "help" && sub != "completion" {
			describe(t, page, program, append(slices.Clone(words), sub)...)
		}
	}
}

// subcommands reads the names below "COMMANDS".
func subcommands(usage string) []string {
	_, rest, ok := strings.Cut(usage, "\nCOMMANDS\n")
	if !ok {
		return nil
	}

	list, _, _ := strings.Cut(rest, "\n\n")
	var names []string
	for _, line := range strings.Split(list, "\n") {
		fields := strings.Fields(line)
		if len(fields) > 1 {
			names = append(names, fields[0])
		}
	}

	return names
}

// indented marks the usage line as what it is, so that nobody takes it for a command line to be tried.
func indented(usage string) string {
	first, rest, _ := strings.Cut(usage, "\n")
	return "usage: " + strings.TrimSpace(first) + "\n" + strings.ReplaceAll(rest, "\nFLAGS\n", "\n")
}

// TestReferenceDescribesEveryField: the JSON forms, each type on the first page that leads to it.
func TestReferenceDescribesEveryField(t *testing.T) {
	s := newSchema(t)
	parts := []struct{ page, block, root string }{
		{"json.md", "event", "record.Event"},
		{"store-inventory.md", "inventory", "record.Inventory"},
		{"store-run.md", "run", "record.Run"},
		{"store-trial.md", "trial", "record.Trial"},
		{"json-cells.md", "cell", "analysis.Cell"},
		{"json-models.md", "effects", "model.Effects"},
		{"json.md", "document", "analysis.Document"},
		{"bundle.md", "bundle", "bundle.Bundle"},
		{"json-models.md", "prediction", "model.Prediction"},
		{"json-models.md", "speed", "model.SpeedPrediction"},
		{"json-models.md", "advice", "model.Advice"},
	}
	s.assign("json.md", "record.Meter") // there is room
	for _, part := range parts {
		s.assign(part.page, part.root)
	}

	for _, part := range parts {
		text := s.write(part.page, part.root)
		for line := range strings.Lines(text) {
			if strings.Contains(line, "| ?") || strings.Contains(line, "of ?") {
				t.Errorf("block %s: field of unknown type: %s", part.block, line)
			}
		}

		holdBlock(t, "docs/reference/"+part.page, part.block, text)
	}
}

// TestReferenceShowsTheErrors: how far off the models are on the catalogue.
func TestReferenceShowsTheErrors(t *testing.T) {
	c, err := catalogue.Published()
	if err != nil {
		t.Fatal(err)
	}

	var b strings.Builder
	b.WriteString("\n| model | estimates | refused | median size | p10 to p90 | extremes | ≤ 5 % | ≤ 10 % " +
		"| ≤ 25 % | ≤ 50 % | ≤ 100 % | more |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, e := range model.LeaveOneOut(c, c.Results, model.OfPublished) {
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s to %s | %s to %s |", e.Model, e.N, e.Refused,
			unit.Percent(e.Typical), unit.Percent(e.Low), unit.Percent(e.High), unit.Percent(e.Least),
			unit.Percent(e.Most))
		for _, n := range e.Within() {
			fmt.Fprintf(&b, " %d |", n)
		}

		b.WriteString("\n")
	}

	b.WriteString("\n")
	holdBlock(t, "docs/method/models.md", "errors", b.String())
}

// TestReferenceShowsTheSchema: the SQL of the newest version, as it is executed.
func TestReferenceShowsTheSchema(t *testing.T) {
	var sql strings.Builder
	for _, text := range constants(t, "record/store", "schema") {
		sql.WriteString(text)
	}

	holdBlock(t, "docs/reference/store.md", "schema", "\n```sql\n"+strings.TrimSpace(sql.String())+
		"\n```\n\n")
}
