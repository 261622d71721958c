package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// head holds the top of a report: the question and the answer in words.
type head struct {
	Title   string // title of the plan
	Lead    string // what was measured
	Points  []string
	Meta    []Fact
	Alerts  []Item // problems that affect the whole run
	Caveats []Item
}

// headOf returns the top of the report. It is computed once.
func headOf(v *view) head {
	if v.top == nil {
		v.top = new(makeHead(v))
	}
	return *v.top
}

func makeHead(v *view) head {
	started := ""
	if !v.Run.Started.IsZero() {
		started = v.Run.Started.UTC().Format("2 Jan 2006, 15:04 UTC")
	}

	h := head{
		Title:  v.Run.Plan,
		Alerts: alerts(v),
		Meta: given("Name", v.Run.Name, "Device", v.Run.Device, "Notes", strings.Join(v.Run.Notes, "; "),
			"Run", v.Run.ID, "Started", started, "Lab", v.Run.Lab,
			"Measured by", v.importedFrom(), "Machine", machine(v.Environment),
			"Firmware", firmware(v.Environment), "Measured", extent(v), "Status", v.Run.Status),
	}
	if len(v.Summary) > 0 {
		h.Lead, h.Points = v.Summary[0], unsaid(v.Summary[1:], v.Caveats)
	}

	h.Caveats = each(v.Caveats, caveatItem)
	return h
}

// unsaid removes the points that repeat a caveat.
func unsaid(points []string, caveats []record.Caveat) []string {
	return filter(points, func(p string) bool {
		return !slices.ContainsFunc(caveats, func(c record.Caveat) bool {
			return strings.EqualFold(strings.TrimRight(p, "."), strings.TrimRight(c.Text, "."))
		})
	})
}

// extent describes the number of cells, and the number of runs per cell.
func extent(v *view) string {
	counts := each(v.all, func(c *analysis.Cell) int { return c.Runs })
	if len(counts) == 0 {
		counts = []int{0}
	}

	low, high := slices.Min(counts), slices.Max(counts)
	runs := unit.Count(high, "run")
	if low != high {
		runs = fmt.Sprintf("%d to %s", low, runs)
	}

	return unit.Count(len(v.Cells), "cell") + " × " + runs
}

// cpuNoise removes the superfluous words from the names of CPUs.
var cpuNoise = strings.NewReplacer("(R)", "", "(TM)", "", " Processor", "", " CPU", "")

// machine describes the host of the lab. If each node is a machine of its own, it describes both endpoints.
func machine(all []record.Environment) string {
	carried := slices.ContainsFunc(all, func(e record.Environment) bool { return e.Node == "host" })
	var ends []string
	for _, e := range all {
		if carried && e.Node != "host" && len(all) > 1 {
			continue
		}

		system := unit.System(e.Facts["os"]) + " "
		cpu := cpuNoise.Replace(e.Facts["cpu_model"])
		text := joined(", ", cpu, around("", e.Facts["cpu_cores"], " cores"),
			around(system, strings.TrimPrefix(e.Facts["kernel"], system), ""))
		if carried || len(all) == 1 {
			return text
		}

		ends = append(ends, around(e.Node+": ", text, ""))
	}

	return joined("; ", ends...)
}

// firmware returns the firmware of the real router before the run, or "" if there is no real router.
func firmware(all []record.Environment) string {
	return cmp.Or(each(all, func(e record.Environment) string { return e.Facts["firmware"] })...)
}

// Kinds of alerts that the screen shows in another section.
const (
	alertMissed     = "missed"
	alertNotReached = "not reached"
	alertTester     = "tester"
)

func alerts(v *view) []Item {
	var out []Item
	s := v.Run.Status
	if s != record.RunDone && s != "" {
		out = items(s, Bad, "The run is not complete: "+s+bracket(v.Run.Reason)+".")
	}

	add := func(kind string, tone Tone, n int, one, many, rest string) {
		if n > 0 {
			out = append(out, items(kind, tone, plural(n, one, many)+rest)...)
		}
	}
	ofGrade := func(grade string) []*analysis.Cell {
		return v.cells(func(c *analysis.Cell) bool { return c.Grade == grade })
	}
	missed, unchecked := v.ThresholdCounts()
	of := fmt.Sprintf(" of %d", len(v.Thresholds))
	add(alertMissed, Bad, missed, "requirement", "requirements", of+" missed.")
	add("not checked", Doubt, unchecked, "requirement", "requirements", of+
		" not checked: the run did not reach their cells.")
	add(alertNotReached, Bad, len(ofGrade(evidence.GradeNotReached)), "cell was", "cells were",
		" not reached.")
	of = fmt.Sprintf(" of %d", len(v.all))
	for _, grade := range []string{evidence.GradeFailed, evidence.GradeSuspect} {
		all := ofGrade(grade)
		add(grade, gradeTone(grade), len(all), "cell", "cells", of+reasonNames(all)+
			"; the table gives the reasons.")
	}

	if over := v.cells(exceedsTester); len(over) > 0 {
		var f finding
		for _, c := range over {
			f.Cells, f.Labels = append(f.Cells, c.Factors), append(f.Labels, c.Label)
		}

		out = append(out, items(alertTester, Doubt, v.who(f, 2)+": more than the tester reached without a "+
			"router, so there is no share of it.")...)
	}

	return out
}
