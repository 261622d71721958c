package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// RouterVersion is a version of a router's software: the image or kernel that a virtual router boots, or a
// level of the factor firmware, which a command in the lab file installs on a real router.
type RouterVersion struct {
	Name     string
	Image    *record.DiskImage
	Kernel   *record.OwnKernel
	Firmware string
}

// UpgradeOptions configure Upgrade.
type UpgradeOptions struct {
	On       record.Run // head of a run in the lab to use
	Versions []RouterVersion
	Plans    []*plan.Plan // plan for each version; each block has one run of each plan
	ID       string       // id of the measurements to continue; "" means new ones
	Fresh    bool         // start new measurements with the id if none have it
	Build    string       // command that builds the versions; "" means that they exist
}

// names returns the names of the versions.
func (o UpgradeOptions) names() (out []string) {
	for _, v := range o.Versions {
		out = append(out, v.Name)
	}
	return out
}

// Upgrade compares later versions of a router with the first one. In each block, it measures all versions in
// random order, each in a separate run with a freshly booted router. If the first six blocks show that a
// version changed a result, six more blocks measure that version and the first one again. Upgrade may be
// interrupted at any time. Calling it again with the same options and the id of the measurements continues
// them.
//
// c has a comparison for each later version, which is nil if no block has measured both versions. If Upgrade
// fails, it returns the comparisons of what has been measured so far. labels maps the keys of the cells'
// factors to the cells' labels.
func (a *App) Upgrade(ctx context.Context, o UpgradeOptions) (c []*analysis.RunComparison,
	labels map[string]string, err error) {
	t, err := a.inTurn(ctx, o)
	if err != nil {
		return nil, nil, err
	}

	later := make([]int, len(o.Versions)-1)
	for i := range later {
		later[i] = i + 1
	}

	err = t.compared(ctx, later)
	return analysis.CompareVersions(o.names(), t.blocks), analysis.VersionLabels(t.blocks), err
}

// inTurn measures versions in turn. Its runs form one series.
type inTurn struct {
	*App
	UpgradeOptions
	blocks  []analysis.VersionBlock
	digest  string
	prepare func(ctx context.Context, version int) (RouterVersion, error) // nil means that the versions exist
	measure func(ctx context.Context, version int, pl *plan.Plan, s record.Series) (*analysis.Document, error)
}

// errUnprepared marks the error about a version that could not be prepared, so that nothing was measured.
var errUnprepared = errors.New("not prepared")

// inTurn starts new measurements or, if an id is given, continues the measurements with that id.
func (a *App) inTurn(ctx context.Context, o UpgradeOptions) (*inTurn, error) {
	t := &inTurn{App: a, UpgradeOptions: o, digest: o.digest()}
	if o.On.Machines != nil { // all runs share this copy, to which the first run adds its place
		m := *o.On.Machines
		t.On.Machines = &m
	}

	t.measure = t.measureOnce
	if o.ID == "" {
		t.ID = NewID()
	}

	if !o.Fresh {
		a.note("the same command with --resume %s continues these measurements", t.ID)
	}

	if o.ID == "" {
		return t, nil
	}

	return t, t.read(ctx)
}

// compared measures the first version and the others in as many blocks as a comparison needs.
func (t *inTurn) compared(ctx context.Context, others []int) error {
	for block := 1; block <= comparison.VersionBlocks; block++ {
		if err := t.measureBlock(ctx, block, append([]int{0}, others...)); err != nil {
			return err
		}
	}

	first := slices.DeleteFunc(slices.Clone(t.blocks), func(b analysis.VersionBlock) bool {
		return b.Block > comparison.VersionBlocks
	})
	changed := slices.DeleteFunc(slices.Clone(others), func(v int) bool {
		return !analysis.ChangesSeen(first, v)
	})
	if len(changed) == 0 {
		return nil
	}

	t.note("all blocks show a change: %d more repeat the measurement", comparison.VersionBlocks)
	for block := comparison.VersionBlocks + 1; block <= 2*comparison.VersionBlocks; block++ {
		if err := t.measureBlock(ctx, block, append([]int{0}, changed...)); err != nil {
			return err
		}
	}

	return nil
}

// block returns the block with the given number. It adds the block if it is missing.
func (t *inTurn) block(number int) *analysis.VersionBlock {
	i, found := slices.BinarySearchFunc(t.blocks, number, func(b analysis.VersionBlock, n int) int {
		return b.Block - n
	})
	if !found {
		runs := make([]*analysis.Document, len(t.Versions))
		t.blocks = slices.Insert(t.blocks, i, analysis.VersionBlock{Block: number, Runs: runs})
	}

	return &t.blocks[i]
}

// measureBlock measures versions in one block, in random order. If the block lacks one of the versions, all
// of them are measured again, because the versions of a block must be measured one after the other.
func (t *inTurn) measureBlock(ctx context.Context, number int, versions []int) error {
	b := t.block(number)
	if !slices.ContainsFunc(versions, func(v int) bool { return b.Runs[v] == nil }) {
		return nil
	}

	clear(b.Runs)
	for _, v := range versions {
		if t.prepare == nil {
			break
		}

		made, err := t.prepare(ctx, v)
		if err != nil {
			return fmt.Errorf("prepare %s: %w", t.Versions[v].Name, Mark(errUnprepared, err))
		}

		t.Versions[v] = made
	}

	source := fnv.New64a()
	fmt.Fprint(source, t.ID, number)
	random := rand.New(rand.NewPCG(source.Sum64(), 0))
	seed := random.Uint32()
	for _, i := range random.Perm(len(versions)) {
		v := t.Versions[versions[i]]
		t.note("block %d: %s", number, v.Name)
		pl := t.Plans[versions[i]].WithSeed(uint64(seed))
		place := record.Series{ID: t.ID, Version: v.Name, Block: number, Digest: t.digest}
		document, err := t.measure(ctx, versions[i], pl, place)
		if err != nil {
			return check.WithHint(fmt.Errorf("block %d, %s: %w", number, v.Name, err),
				"the same command with --resume "+t.ID+" continues")
		}

		b.Runs[versions[i]] = document
	}

	return nil
}

// measureOnce executes one run of a version.
func (t *inTurn) measureOnce(ctx context.Context, version int, pl *plan.Plan,
	s record.Series) (*analysis.Document, error) {
	head := t.NewRunOn(pl, t.On)
	head.Image, head.OwnKernel = t.Versions[version].Image, t.Versions[version].Kernel
	head.Series = &s
	result, err := t.Run(ctx, pl, head, RunOptions{})
	if err != nil {
		return nil, err
	}

	return result.Document, nil
}

// read reads the runs of the measurements to continue.
func (t *inTurn) read(ctx context.Context) error {
	heads, err := t.Dirs.Runs(ctx)
	if err != nil {
		return err
	}

	known := userfile.Exists(t.Dirs.BuildsDir(t.ID))
	for _, h := range heads { // newest first, so that the newest run of a version in a block counts
		if h.Damaged != "" {
			continue
		}

		run, err := t.Dirs.head(ctx, h.ID)
		if err != nil {
			return err
		}

		s := run.Series
		if s == nil || s.ID != t.ID {
			continue
		}

		known = true
		if h.Status != record.RunDone {
			continue
		}

		v := slices.Index(t.names(), s.Version)
		if v < 0 || s.Digest != t.digest || !sameProcedure(run.Design, t.Plans[v].Design) {
			return Usage("give the same versions, with the same files, plan and lab as before",
				"continue %s: run %s measured something else, version %s", t.ID, run.ID, s.Version)
		}

		if m := run.Machines; m != nil && m.Place != nil {
			t.On.Machines = m // so that all versions are measured on the same place
		}

		into := &t.block(s.Block).Runs[v]
		if *into == nil {
			if *into, err = t.Dirs.Document(ctx, run.ID); err != nil {
				return err
			}
		}
	}

	if !known && !t.Fresh {
		return Usage("chokepoint runs lists the runs; without --resume, new measurements begin",
			"continue %s: no run belongs to it", t.ID)
	}

	return nil
}

// digest returns a hash of the versions in order, of the lab, and of the names, sizes and modification times
// of the files that the versions boot.
func (o UpgradeOptions) digest() string {
	on := record.Run{
		RunHead:   record.RunHead{Device: o.On.Device, Lab: o.On.Lab, Meter: o.On.Meter},
		GuestSize: o.On.GuestSize,
		Queues:    o.On.Queues,
		Driver:    o.On.Driver,
		Machines:  o.On.Machines,
	}
	var files []string
	for _, v := range o.Versions {
		image, kernel := cmp.Or(v.Image, &record.DiskImage{}), cmp.Or(v.Kernel, &record.OwnKernel{})
		for _, name := range []string{image.File, kernel.File, kernel.Modules} {
			if info, err := os.Stat(name); err == nil {
				files = append(files, fmt.Sprint(name, info.Size(), info.ModTime().UnixNano()))
			}
		}
	}

	// Marshal cannot fail, because the values consist of strings and numbers.
	text, _ := json.Marshal([]any{on, o.Versions, files, o.Build})
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// sameProcedure reports whether two designs measure the same things in the same way. The order of the trials,
// which depends on the seed, may differ.
func sameProcedure(a, b record.Design) bool {
	a.Method.Seed, b.Method.Seed = 0, 0
	return reflect.DeepEqual(a.Method, b.Method) && reflect.DeepEqual(a.Factors, b.Factors)
}
