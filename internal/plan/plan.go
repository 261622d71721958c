// Package plan answers what is to be compared, and in which order: it reads a strict YAML file and expands
// it to ordered rows. It is pure. Whether a machine can run a row is not its question; only combinations
// that no machine can run are left out here, each with its reason.
//
// A plan expands in three steps. The matrix and the includes give combinations of levels; each becomes a
// cell by filling in the defaults and dropping the factors that mean nothing there; cells become rows,
// block by block, in an order that depends on the seed and the block's number alone.
package plan

import (
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Plan is a plan that has been read and expanded to cells. Design is what is stored with the run; New makes
// an equal plan of it again.
type Plan struct {
	Design    record.Design
	SeedGiven bool // the file or a --set names the seed; else the caller draws one

	notes []string
}

// New returns the plan of a stored design, without reading its text again.
func New(d record.Design) *Plan {
	return &Plan{Design: d, SeedGiven: true}
}

// WithSeed returns a copy of the plan that is ordered by seed.
func (p *Plan) WithSeed(seed uint64) *Plan {
	c := *p
	c.Design.Method.Seed = seed
	return &c
}

// Cells are the combinations that are run, in the order listed, each once.
func (p *Plan) Cells() []factor.Cell { return p.Design.Cells }

// Skipped are the combinations that no machine can run, with the reasons.
func (p *Plan) Skipped() []record.Skipped { return p.Design.Skipped }

// Notes say in words which factors were dropped from cells because they mean nothing there, such as "mtu:
// there is no tunnel (4 cells)".
func (p *Plan) Notes() []string { return p.notes }
