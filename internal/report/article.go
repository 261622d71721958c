package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Names of the files in the folder of an article, and of the folder with its pictures.
const (
	ArticleText = "article.md"
	planFile    = "plan.yaml"
	cellsFile   = "cells.csv"
	chartFolder = "charts/"
)

// article collects the text and the pictures of an article on a run.
type article struct {
	markdown
	v        *view
	hasPlan  bool // the folder contains the plan
	pictures []File
	err      error
}

// Article renders a run as the files of a folder that can be published as it is. The files are a Markdown
// text, the cells as CSV, the plan if it is not "", and each picture as SVG and, unless it is too large, as
// PNG. The text is the first file and shows the SVG files.
func Article(d *analysis.Document, plan string) ([]File, error) {
	a := &article{v: newView(d), hasPlan: plan != ""}
	a.picture = a.addPicture
	a.heading("# ", joined(": ", a.v.subject(), "plan "+a.v.Run.Plan))
	for _, part := range []struct {
		title string
		write func()
	}{
		{"Summary", a.summary},
		{"Topology", a.topology},
		{"Hardware and software", a.hardware},
		{"Method", a.method},
		{"Results", a.results},
		{diagnosisTitle, a.bottleneck},
		{"Verdict by use", a.uses},
		{"Limits of this study", a.limits},
		{"How to repeat it", a.repeat},
	} {
		a.heading("## ", part.title)
		part.write()
		a.gap()
	}

	if a.err != nil {
		return nil, a.err
	}

	cells, err := CSV(d)
	if err != nil {
		return nil, err
	}

	files := []File{{ArticleText, a.text()}, {cellsFile, cells}}
	if a.hasPlan {
		files = append(files, File{planFile, []byte(plan)})
	}

	return append(files, a.pictures...), nil
}

// subject describes the device under test. It is the name that the user gave the device or, without a name,
// the product and system of the first router. A guest is described as a virtual router, and a namespace as
// one machine in all three roles.
func (v *view) subject() string {
	if v.Run.Device != "" {
		return v.Run.Device
	}

	for _, t := range v.Topologies {
		for _, n := range t.Nodes {
			node := slices.IndexFunc(v.Nodes, func(x record.NodeFacts) bool { return x.Name == n.Name })
			at := slices.IndexFunc(v.Environment, func(e record.Environment) bool { return e.Node == n.Name })
			if !n.Router || node < 0 || at < 0 {
				continue
			}

			facts := v.Environment[at].Facts
			switch x := v.Nodes[node]; {
			case !x.OwnKernel:
				return joined(", ", "One machine in all three roles", systemOf(facts))
			case x.Guest():
				return joined(", ", "A virtual router", cmp.Or(facts["firmware"], systemOf(facts)))
			default:
				return joined(", ", facts["product"], cmp.Or(facts["firmware"], systemOf(facts)))
			}
		}
	}
	return ""
}

// systemOf returns the name and version of a node's operating system.
func systemOf(facts map[string]string) string {
	return joined(" ", cmp.Or(facts["distribution"], facts["os"]), facts["distribution_version"])
}

func (a *article) heading(level, title string) { a.block(level + escape(title)) }

// summary writes what was measured, what was found and what limited the traffic.
func (a *article) summary() {
	h := headOf(a.v)
	a.paragraph(h.Lead)
	for _, c := range a.v.Caveats {
		if slices.Contains(scopes, c.Kind) {
			a.paragraph(sentences(c.Text))
		}
	}

	a.items(h.Alerts)
	a.points(h.Points)
	verdicts := a.v.verdictItems()
	if len(verdicts) > 0 {
		a.title(diagnosisTitle + ":")
	}

	for _, x := range verdicts {
		x.Evidence = nil // shown in the section on the bottleneck
		a.item(x)
	}

	a.gap()
	a.paragraph(strings.Join(each(h.Meta, func(f Fact) string { return f.Name + ": " + f.Value }), "; "))
}

func (a *article) topology() {
	for _, f := range a.v.pictures() {
		a.addPicture(f)
	}

	a.items(foundItems(a.v, true))
}

// hardware writes a table with a row for each machine. Identical nodes share a row.
func (a *article) hardware() {
	t := Table{Columns: columns("Nodes", "Product", "Processor", "Threads", "Memory", "System", "Kernel",
		"Firmware", "Governor", "Clock setting", "Hypervisor")}
	for _, e := range a.v.Environment {
		f := e.Facts
		memory := ""
		if bytes := numberOf(f["memory_bytes"]); bytes > 0 {
			memory = rateText("bytes", bytes)
		}

		cells := each([]string{f["product"], f["cpu_model"], f["cpu_threads"], memory, systemOf(f),
			f["kernel"], f["firmware"], f["governor"], f["cpu_frequency_set"], f["hypervisor"]}, textCell)
		same := func(x, y TableCell) bool { return x.Text == y.Text }
		alike := func(r TableRow) bool { return slices.EqualFunc(r.Cells[1:], cells, same) }
		if i := slices.IndexFunc(t.Rows, alike); i >= 0 {
			t.Rows[i].Cells[0].Text += ", " + e.Node
		} else {
			t.row(e.Node, cells)
		}
	}

	if len(t.Rows) == 0 {
		a.paragraph("Nothing of the machines was recorded.")
		return
	}

	t.dropEmpty()
	a.table(t)
	for _, n := range a.v.Nodes {
		if n.Driven == "" && n.Unreachable != "" {
			a.item(Item{Kind: n.Name, Text: "not watched: " + n.Unreachable})
		}
	}

	a.gap()
	if m := a.v.Run.Meter; m != nil {
		a.paragraph("Power was read from " + m.At + ".")
	}
}

func (a *article) method() {
	s := Section{}
	methodSection(a.v, &s)
	a.blocks(filter(s.Blocks, func(b Block) bool { return b.kind() != Fold{}.kind() }))
	if len(a.v.Tester) > 0 {
		a.blocks([]Block{testerFacts(a.v)})
	}
}

// resultParts lists the sections of the page that have charts and tables of results.
var resultParts = [...]string{"search", "goodput", "packets", "dependence", "scaling", "latency", "soak",
	"ciphers", "comparisons", "effects", "findings", "requirements", "two-ends"}

func (a *article) results() {
	for _, t := range append(resultTables(a.v), flowTables(a.v)...) {
		a.table(t)
	}

	for _, s := range sections(a.v) {
		if !slices.Contains(resultParts[:], s.ID) {
			continue
		}

		a.heading("### ", s.Title)
		a.paragraph(s.Lead)
		a.blocks(s.Blocks)
		if s.ID == "comparisons" {
			a.blocks(comparisonBlocks(a.v))
		}
	}
}

// bottleneck writes the verdict on each group of cells, with its evidence. It omits causes that were
// excluded.
func (a *article) bottleneck() {
	all := a.v.found()
	if len(all) == 0 {
		a.paragraph("No limit could be named: no load was measured, or none was examined.")
		return
	}

	for i, f := range all {
		a.heading("### ", upperFirst(f.Verdict.Text)+bracket(a.v.who(f, 0)+f.sure()))
		if len(f.Labels) > 2 {
			a.paragraph("Cells: " + strings.Join(f.Labels, "; ") + ".")
		}

		a.items(filter(a.v.details(f), func(it Item) bool {
			return !slices.Contains([]string{kindRuledOut, kindAccounts, kindPath}, it.Kind)
		}))
		a.blocks(f.picture(i, stages(f.Path)))
	}

	s := Section{}
	diagnosisSection(a.v, &s)
	a.blocks(filter(s.Blocks, isFigure))
}

// uses writes a verdict for each common use, and the rule behind the verdict.
func (a *article) uses() {
	t := Table{Columns: columns("Use", "Verdict", "Because")}
	for _, u := range a.v.Uses {
		t.row(u.Use, u.Verdict, textCell(u.Because))
	}

	if len(t.Rows) == 0 {
		a.paragraph("Nothing was measured that a verdict could rest on.")
		return
	}

	a.paragraph(around("The limits of this study, below, are limits of these verdicts too: ",
		strings.Join(distinct(a.v.Caveats, caveatKind), ", "), "."))
	a.table(t)
	a.paragraph("The rules:")
	for _, u := range a.v.Uses {
		a.item(Item{Kind: u.Use, Text: u.Rule})
	}

	a.gap()
}

// limits lists the limitations of the results.
func (a *article) limits() {
	a.items(headOf(a.v).Caveats)
	a.items(trialNotes(a.v, resultTables(a.v)...))
	a.points(once(nil, around("Intervals: ", a.v.intervalsOf(a.v.all, goodput, packetRate), ".")))
	varying := a.v.varying(a.v.all)
	if len(varying) > 0 {
		f := a.v.all[0].Factors
		same := each(without(a.v.sorted(f), varying...), func(name string) string {
			return around(name+" ", f[name], "")
		})
		a.points([]string{"What was not varied may change the results: " + joined(", ", same...) + "."})
	}

	a.points(each(filter(a.v.Uses, func(u analysis.UseCase) bool { return !u.Measured() }),
		func(u analysis.UseCase) string { return "Not measured: " + u.Use + "." }))
	a.points(each(skippedLines(a.v), func(text string) string { return "Not measured: " + text }))
	if a.v.importedFrom() == "" {
		a.points([]string{"Observing took " + unit.Percent(a.v.Observing.CoreRatio) + " of one core."})
	}

	a.gap()
}

// repeat writes the command that repeats the run, and what the plan varied.
func (a *article) repeat() {
	v := a.v
	t := Table{Columns: columns("Factor", "Levels")}
	for _, name := range v.varying(v.all) {
		t.row(TableCell{Text: name, Sub: v.Catalogue.Of(name).Doc}, strings.Join(levels(v.all, name), ", "))
	}

	if len(t.Rows) > 0 {
		a.paragraph(fmt.Sprintf("Plan %s, %s of these factors:", v.Run.Plan, unit.Count(len(v.all), "cell")))
		a.table(t)
	}

	if v.importedFrom() != "" {
		a.paragraph("The results were measured by " + v.measuredBy() + " and imported by:")
	} else {
		a.paragraph(joined(" ", "The seed, and so the order of the trials, is in the command. Version of "+
			"chokepoint:", v.Run.Version))
	}

	a.fence([]string{v.Run.Command})
	if a.hasPlan {
		a.block("The plan, for chokepoint run: [" + planFile + "](" + planFile + ").")
	}

	a.block("The numbers of every cell, with their intervals: [" + cellsFile + "](" + cellsFile + ").")
}

// addPicture adds a figure as SVG and PNG, and shows the SVG. The alternative text describes the figure's
// content.
func (a *article) addPicture(f Figure) {
	s := a.v.figureSheet(f)
	stem := chartFolder + shortSlug(strings.TrimSuffix(f.ID, "-bars"))
	name := untaken(stem, func(name string) bool {
		return slices.ContainsFunc(a.pictures, func(p File) bool { return p.Name == name+".svg" })
	})
	points := "([PNG](" + name + ".png))"
	for _, format := range []string{"svg", "png"} {
		content, err := s.drawn(a.v.Run.ID, name, format, Size{})
		if errors.Is(err, errTooLarge) { // a picture of about a thousand cells
			points = ""
			continue
		}

		if err != nil {
			a.err = err
			return
		}

		a.pictures = append(a.pictures, File{name + "." + format, content})
	}

	alt := joined(". ", s.Title, s.Draw.Draw(s.Natural).label)
	a.block("![" + escape(alt) + "](" + name + ".svg)")
	a.block(joined(" ", escape(f.Caption), points))
}
