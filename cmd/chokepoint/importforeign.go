package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/foreign"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// foreignOptions are those of files that other programs wrote.
type foreignOptions struct {
	from string   // their format, "" = what each looks like
	sets []string // NAME=LEVEL
}

// foreign says whether files hold results of other programs: it is asked for, or the only one looks so. What
// cannot be read is left to who reads it.
func (o *foreignOptions) foreign(files []string, stdin io.Reader, recording bool) (yes bool,
	again io.Reader) {
	if recording {
		return false, stdin
	}
	if o.from != "" || len(o.sets) > 0 || len(files) > 1 {
		return true, stdin
	}
	if files[0] == standard {
		text, err := twice(stdin)
		if err != nil {
			return false, stdin
		}
		yes = foreign.Detect(text) != ""
		_, err = text.Seek(0, io.SeekStart)
		return yes && err == nil, text
	}
	f, err := os.Open(files[0])
	if err != nil {
		return false, stdin
	}
	defer f.Close()
	return foreign.Detect(f) != "", stdin
}

// importForeign makes a run of what files hold. All are read before anything is stored.
func (p *program) importForeign(ctx context.Context, files []string, stdin io.Reader,
	o foreignOptions) error {
	conditions, err := o.conditions()
	if err != nil {
		return err
	}
	var sources []foreign.Source
	for _, file := range files {
		s, err := readForeign(file, stdin, o.from)
		if err != nil {
			return err
		}
		sources = append(sources, s)
	}
	now := time.Now().UTC()
	run, trials := foreign.Run(store.NewID(now, uint16(rand.Uint32())), now, sources, conditions)
	run.Version, run.Command = ownVersion(), "chokepoint"
	for _, word := range os.Args[1:] {
		run.Command += " " + quoteWord(word)
	}
	st, err := store.Open(ctx, p.dirs.storeFile())
	if err != nil {
		return err
	}
	err = keepRun(ctx, st, run, trials)
	if err = errors.Join(err, st.Close()); err != nil {
		return err
	}
	said := fmt.Sprintf("run %s: %s in %s, measured by %s", run.ID, unit.Count(len(trials), "trial"),
		unit.Count(len(run.Design.Cells), "cell"), strings.Join(run.ImportedFrom, ", "))
	for _, c := range run.Caveats {
		said += "\n" + c.Text
	}
	return p.line(importedRun{run.ID, len(trials), len(run.Design.Cells), run.ImportedFrom}, said+"\n")
}

// importedRun is the line of import --json.
type importedRun struct {
	Run    string   `json:"run"`
	Trials int      `json:"trials"`
	Cells  int      `json:"cells"`
	From   []string `json:"imported_from"`
}

// keepRun stores a whole run, or nothing.
func keepRun(ctx context.Context, st *store.Store, run record.Run, trials []record.Trial) error {
	err := st.CreateRun(ctx, run)
	if err != nil {
		return err
	}
	for i := 0; err == nil && i < len(trials); i++ {
		err = st.AppendTrial(ctx, trials[i])
	}
	if err == nil {
		err = st.EndRun(ctx, run.ID, record.RunDone, "", run.Ended)
	}
	if err != nil {
		err = errors.Join(err, st.Remove(context.WithoutCancel(ctx), run.ID))
	}
	return err
}

func readForeign(file string, stdin io.Reader, format string) (s foreign.Source, err error) {
	from, name, end, err := openImport(file, stdin)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, end()) }()
	s.File = check.Plain(name)
	s.Results, err = foreign.Read(from, format)
	if wrong, ok := errors.AsType[*foreign.Error](err); ok {
		return s, &usageError{fmt.Sprintf("import %s: %s", s.File, check.Plain(wrong.Error())),
			check.HintOf(wrong)}
	}
	if err != nil {
		return s, fmt.Errorf("import %s: %w", s.File, err)
	}
	return s, nil
}

// factorName is what a factor of an imported run may be called.
var factorName = regexp.MustCompile(`^[a-z][a-z0-9_:.@-]{0,63}$`)

// conditions are the levels that are named for all of a run; a known factor's in its canonical text.
func (o *foreignOptions) conditions() (record.Factors, error) {
	out := record.Factors{}
	for _, text := range o.sets {
		name, level, ok := strings.Cut(text, "=")
		if !ok || !factorName.MatchString(name) || check.Plain(level) != level || len(level) > 200 {
			return nil, &usageError{fmt.Sprintf("--set %q is no condition", text),
				"name a factor and its level, such as --set tunnel=none; without a level it is taken away"}
		}
		if d, known := registry.Catalogue().Lookup(name); known && level != "" {
			canonical, err := d.Parse(level)
			if err != nil {
				return nil, &usageError{fmt.Sprintf("--set %s: %v", name, err), check.HintOf(err)}
			}
			level = canonical
		}
		out[name] = level
	}
	return out, nil
}
