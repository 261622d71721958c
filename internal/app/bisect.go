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

// ErrUnusable marks the error about a version that cannot be measured, such as a commit that does not build.
// Bisect leaves such a version out.
var ErrUnusable = errors.New("version left out")

// BisectOptions configure Bisect. Versions must be in order, oldest first.
type BisectOptions struct {
	UpgradeOptions
	Cell string   // words of the label of the cell to follow; "" means the cell that changes most clearly
	Skip []string // names of versions to leave out
	// Prepare creates the image or kernel that a version boots, unless it exists. If Prepare is nil, all
	// images and kernels must exist. If it returns an ErrUnusable, the version is left out.
	Prepare func(ctx context.Context, version int) (RouterVersion, error)
}

// Bisect finds the version of a router that changed a result (see comparison.Bisect). It first measures the
// ends, which are the first and the last version, in the same blocks as Upgrade. If the ends differ, it
// measures other versions until it has an answer, each in a separate run with a freshly booted router. A
// bisection may be interrupted at any time. Calling Bisect again with the same options and the id of the
// bisection continues it.
//
// If the first run of a version fails, the version is left out. Bisect returns an error if a run of an end
// fails, if two runs in a row fail, or if Prepare returns an error other than an ErrUnusable. With an error,
// it also returns what has been found so far, or nil if no block of the ends is complete.
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

// bisection is a bisection in progress.
type bisection struct {
	*inTurn
	o       BisectOptions
	skipped map[int]string // by version: the reason why it is left out
	failed  bool           // the last run failed
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

// hasCell returns an error if no cell of a document has a label that contains all words of Cell.
func (s *bisection) hasCell(d *analysis.Document) error {
	var labels []string
	for i := range d.Cells {
		if labels = append(labels, d.Cells[i].Label); HasWords(d.Cells[i].Label, s.o.Cell) {
			return nil
		}
	}
	return Hinted("cells: "+strings.Join(labels, "; "), "--cell %q: no such cell", s.o.Cell)
}

// state returns what has been found so far, or nil if no block of the ends is complete.
func (s *bisection) state() *analysis.Bisection {
	x := analysis.Bisect(s.ID, s.names(), s.blocks,
		func(label string) bool { return HasWords(label, s.o.Cell) }, s.skipped)
	if x.Ends == nil {
		return nil
	}

	return x
}

// measureNext measures a version in a block of its own. If that fails, the version may be left out.
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
	if errors.Is(err, errUnprepared) && !unusable {
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
