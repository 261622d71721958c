package rig

import (
	"context"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// Stored holds a run as it was stored, and its document.
type Stored struct {
	record.Run
	Trials   []record.Trial
	Document *analysis.Document
}

// App returns the functions of the program with its folders.
func (p Program) App() *app.App {
	folder := func(name string) string { return filepath.Join(p.Dir, name, "chokepoint") }
	return &app.App{Dirs: app.Dirs{
		Data:    folder("data"),
		State:   folder("state"),
		Cache:   folder("cache"),
		Runtime: folder("run"),
	}}
}

// OwnApp returns the functions of the program with this user's directories, which contain images of guests.
func OwnApp(note func(format string, args ...any)) *app.App {
	return &app.App{Dirs: app.FindDirs(os.Getenv, os.Geteuid()), Note: note}
}

// Run runs a plan on a kind of lab, or in a lab that is up, and returns what was stored. Failed trials are
// not an error.
func Run(ctx context.Context, a *app.App, pl *plan.Plan, kind string, o app.RunOptions) (s Stored,
	err error) {
	head := a.NewRun(pl)
	head.Lab = kind
	// Deriving the document sets a limit on the process's memory, which must not affect the next run.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	r, err := a.Run(ctx, pl, head, o)
	if err != nil {
		return s, err
	}

	err = a.Dirs.WithRun(ctx, r.Document.Run.ID, func(st *store.Store, run record.Run) (err error) {
		s, err = ReadRun(ctx, st, run.ID)
		return err
	})
	s.Document = r.Document
	return s, err
}

// ReadRun reads a run without its document.
func ReadRun(ctx context.Context, st *store.Store, id string) (s Stored, err error) {
	if s.Run, err = st.Find(ctx, id); err != nil {
		return s, err
	}

	s.Design.Catalogue = registry.Catalogue()
	s.Trials, err = st.Trials(ctx, s.ID)
	return s, err
}
