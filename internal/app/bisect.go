package app

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ErrUnusable marks the error of a version that cannot be measured and is left out, such as a commit that
// does not build.
var ErrUnusable = errors.New("version left out")

// BisectOptions say what to bisect: versions, oldest first.
type BisectOptions struct {
	UpgradeOptions
	Cell string   // words of the label of the cell to follow; "": the one that changes most clearly
	Skip []string // names of versions to leave out
	// Prepare makes what a version boots, if it does not exist yet; nil: it does. An ErrUnusable leaves the
	// version out.
	Prepare func(ctx context.Context, version int) (RouterVersion, error)
}

// Bisect finds which of some versions of a router changed a result, see comparison.Bisect. It measures the
// first and the last version in the blocks of Upgrade; if they differ, it measures others until it has an
// answer, each in a run of its own with a freshly booted router. It can be ended at any time and is continued
// by the same options with the id.
//
// A version whose first run fails is left out; a second failure in a row ends the search, as does an error
// of Prepare that is no ErrUnusable. An error comes with what has been found, nil if no block of the ends is
// complete.
func (a *App) Bisect(ctx context.Context, o BisectOptions) (*analysis.Bisection, error) {
	t, err := a.inTurn(ctx, o.UpgradeOptions)
	if err != nil {
		return nil, err
	}

	t.prepare = o.Prepare
	s := bisection{inTurn: t, o: o, skipped: map[int]string{}}
	for v, name := range t.names() {
		if slices.Contains(o.Skip, name) {
			s.skipped[v] = "left out by --skip"
		}
	}

	return s.run(ctx)
}

// bisection is a bisection that goes on.
type bisection struct {
	*inTurn
	o       BisectOptions
	skipped map[int]string // why versions are left out
	failed  bool           // the last run
}

func (s *bisection) run(ctx context.Context) (*analysis.Bisection, error) {
	once := s.measure
	s.measure = func(ctx context.Context, v int, pl *plan.Plan,
		at record.Series) (*analysis.Document, error) {
		d, err := once(ctx, v, pl, at)
		if err == nil && at.Block == 1 {
			err = s.hasCell(d)
		}
		return d, err
	}
	if err := s.compared(ctx, []int{len(s.Versions) - 1}); err != nil {
		return s.state(), err
	}

	for {
		x := s.state()
		next, ok := x.Next()
		if !ok {
			return x, nil
		}

		if err := s.measureNext(ctx, next); err != nil {
			return s.state(), err
		}
	}
}

// hasCell returns an error if no cell of a document is called as the one to follow.
func (s *bisection) hasCell(d *analysis.Document) error {
	var labels []string
	for i := range d.Cells {
		if labels = append(labels, d.Cells[i].Label); HasWords(d.Cells[i].Label, s.o.Cell) {
			return nil
		}
	}
	return Hinted("cells: "+strings.Join(labels, "; "), "--cell %q: no cell is called so", s.o.Cell)
}

// state returns what has been found so far, nil if no block of the ends is complete.
func (s *bisection) state() *analysis.Bisection {
	x := analysis.Bisect(s.ID, s.names(), s.blocks,
		func(label string) bool { return HasWords(label, s.o.Cell) }, s.skipped)
	if x.Ends == nil {
		return nil
	}

	return x
}

// measureNext measures a version in a block of its own, or leaves it out.
func (s *bisection) measureNext(ctx context.Context, v int) error {
	name := s.Versions[v].Name
	block := max(2*comparison.VersionBlocks, s.blocks[len(s.blocks)-1].Block) + 1
	err := s.measureBlock(ctx, block, []int{v})
	if err == nil {
		s.failed = false
		return nil
	}

	s.blocks = slices.DeleteFunc(s.blocks, func(b analysis.VersionBlock) bool { return b.Block == block })
	end := v == 0 || v == len(s.Versions)-1
	unusable := errors.Is(err, ErrUnusable)
	var unprepared *prepareError
	if errors.As(err, &unprepared) && !unusable {
		return err
	}

	if ctx.Err() != nil || errors.Is(err, lab.ErrDirty) || end || s.failed && !unusable {
		return check.WithHint(err, "if a version does not work, leave it out by --skip VERSION")
	}

	s.failed = s.failed || !unusable
	measured := slices.ContainsFunc(s.blocks, func(b analysis.VersionBlock) bool { return b.Runs[v] != nil })
	if measured && !unusable {
		s.note("%s is measured again: %v", name, err)
		return nil
	}

	why := err
	if unusable {
		why = errors.Unwrap(err)
	}

	s.skipped[v] = why.Error()
	s.note("%s is left out: %v", name, why)
	return nil
}
