package app

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// RouterVersion is one of two versions of a router's software: what a virtual router boots, or a level of the
// factor firmware, which the lab file installs on a real one.
type RouterVersion struct {
	Name     string
	Image    *record.DiskImage
	Kernel   *record.OwnKernel
	Firmware string
}

// UpgradeOptions say what to measure and where.
type UpgradeOptions struct {
	On       record.Run       // head of a run with the lab
	Versions [2]RouterVersion // the old and the new one
	Plans    [2]*plan.Plan    // of a run with each version; a block has one of each
	ID       string           // of the measurements to continue; "": new ones
}

// Upgrade measures two versions of a router in blocks: in each, both versions in random order, each in a run
// of its own with a freshly booted router. If six blocks show a change, six more repeat the measurement. It
// can be ended at any time and is continued by the same options with the id.
//
// It returns nil if no block is complete. An error comes with the comparison of what has been measured.
// labels names the cells by the keys of their factors.
func (a *App) Upgrade(ctx context.Context, o UpgradeOptions) (c *analysis.RunComparison,
	labels map[string]string, err error) {
	id := o.ID
	if id == "" {
		id = NewID()
	}

	a.note("the same command with --resume %s continues these measurements", id)
	blocks, err := a.measured(ctx, id, o)
	if err != nil {
		return nil, nil, err
	}

	most := comparison.VersionBlocks
	for block := 1; block <= most && err == nil; block++ {
		i := slices.IndexFunc(blocks, func(b analysis.VersionBlock) bool { return b.Block == block })
		if i < 0 {
			i = len(blocks)
			blocks = append(blocks, analysis.VersionBlock{Block: block})
		}

		err = a.measureBlock(ctx, id, o, &blocks[i])
		seen := block == comparison.VersionBlocks && err == nil && analysis.ChangesSeen(blocks)
		if seen {
			a.note("all blocks show a change: %d more repeat the measurement", comparison.VersionBlocks)
			most += comparison.VersionBlocks
		}
	}

	if err != nil {
		err = check.WithHint(err, "the same command with --resume "+id+" continues")
	}

	slices.SortFunc(blocks, func(a, b analysis.VersionBlock) int { return a.Block - b.Block })
	complete := slices.DeleteFunc(blocks, func(b analysis.VersionBlock) bool {
		return b.Old == nil || b.New == nil
	})
	if len(complete) == 0 {
		return nil, nil, err
	}

	return analysis.CompareVersions(o.Versions[0].Name, o.Versions[1].Name, complete),
		analysis.VersionLabels(complete), err
}

// measureBlock makes the runs that a block lacks.
func (a *App) measureBlock(ctx context.Context, id string, o UpgradeOptions, b *analysis.VersionBlock) error {
	source := fnv.New64a()
	fmt.Fprint(source, id, b.Block)
	random := rand.New(rand.NewPCG(source.Sum64(), 0))
	seed := random.Uint32()
	for _, side := range random.Perm(len(o.Versions)) {
		into := []**analysis.Document{&b.Old, &b.New}[side]
		if *into != nil {
			continue
		}

		v := o.Versions[side]
		a.note("block %d: %s", b.Block, v.Name)
		pl := o.Plans[side].WithSeed(uint64(seed))
		x := again{App: a, on: o.On}
		head := x.head(pl)
		head.Image, head.OwnKernel = v.Image, v.Kernel
		head.Series = &record.Series{ID: id, Version: v.Name, Block: b.Block}
		result, err := a.Run(ctx, pl, head, RunOptions{})
		if err != nil {
			return fmt.Errorf("block %d, %s: %w", b.Block, v.Name, err)
		}

		*into = result.Document
	}

	return nil
}

// measured reads the blocks of earlier measurements that are whole. Half a block is measured again, because
// its versions would not have been measured one after the other.
func (a *App) measured(ctx context.Context, id string, o UpgradeOptions) (out []analysis.VersionBlock,
	err error) {
	if o.ID == "" {
		return nil, nil
	}

	heads, err := a.Dirs.Runs(ctx)
	if err != nil {
		return nil, err
	}

	for _, h := range heads { // the newest first, which count
		if h.Damaged != "" || h.Status != record.RunDone {
			continue
		}

		run, err := a.Dirs.head(ctx, h.ID)
		if err != nil {
			return nil, err
		}

		if run.Series == nil || run.Series.ID != id {
			continue
		}

		s := run.Series
		side := slices.IndexFunc(o.Versions[:], func(v RouterVersion) bool { return v.Name == s.Version })
		if side < 0 || !reflect.DeepEqual(run.Machines, o.On.Machines) ||
			!sameProcedure(run.Design, o.Plans[side].Design) {
			return nil, Usage("give the same versions, plan and lab as before",
				"continue %s: run %s measured something else, version %s", id, run.ID, s.Version)
		}

		i := slices.IndexFunc(out, func(b analysis.VersionBlock) bool { return b.Block == s.Block })
		if i < 0 {
			i = len(out)
			out = append(out, analysis.VersionBlock{Block: s.Block})
		}

		into := []**analysis.Document{&out[i].Old, &out[i].New}[side]
		if *into == nil {
			if *into, err = a.Dirs.Document(ctx, run.ID); err != nil {
				return nil, err
			}
		}
	}

	half := func(b analysis.VersionBlock) bool { return b.Old == nil || b.New == nil }
	return slices.DeleteFunc(out, half), nil
}

// sameProcedure reports whether two designs measure the same in the same way, except for the order.
func sameProcedure(a, b record.Design) bool {
	a.Method.Seed, b.Method.Seed = 0, 0
	return reflect.DeepEqual(a.Method, b.Method) && reflect.DeepEqual(a.Factors, b.Factors)
}
