package foreign

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Source holds a file's name and the results read from the file.
type Source struct {
	File    string // name of the file
	Results []Result
}

// Run converts the results of files to a run. conditions are levels for the whole run; an empty level
// removes the factor. Results with the same conditions become repetitions of one cell.
func Run(id string, now time.Time, sources []Source, conditions record.Factors) (record.Run, []record.Trial) {
	run := record.Run{
		RunHead:      record.RunHead{ID: id, Status: record.RunDone, Lab: record.LabImported},
		ImportedAt:   now,
		Topologies:   []record.Topology{},
		Environments: []record.Environment{},
		Ceilings:     []record.Ceiling{},
		Nodes:        []record.NodeFacts{{Name: "client"}, {Name: "server"}},
	}
	d := &run.Design
	d.Description = "Results that other programs measured."
	d.Method = record.Method{Order: "listed"}
	var trials []record.Trial
	var leftOut []string
	repetitions := map[string]int{}
	for _, s := range sources {
		d.Source = strings.TrimPrefix(d.Source+", "+s.File, ", ")
		for _, r := range s.Results {
			if r.LeftOut != "" {
				leftOut = append(leftOut, s.File+": "+r.LeftOut)
				continue
			}

			f := r.Factors.Clone()
			for n, level := range conditions {
				factor.Name(n).Set(f, level)
			}

			key := f.Key()
			if repetitions[key]++; repetitions[key] == 1 {
				d.Cells = append(d.Cells, f)
			}

			r.Foreign.File = s.File
			r.Foreign.Lacks = slices.Clone(r.Foreign.Lacks)
			if !dated(r.Began) {
				r.Began = now
				r.Foreign.Lacks = append(r.Foreign.Lacks, undated)
			}

			trials = append(trials, r.trial(run, f, repetitions[key], len(trials)+1))
			program := programOf(&r.Foreign)
			if !slices.Contains(run.ImportedFrom, program) {
				run.ImportedFrom = append(run.ImportedFrom, program)
			}

			d.Method.Runs = max(d.Method.Runs, repetitions[key])
			d.Method.Duration = max(d.Method.Duration, time.Duration(r.Window.End-r.Window.Start))
		}
	}

	lacks := map[string][]string{} // items that results lack, by program
	for i := range trials {
		f := trials[i].Foreign
		program := programOf(trials[i].Foreign)
		if repetitions[trials[i].Row.Cell()] > 1 {
			f.Lacks = slices.DeleteFunc(f.Lacks, func(l string) bool { return l == oneRun })
		}

		for _, l := range f.Lacks {
			if !slices.Contains(lacks[program], l) {
				lacks[program] = append(lacks[program], l)
			}
		}
	}

	for _, program := range run.ImportedFrom {
		run.Caveats = append(run.Caveats, record.Caveat{
			Kind: "foreign",
			Text: program +
				" measured this, not chokepoint; its results lack: " + strings.Join(lacks[program], "; "),
		})
	}

	run.Caveats = append(run.Caveats, leftOutCaveats(leftOut)...)
	d.Name = nameOf(run.ImportedFrom, sources)
	run.Started, run.Ended = spanOf(trials, now)
	for _, c := range d.Cells {
		for _, n := range c.Names() {
			d.Factors = plan.AddLevels(d.Factors, n, c[n])
		}
	}

	d.Loads = (*factor.Catalogue)(nil).Loads(d.Cells)
	return run, trials
}

// maxLeftOut is the maximum number of caveats about parts of files that did not become a trial.
const maxLeftOut = 20

func leftOutCaveats(parts []string) (out []record.Caveat) {
	if more := len(parts) - maxLeftOut; more > 0 {
		parts = append(parts[:maxLeftOut], fmt.Sprintf("%d more parts of the files gave no number", more))
	}

	for _, text := range parts {
		out = append(out, record.Caveat{Kind: "left-out", Text: name(text)})
	}
	return out
}

// undated is an item of Lacks, for files that do not contain the time of the measurement.
const undated = "when it was measured: it has the time of the import"

// dated reports whether a time is plausible for a measurement.
func dated(t time.Time) bool { return t.Year() > 1970 && t.Year() < 2200 }

// nameOf names a run after the programs that measured it, followed by the name of the file or, if there are
// several files, their number.
func nameOf(programs []string, sources []Source) string {
	var tools []string
	for _, p := range programs {
		tool, _, _ := strings.Cut(p, " ")
		if !slices.Contains(tools, tool) {
			tools = append(tools, tool)
		}
	}

	of := fmt.Sprintf("%d files", len(sources))
	if len(sources) == 1 {
		of = sources[0].File
	}

	return name(strings.Join(tools, ", ") + ": " + of)
}

// spanOf returns the start of the first trial and the end of the last one. Without trials, both are now.
func spanOf(trials []record.Trial, now time.Time) (from, to time.Time) {
	for i, t := range trials {
		end := t.Started.Add(time.Duration(t.Ended))
		if i == 0 || t.Started.Before(from) {
			from = t.Started
		}

		if end.After(to) {
			to = end
		}
	}

	if len(trials) == 0 {
		return now, now
	}
	return from, to
}

func programOf(f *record.Foreign) string { return strings.TrimSpace(f.Tool + " " + f.Version) }

// trial converts a result to a trial of the run.
func (r *Result) trial(run record.Run, f record.Factors, block, index int) record.Trial {
	row := record.Row{
		Assignment: record.Assignment{
			Block:   block,
			Index:   index,
			Kind:    record.RowLoad,
			Factors: f,
		},
		ID: fmt.Sprintf("b%d-r%02d", block, index),
	}
	return record.Trial{
		Row: row,
		TrialHead: record.TrialHead{
			ID:      row.ID + ".1",
			Started: r.Began,
			Caveats: r.Caveats,
			Phases:  []record.Phase{{Name: record.PhaseWindow, Start: r.Window.Start, End: r.Window.End}},
		},
		Run:     run.ID,
		Attempt: 1,
		Ended:   max(r.Window.Stop, r.Window.End),
		Status:  record.TrialOK,
		Window:  r.Window,
		Traffic: r.Traffic,
		Idle:    r.Idle,
		Loaded:  r.Loaded,
		Foreign: &r.Foreign,
	}
}
