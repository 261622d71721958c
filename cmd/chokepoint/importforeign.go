package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/foreign"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// foreignOptions are the options for files of other programs.
type foreignOptions struct {
	from   string   // format of the files, detected if ""
	sets   []string // NAME=LEVEL
	labels runLabels
}

// importForeign creates a run from files. If the first file is already open, it is passed as opened.
// importForeign reads all files before it stores the run, and returns an error if two have the same content.
// It omits failed tests with a note. If all tests failed, it creates no run.
func (p *program) importForeign(ctx context.Context, files []string, opened *input, o foreignOptions) error {
	conditions, err := o.conditions()
	if err != nil {
		return err
	}

	var sources []foreign.Source
	var failed error // error of the first file that contains only failed tests
	measured := false
	first := map[[sha256.Size]byte]string{} // content → file
	for _, file := range files {
		in := opened
		if in == nil {
			if in, err = openImport(ctx, file, p.In); err != nil {
				return err
			}
		}

		s := foreign.Source{File: in.name}
		text, err := foreign.Text(in)
		if err == nil {
			s.Results, err = foreign.Read(text, o.from)
		}

		lost := in.close()
		if foreign.Failed(err) && lost == nil {
			failed = cmp.Or(failed, in.wrong(err))
			s.Results = []foreign.Result{{LeftOut: err.Error()}}
			sources = append(sources, s)
			continue
		}

		if err != nil {
			err = in.wrong(err)
		}

		if err = errors.Join(err, lost); err != nil {
			return err
		}

		measured = true
		sum := sha256.Sum256(text)
		before, twice := first[sum]
		if twice {
			return app.Usage("name each file once", "import %s: it has the same content as %s",
				check.Plain(file), check.Plain(before))
		}

		first[sum] = file
		sources = append(sources, s)
	}

	if !measured {
		return failed
	}

	now := time.Now().UTC()
	run, trials := foreign.Run(store.NewID(now, uint16(rand.Uint32())), now, sources, conditions)
	run.Version, run.Command = app.RunVersion(), typed(os.Args)
	o.labels.describe(&run.RunHead)
	if err := p.Dirs.KeepRun(ctx, run, trials); err != nil {
		return err
	}

	unnoted := p.Dirs.NoteHeadline(ctx, run.ID)
	summary := fmt.Sprintf("run %s: %s in %s, measured by %s", run.ID, unit.Count(len(trials), "trial"),
		unit.Count(len(run.Design.Cells), "cell"), list(run.ImportedFrom))
	out := importedRun{Run: run.ID, Trials: len(trials), Cells: len(run.Design.Cells), From: run.ImportedFrom}
	for _, c := range run.Caveats {
		summary += "\n" + c.Text
		if c.Kind == "left-out" {
			out.LeftOut = append(out.LeftOut, c.Text)
		}
	}

	return errors.Join(unnoted, p.line(out, summary+"\n"))
}

// importedRun is the output of import --json.
type importedRun struct {
	Run    string   `json:"run"`
	Trials int      `json:"trials"`
	Cells  int      `json:"cells"`
	From   []string `json:"imported_from"`
	// LeftOut lists the parts of the files that did not become trials, with the reasons.
	LeftOut []string `json:"left_out,omitempty"`
}

// factorName matches the name of a factor of an imported run.
var factorName = check.Pattern(`^[a-z][a-z0-9_:.@-]{0,63}$`)

// conditions parses the levels that --set defines for all trials of a run.
func (o *foreignOptions) conditions() (record.Factors, error) {
	out := record.Factors{}
	for _, text := range o.sets {
		name, level, ok := strings.Cut(text, "=")
		if !ok || !factorName().MatchString(name) || check.Plain(level) != level || len(level) > 200 {
			return nil, app.Usage(
				"name a factor and its level, such as --set tunnel=none; without a level it is taken away",
				"--set %q is no condition", text)
		}

		if d, known := registry.Catalogue().Lookup(name); known && level != "" {
			canonical, err := d.Parse(level)
			if err != nil {
				return nil, app.Usage(check.HintOf(err), "--set %s: %v", name, err)
			}

			level = canonical
		}

		out[name] = level
	}
	return out, nil
}
