package app

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// maxPlanBytes is the size of the largest plan plus one byte. Reading this many bytes shows whether a file is
// too large.
const maxPlanBytes = 1<<20 + 1

// PlanRequest names a plan and the changes to make to it. The zero value is the default plan.
type PlanRequest struct {
	Name   string        // name of a built-in plan, or a file
	Sets   []string      // "path=value" pairs that replace values of the plan
	Strict bool          // use the durations of the standard that the plan implements
	Budget time.Duration // time for the whole plan; 0 means no limit
}

// Read returns the plan for the path between this machine and the peer, or for a lab if there is no peer.
// Every error is an ErrUsage.
func (r PlanRequest) Read(other Peer) (*plan.Plan, error) {
	name := r.Name
	if name == "" && other.At != "" {
		name = plan.PathPlan
	}

	name = cmp.Or(name, plan.BuiltIns()[0])
	sets := r.Sets
	if standard, ok := plan.Strict(name); r.Strict && ok {
		sets = append(standard, sets...)
	}

	if _, ok := plan.BuiltIn(name); ok {
		p, err := plan.ReadBuiltIn(name, other.Vocabulary(), sets)
		return seeded(p), Mark(ErrUsage, err)
	}

	data, err := userfile.Read(name, maxPlanBytes)
	switch {
	case errors.Is(err, os.ErrNotExist):
		hint := check.Choice(filepath.Base(name), "built-in plans", plan.BuiltIns())
		if _, err := os.Stat(name + ".yaml"); err == nil {
			hint = "did you mean " + name + ".yaml?"
		}

		return nil, Usage(hint,
			"read plan %s: no such file, and no built-in plan has this name", name)
	case err != nil:
		return nil, Mark(ErrUsage, fmt.Errorf("read plan %s: %v", name, err))
	}

	return ReadPlan(name, string(data), other, sets...)
}

// ReadFitting is like Read, but shortens the plan until it fits the budget.
func (r PlanRequest) ReadFitting(other Peer) (*plan.Plan, error) {
	p, err := r.Read(other)
	if err == nil && r.Budget > 0 {
		err = Mark(ErrUsage, p.Fit(r.Budget, RowOverhead))
	}
	return p, err
}

// ReadPlan parses the text of a plan. Errors call the plan by the given name. Every error is an ErrUsage.
func ReadPlan(name, text string, other Peer, sets ...string) (*plan.Plan, error) {
	p, err := plan.Read(name, []byte(text), other.Vocabulary(), sets)
	return seeded(p), Mark(ErrUsage, err)
}

// seeded sets a random seed in a plan that has none. The seed is short enough to type.
func seeded(p *plan.Plan) *plan.Plan {
	if p == nil || p.SeedGiven {
		return p
	}
	return p.WithSeed(uint64(rand.Uint32()))
}
