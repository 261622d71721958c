package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	yaml "go.yaml.in/yaml/v4"
)

// experiment reads the section experiment of a plan.
func (r *reader) experiment(n *yaml.Node, d *record.Design) error {
	e := &record.Experiment{Expect: 1}
	var f factor.Declaration
	level := func(n *yaml.Node) (string, error) {
		if f.Name == "" {
			return "", r.fail(n, "name it above: factor: shape@router.wan",
				"the experiment has no factor yet")
		}
		return r.scalarLevel(n, f)
	}
	err := r.object(n, "experiment", []field{
		r.text("run", maxLabel, &e.Run),
		{"class", r.name(&e.Class).read},
		r.scalarOf("factor", func(n *yaml.Node, text string) (err error) {
			f, err = r.lookup(n, text)
			e.Factor = f.Name
			return err
		}),
		{"steps", func(n *yaml.Node) error {
			return r.pairs(n, "steps", func(key, value *yaml.Node) error {
				step, err := r.step(value)
				if err == nil {
					step.Level, err = level(key)
				}

				e.Steps = append(e.Steps, step)
				return err
			})
		}},
		r.scalarOf("expect", func(n *yaml.Node, text string) (err error) {
			e.Expect, err = strconv.ParseFloat(text, 64)
			if err != nil || !(e.Expect >= -2 && e.Expect <= 2) {
				err = r.fail(n, "", "expect: %q is not an elasticity from -2 to 2", text)
			}
			return err
		}),
		{"fix", func(n *yaml.Node) (err error) { e.Fix, err = level(n); return err }},
		r.text("why", 1000, &e.Why),
	})
	if err == nil && (e.Class == "" || len(e.Steps) == 0 && e.Fix == "") {
		err = r.fail(n, "write, for example, {class: shaper, factor: shape, steps: {45M: 90 %}}",
			"the experiment names no class, or neither steps nor a fix")
	}

	d.Experiment = e
	return err
}

// step reads a step of an experiment. The step is the share of the resource that remains.
func (r *reader) step(n *yaml.Node) (d record.SweepStep, err error) {
	text, err := r.scalar(n, "a step")
	if err != nil {
		return d, err
	}

	if v, ok := parsePercent(text); ok && v >= 1 && v <= 1e6 && v != 100 {
		d.Resource = v / 100
		return d, nil
	}

	return d, r.fail(n, "write what the level leaves of the resource, such as 45M: 90 %",
		"%q is not a share from 1 %% to 1000000 %% other than 100 %%", text)
}

// checkSteps notes an error if a step of an experiment, or the untouched cell of the experiment, is not in
// the plan.
func (r *reader) checkSteps(p *Plan, root *yaml.Node) {
	e := p.Design.Experiment
	if e == nil {
		return
	}

	all := p.combinations()
	at := valueOf(root, "experiment")
	levels := []string{e.Fix}
	for _, step := range e.Steps {
		levels = append(levels, step.Level)
	}

	for _, level := range levels {
		has := func(c factor.Cell) bool { return c[e.Factor] == level }
		if level != "" && !slices.ContainsFunc(all, has) {
			r.note(r.fail(at, "add it to the matrix, or to include", "no cell has the level %s of %s",
				level, e.Factor))
		}
	}

	if !slices.ContainsFunc(all, func(c factor.Cell) bool { return e.Untouched(c) }) {
		r.note(r.fail(at, "add a cell with none of the steps", "no cell is untouched"))
	}
}

// Patched describes a plan that compares cells of a stored run with the same cells at other levels. Each
// block contains both kinds of cells. They alternate, in an order that is otherwise random.
type Patched struct {
	Name, Description string
	Design            record.Design // design of the stored run; its method is kept
	Cells             []factor.Cell // untouched cells of the stored run
	Patches           []factor.Cell // changes, which map a factor to its level; "" removes the factor
	// Copies is the number of untouched copies of each cell in a block, at most 4. Blocks is the number of
	// blocks.
	Copies, Blocks int
	// Window is the maximum length of a trial's window; 0 means that of the run.
	Window     time.Duration
	Experiment *record.Experiment
}

// Text returns a plan file that can be edited and run by hand.
func (x Patched) Text(v Vocabulary) string {
	var b strings.Builder
	m := x.Design.Method
	window := m.Duration
	if x.Window > 0 {
		window = min(window, x.Window)
	}

	fmt.Fprintf(&b, "name: %s\ndescription: %s\n\nmethod:\n", x.Name, yamlScalar(x.Description))
	fmt.Fprintf(&b, "  duration: %s\n  warmup: %s\n  cooldown: %s\n  runs: %d\n  order: %s\n",
		unit.Duration(window), unit.Duration(m.Warmup), unit.Duration(m.Cooldown), x.Blocks, OrderAlternated)
	e := x.Experiment
	if e != nil {
		fmt.Fprintf(&b, "\nexperiment:\n")
		for _, f := range [][2]string{{"run", e.Run}, {"class", e.Class}, {"factor", e.Factor},
			{"why", e.Why}} {
			if f[1] != "" {
				fmt.Fprintf(&b, "  %s: %s\n", f[0], yamlScalar(f[1]))
			}
		}

		if len(e.Steps) > 0 {
			fmt.Fprintf(&b, "  steps:  # what each leaves of the resource\n")
			for _, d := range e.Steps {
				fmt.Fprintf(&b, "    %s: %s %%\n", yamlScalar(d.Level), trim(d.Resource*100))
			}

			fmt.Fprintf(&b, "  expect: %s  # elasticity: ln of the rate by ln of the resource\n",
				trim(e.Expect))
		}

		if e.Fix != "" {
			fmt.Fprintf(&b, "  fix: %s\n", yamlScalar(e.Fix))
		}
	}

	b.WriteString("\ninclude:\n")
	copies := []string{"a", "b", "c", "d"}[:min(max(x.Copies, 1), 4)]
	for _, cell := range x.Cells {
		x.entry(&b, v, cell, nil, copies)
	}

	for _, cell := range x.Cells {
		for _, patch := range x.Patches {
			x.entry(&b, v, cell, patch, nil)
		}
	}

	w := x.Design.Measure
	fmt.Fprintf(&b, "\nmeasure:\n  latency_idle: off\n  latency_loaded: %t\n  probe: %s\n"+
		"  probe_interval: %s\n  verify: false\n  telemetry: %t\n", w.LatencyLoaded,
		cmp.Or(w.Probe, ProbeEcho), unit.Duration(max(w.ProbeInterval, time.Millisecond)), w.Telemetry)
	if w.NoCeiling {
		b.WriteString("  tester_ceiling: false\n")
	}

	if len(x.Design.Conditions) > 0 {
		b.WriteString("\nconditions:\n")
		for _, name := range slices.Sorted(maps.Keys(x.Design.Conditions)) {
			fmt.Fprintf(&b, "  %s: %s\n", yamlScalar(name), yamlScalar(x.Design.Conditions[name]))
		}
	}

	return b.String()
}

// entry writes a patched cell as an entry of include. It omits levels that follow from others.
func (x Patched) entry(b *strings.Builder, v Vocabulary, cell, patch factor.Cell, copies []string) {
	cell = factor.Copy.With(cell, "")
	for _, name := range v.Names() { // omit derived levels, because the patch may change them
		f, ok := v.Lookup(name)
		if ok && f.Derive != nil && cell[name] != "" && cell[name] == f.Derive(cell) {
			delete(cell, name)
		}
	}

	if factor.FrameSize.In(cell) {
		delete(cell, string(factor.PacketSize))
	}

	for name, level := range patch {
		factor.Name(name).Set(cell, level)
	}

	names := cell.Names()
	v.Sort(names)
	lead := "- "
	for _, name := range names {
		if f, ok := v.Lookup(name); ok && f.Base && f.Default == cell[name] {
			continue
		}

		fmt.Fprintf(b, "  %s%s: %s\n", lead, name, yamlScalar(cell[name]))
		lead = "  "
	}

	switch {
	case len(copies) > 0:
		fmt.Fprintf(b, "  %scopy: [%s]  # untouched\n", lead, strings.Join(copies, ", "))
	case lead == "- ": // all levels are defaults, for example after a patch that removes a level
		fmt.Fprintf(b, "  - %s: %s\n", factor.Streams, factor.Streams.Of(cell))
	}
}

var plainScalar = check.Pattern(`^[A-Za-z0-9][A-Za-z0-9 ._/+@%-]*$`)

// yamlScalar quotes text, if necessary, so that YAML parses it as text.
func yamlScalar(text string) string {
	if plainScalar().MatchString(text) && strings.TrimSpace(text) == text {
		return text
	}
	return strconv.QuoteToGraphic(text)
}

// trim formats a number with at most four decimals.
func trim(v float64) string {
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(v, 'f', 4, 64), "0"), ".")
}
