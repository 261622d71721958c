package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// ResumeOptions configure Resume.
type ResumeOptions struct {
	Attach, Report string // as in RunOptions; "" means the value that the run used
	Force          bool   // continue with another program, kernel or lab, and mark the run
	AcceptNew      bool   // accept the host key of an unknown machine
	Peer           Peer   // zero means the run's peer
}

// errRefused marks the error about a run that was not resumed. The run remains unchanged.
var errRefused = errors.New("not resumed")

func refuse(run record.Run, hint, format string, args ...any) error {
	return Mark(errRefused, Hinted(hint, "resume run %s: %s", run.ID, fmt.Sprintf(format, args...)))
}

const compares = "its numbers would not compare with the earlier ones; --force goes on and marks the run"

// Resume runs the trials that a killed or interrupted run has not finished, in the same order. It first
// undoes the changes that a killed run left behind. If name is empty, it resumes the latest run that was cut
// short.
func (a *App) Resume(ctx context.Context, name string, o ResumeOptions) (*Result, error) {
	if name == "" {
		var err error
		if name, err = a.lastCutShort(ctx); err != nil {
			return nil, err
		}
	}

	run, err := a.Dirs.head(ctx, name)
	if err != nil {
		return nil, err
	}

	if o.Peer, err = o.Peer.of(run); err != nil {
		return nil, err
	}

	if run.Status == record.RunRunning {
		return nil, refuse(run, "wait for it, or stop it with Ctrl-C", "it is still running")
	}

	if len(run.ImportedFrom) > 0 {
		return nil, refuse(run, "chokepoint run measures here", "it was imported: other programs measured it")
	}

	x := &execution{
		App:        a,
		plan:       plan.New(run.Design),
		before:     &run,
		run:        run,
		force:      o.Force,
		attach:     cmp.Or(o.Attach, run.Attached),
		reportPath: o.Report,
	}
	switch {
	case run.Machines != nil:
		machines := *run.Machines
		machines.AcceptNew = o.AcceptNew
		x.run.Machines = &machines
	case o.AcceptNew:
		return nil, Usage("leave it out", "--accept-new: the run has no machines")
	}

	if x.attach != "" {
		if _, err := lab.Standing(a.Dirs.Labs(), x.attach); err != nil {
			err = refuse(run, "make one like it with lab up, and name it: chokepoint resume "+run.ID+
				" --attach LAB", "%v", err)
			if o.Attach != "" { // a usage error, because the user chose the lab
				err = Mark(ErrUsage, err)
			}

			return nil, err
		}
	}

	changes := changed(run)
	if len(changes) > 0 && !o.Force {
		return nil, refuse(run, compares, "%s", strings.Join(changes, " and "))
	}

	if err := a.putBack(ctx, run); err != nil {
		return nil, err
	}

	if o.Peer.At != "" {
		if x.peer, err = a.pair(ctx, o.Peer, run.ID); err != nil {
			return nil, err
		}
	}

	x.run.Status = record.RunRunning
	x.run.Reason = ""
	x.run.Peer = o.Peer.At
	// These facts are determined again and compared with the recorded ones.
	x.run.Topologies = nil
	x.run.Nodes = nil
	x.run.Environments = nil
	x.run.LabNote = ""
	result, err := x.whole(ctx)
	_, alive := errors.AsType[*store.AliveError](err)
	if alive || errors.Is(err, fs.ErrExist) && x.journal == nil {
		return nil, refuse(run, "wait for it", "another program is resuming it")
	}

	return result, err
}

// head reads the head of a run. name is the argument that the user typed.
func (d Dirs) head(ctx context.Context, name string) (run record.Run, err error) {
	err = d.WithRun(ctx, name, func(_ *store.Store, r record.Run) error { run = r; return nil })
	return run, err
}

// done returns the stored trials of a resumed run. It returns an error if another process has resumed the run
// meanwhile.
func (x *execution) done(ctx context.Context) (trials []record.Trial, err error) {
	if x.before == nil {
		return nil, nil
	}

	now, err := x.store.Find(ctx, x.run.ID)
	if err != nil {
		return nil, err
	}

	if now.Status == record.RunRunning {
		now.Status = record.RunKilled // a killed run keeps the status running
	}

	if now.Status != x.before.Status || !now.Ended.Equal(x.before.Ended) {
		return nil, refuse(*x.before, "resume it again if it is not complete", "it was resumed meanwhile")
	}

	for t, err := range x.store.Each(ctx, x.run.ID) {
		if err != nil {
			return nil, err
		}

		trials = append(trials, t.Light())
	}

	return trials, nil
}

// lastCutShort returns the newest readable run that was cut short. It shows the user that run, and later runs
// that were killed before anything was stored.
func (a *App) lastCutShort(ctx context.Context) (string, error) {
	runs, err := a.Dirs.Runs(ctx)
	stored := map[string]bool{}
	for _, r := range runs {
		stored[r.ID] = true
	}

	for _, r := range runs {
		if !slices.Contains([]string{record.RunKilled, record.RunInterrupted, record.RunFailed}, r.Status) {
			continue
		}

		if _, err := a.Dirs.head(ctx, r.ID); err != nil || r.Damaged != "" {
			a.note("skipped %s: it is damaged", ShownID(r.ID))
			continue
		}

		a.reportUnstored(r.ID, stored)
		a.note("continuing run %s of plan %s, started %s", r.ID, r.Plan,
			r.Started.Local().Format("2006-01-02 15:04"))
		return r.ID, nil
	}

	a.reportUnstored("", stored)
	if err == nil {
		err = Hinted("name one to try its failed trials again; chokepoint list shows the runs",
			"resume: no run was cut short")
	}

	return "", err
}

// reportUnstored tells the user about runs that are newer than a given run and were killed before anything
// was stored.
func (a *App) reportUnstored(after string, stored map[string]bool) {
	// Other commands that make labs use ids with a prefix.
	stale, _, _ := journal.FindStale(a.Dirs.Journals(), func(owner string) bool {
		return idForm().MatchString(owner) && owner > after && !stored[owner]
	})
	for _, s := range stale {
		a.note("run %s was killed before anything of it was stored: there is nothing to resume; chokepoint "+
			"lab restore clears it away", s.Owner)
		_ = s.Release() // the error is ignored, because nothing was written
	}
}

// putBack undoes the changes that a killed run left behind.
func (a *App) putBack(ctx context.Context, run record.Run) error {
	r, err := lab.Restore(ctx, a.Dirs.Journals(), run.ID, a.AgentProgram, a.Dirs.AllLabs()...)
	for _, text := range r.Undone {
		a.noteText(text)
	}

	switch {
	case err != nil:
		return Dirty(fmt.Errorf("resume run %s: its changes were not undone: %w", run.ID, err))
	case len(r.Held) > 0:
		return refuse(run, "resume when that run has ended",
			"it has left changes in lab %s, which another run is using", strings.Join(r.Held, " and "))
	}

	return nil
}

// RestoreAll undoes the changes that killed runs left behind, as lab restore does.
func (a *App) RestoreAll(ctx context.Context) error {
	if err := Prepare(a.Dirs.Runtime, a.Dirs.State); err != nil {
		return err
	}
	defer a.Dirs.ClearRuntime()
	r, err := lab.Restore(ctx, a.Dirs.Journals(), "", a.AgentProgram, a.Dirs.AllLabs()...)
	for _, text := range r.Undone {
		a.noteText(text)
	}

	return Dirty(err)
}

// changed lists the differences that affect further trials and are known before the lab is up.
func changed(run record.Run) []string {
	var out []string
	h := binaryHash()
	if run.BinaryHash != h {
		out = append(out, fmt.Sprintf("another build of the program (was %s, is %s)", short(run.BinaryHash),
			short(h)))
	}

	k := probe.KernelRelease()
	if run.Kernel != k {
		out = append(out, fmt.Sprintf("another kernel (was %s, is %s)", run.Kernel, k))
	}

	return out
}

// goOn records that a run continues. If the lab of the run has changed, goOn returns an error or, with force,
// adds caveats.
func (x *execution) goOn(ctx context.Context) error {
	now := x.campaign.Run
	bed := otherBed(x.before, &now)
	l := x.campaign.Lab()
	if l != nil {
		is, err := otherVersion(ctx, l)
		if err != nil {
			return err
		}

		bed = append(bed, otherPeerVersion(x.before, is)...)
	}

	if len(bed) > 0 && !x.force {
		return refuse(*x.before, compares, "the lab is another: %s", strings.Join(bed, "; "))
	}

	changes := append(changed(*x.before), bed...)
	if now.Attached != x.before.Attached {
		changes = append(changes, fmt.Sprintf("another lab (was %s, is %s)",
			cmp.Or(x.before.Attached, "its own"), cmp.Or(now.Attached, "its own")))
	}

	note, mark := learnt(x.before, &now, changes, len(x.campaign.Done))
	x.campaign.Marks = mark
	if len(note.Skipped)+len(note.Caveats) > 0 {
		if err := x.addNote(ctx, x.run.ID, note); err != nil {
			return err
		}
	}

	return store.Patiently(ctx, settleTime, func() error {
		// Further trials change the results.
		if err := x.store.SetResults(ctx, x.run.ID, nil); err != nil {
			return err
		}
		return x.store.EndRun(ctx, x.run.ID, record.RunRunning, "resumed", time.Now().UTC())
	})
}

// learnt returns the skipped cells and caveats that a resumed run adds to its head, and the caveats of its
// further trials.
func learnt(was, is *record.Run, changes []string, done int) (note store.Note, mark []record.Caveat) {
	note.Skipped = is.Skipped[len(was.Skipped):]
	for _, c := range is.Caveats {
		if !slices.Contains(was.Caveats, c) {
			note.Caveats = append(note.Caveats, c)
		}
	}

	if len(changes) > 0 {
		what := strings.Join(changes, " and ")
		note.Caveats = append(note.Caveats, record.Caveat{
			Kind: "resumed-changed",
			Text: fmt.Sprintf("resumed after %d trials with %s", done, what),
		})
		mark = []record.Caveat{{Kind: "after-change", Text: "made after the run was resumed with " + what}}
	}

	return note, mark
}

// otherPeerVersion describes how the current version of the peer differs from the recorded one. An empty
// version means that the peer has this program's version.
func otherPeerVersion(run *record.Run, is string) []string {
	was := ""
	for _, c := range run.Caveats {
		if c.Kind == peerVersion {
			was, _, _ = strings.Cut(strings.TrimPrefix(c.Text, versionText), ", this is ")
		}
	}

	if was == is || was != "" && source(was) == source(is) {
		return nil
	}

	return []string{fmt.Sprintf("version of the peer was %s, is %s", cmp.Or(was, "ours"), cmp.Or(is, "ours"))}
}

// pathFacts lists the facts about a path between two machines that must not change.
var pathFacts = strings.Fields("near far nat mtu route")

// standsOn reports whether a resumed run requires a fact of a node to be unchanged.
func standsOn(name string) bool {
	path, what, _ := strings.Cut(name, ":")
	if strings.HasPrefix(path, "path_ipv") {
		return slices.Contains(pathFacts, what)
	}

	prefix := (name + "_")[:strings.IndexAny(name+"_", ":_")+1]
	return slices.Contains(bedFacts, name) || slices.Contains(bedFacts, prefix)
}

// bedFacts lists the facts of a node that must not change in a resumed run. Some are prefixes of names.
var bedFacts = strings.Fields("cpu_model cpu_threads cpu_online cpu_smt kernel machine product hypervisor " +
	"governor boot: mitigation: guest_")

// otherBed describes the differences between the labs of two runs, for the nodes that both labs have.
func otherBed(was, is *record.Run) (out []string) {
	differ := func(what, was, is string) {
		if was != is {
			out = append(out, fmt.Sprintf("%s was %s, is %s", what, cmp.Or(was, "none"), cmp.Or(is, "none")))
		}
	}
	differ("kind of lab", was.Lab, is.Lab)
	before, _ := Peer{At: was.Peer}.address()
	now, _ := Peer{At: is.Peer}.address()
	differ("peer", before, now)
	differ("queues of each virtual link", fmt.Sprint(max(was.Queues, 1)), fmt.Sprint(max(is.Queues, 1)))
	differ("driver of the routers", was.Driver, is.Driver)
	for _, n := range is.Nodes {
		same := func(o record.NodeFacts) bool { return o.Name == n.Name }
		i := slices.IndexFunc(was.Nodes, same)
		if i >= 0 {
			o := was.Nodes[i]
			differ("what CPUs "+n.Name+" has", o.CPUs, n.CPUs)
			differ("by what "+n.Name+" is driven", o.Driven, n.Driven)
		}
	}

	changing := slices.ContainsFunc(was.Design.Cells, factor.Firmware.In) // the router's firmware changes
	for _, e := range is.Environments {
		i := slices.IndexFunc(was.Environments, func(o record.Environment) bool { return o.Node == e.Node })
		if i < 0 {
			continue
		}

		all := map[string]string{}
		maps.Copy(all, was.Environments[i].Facts)
		maps.Copy(all, e.Facts)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			before := was.Environments[i].Facts[name]
			now := e.Facts[name]
			unknown := strings.HasSuffix(name, ":nat") && (before == "" || now == "") // in one of the runs
			own := changing && e.Node == is.Tested().Name && !strings.HasPrefix(name, "path_")
			if standsOn(name) && !unknown && !own {
				differ(name+" of "+e.Node, before, now)
			}
		}
	}

	return out
}

// ShownID quotes an id that is not plain text. The id of a damaged run may contain anything.
func ShownID(id string) string {
	q := strconv.Quote(id)
	if q != `"`+id+`"` {
		return q
	}
	return id
}
