// Package plan determines what is compared, and in which order. It reads a strict YAML file and expands it
// into ordered rows. It has no side effects. It does not decide whether a certain machine can run a row. It
// skips only combinations that no machine can run, and gives a reason for each.
//
// A plan is expanded in three steps. The matrix and the includes give combinations of levels. Each
// combination becomes a cell by adding defaults and dropping factors that have no meaning in it. Cells become
// rows, block by block, in an order that depends only on the seed and the number of the block.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Plan is a plan that was read and expanded into cells. Its Design is stored with the run; New recreates an
// equal plan from it.
type Plan struct {
	Design    record.Design
	SeedGiven bool // whether the file or a --set contains the seed; if not, the caller chooses one

	notes []string
}

// New returns the plan of a stored design, without reading its text again.
func New(d record.Design) *Plan { return &Plan{Design: d, SeedGiven: true} }

// WithSeed returns a copy of the plan with another seed.
func (p *Plan) WithSeed(seed uint64) *Plan {
	c := *p
	c.Design.Method.Seed = seed
	return &c
}

// Cells returns the combinations to measure, without duplicates, in the order listed.
func (p *Plan) Cells() []factor.Cell { return p.Design.Cells }

// Skipped returns the combinations that no machine can run, with the reasons.
func (p *Plan) Skipped() []record.Skipped { return p.Design.Skipped }

// Notes explains why factors were dropped from cells, such as "mtu: there is no tunnel (4 cells)".
func (p *Plan) Notes() []string { return p.notes }

// Vocabulary holds the factors that a plan may contain, and the full names of the metrics for thresholds.
type Vocabulary struct {
	*factor.Catalogue
	Metrics []string
	// Absent returns why a metric cannot exist in a cell of a design, or "". If Absent is nil, all metrics
	// can exist.
	Absent func(metric string, d record.Design, cell factor.Cell) string
}

// Error is a mistake in a plan, with its position.
type Error struct {
	File   string // file name, or "--set PATH"; empty if the error concerns the whole plan
	Line   int    // from 1; 0 if the error has no position
	Column int    // in characters, from 1
	Text   string
	// HintText describes the next step, if known.
	HintText string
}

func (e *Error) Error() string {
	switch {
	case e.File == "":
		return e.Text
	case e.Line > 0:
		return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
	}
	return e.File + ": " + e.Text
}

// Hint returns the next step, or "".
func (e *Error) Hint() string { return e.HintText }

// maxErrors is the maximum number of errors reported for a plan. More would push the first errors off the
// screen.
const maxErrors = 20

// together joins the errors of a plan in the order of their positions. It returns nil if there are none.
func together(errs []error) error {
	line := func(err error) *Error { e, _ := err.(*Error); return cmp.Or(e, &Error{}) }
	slices.SortStableFunc(errs, func(a, b error) int {
		return cmp.Or(line(a).Line-line(b).Line, line(a).Column-line(b).Column)
	})
	switch more := len(errs) - maxErrors; {
	case len(errs) == 1:
		return errs[0]
	case more > 0:
		errs = append(errs[:maxErrors:maxErrors], &Error{Text: "and " + unit.Count(more, "more error")})
	}
	return errors.Join(errs...)
}

// longList is the length above which a list is shortened to similar words in a hint.
const longList = 40

// choiceHint returns a hint for a misspelled word. It suggests the nearest of the allowed words, or lists
// them.
func choiceHint(text, noun string, allowed []string) string {
	meant := check.Meant(text, allowed)
	if meant != "" {
		return meant
	}

	kindred := factor.Kindred(text, allowed)
	if len(allowed) > longList && len(kindred) > 0 {
		noun = "nearest " + noun
		allowed = kindred
	}

	return fmt.Sprintf("%s: %s", noun, strings.Join(allowed, ", "))
}
