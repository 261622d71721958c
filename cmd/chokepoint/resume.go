package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe"
)

type resumeOptions struct {
	attach, report string
	force          bool
	acceptNew      bool
	other          otherEnd
}

func newResumeCommand(p *program) *cobra.Command {
	var o resumeOptions
	cmd := &cobra.Command{
		Use: "resume [RUN] [--attach LAB] [--peer HOST] [--accept-new] [--force] [--report FILE] " +
			"[--json] [--quiet]",
		Short: "Continue a run that was killed or interrupted",
		Long: "Run the trials that a killed or interrupted run has not finished, in the same\n" +
			"order; failed ones are tried again. Without RUN it is the latest run that did not\n" +
			"come to its end. What a killed run has left behind is put back first.\n\n" +
			"If the program, the kernel or what the lab stands on is another than before, resume\n" +
			"refuses, because the numbers would not compare; --force goes on and marks the run.\n" +
			"A run that used a lab of lab up goes on in that one, or in the one that --attach\n" +
			"names. A run with --peer needs the code that the peer shows now, and the same\n" +
			"path: addresses, routers, NAT and MTU.",
		Args: optionalArg, ValidArgsFunction: completeRuns(p, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := htmlFile(o.report); err != nil {
				return err
			}
			return resume(cmd.Context(), append(args, "")[0], o, p)
		},
	}
	cmd.Flags().BoolVar(&o.force, "force", false,
		"go on with another program, kernel, machine or lab, and mark the run")
	cmd.Flags().StringVar(&o.attach, "attach", "", "use the `LAB` that lab up has made")
	cmd.Flags().BoolVar(&o.acceptNew, acceptNew, false, "trust and remember the host key of a machine that "+
		"is not known, whatever the run was begun with")
	o.other.addFlags(cmd.Flags(), "the peer of the run is at `HOST` now")
	addRunOutput(cmd, &o.report)
	return cmd
}

// refusedError says why a run is not resumed: it stays as it is.
type refusedError struct{ text, hint string }

func (e *refusedError) Error() string { return e.text }
func (e *refusedError) Hint() string  { return e.hint }

func refuse(run record.Run, hint, format string, args ...any) error {
	return &refusedError{fmt.Sprintf("resume run %s: ", run.ID) + fmt.Sprintf(format, args...), hint}
}

const compares = "its numbers would not compare with the earlier ones; --force goes on and marks the run"

func resume(ctx context.Context, name string, o resumeOptions, p *program) error {
	if name == "" {
		var err error
		if name, err = lastCutShort(ctx, p); err != nil {
			return err
		}
	}
	run, err := loadHead(ctx, p.dirs, name)
	if err != nil {
		return err
	}
	if o.other, err = o.other.of(run); err != nil {
		return err
	}
	if run.Status == record.RunRunning {
		return refuse(run, "wait for it, or stop it with Ctrl-C", "it is still running")
	}
	if len(run.ImportedFrom) > 0 {
		return refuse(run, "chokepoint run measures here", "it was imported: other programs measured it")
	}
	x := &execution{p: p, plan: plan.New(run.Design), before: &run, run: run, force: o.force,
		attach: cmp.Or(o.attach, run.Attached), reportPath: o.report}
	switch {
	case run.Machines != nil:
		machines := *run.Machines
		machines.AcceptNew = o.acceptNew
		x.run.Machines = &machines
	case o.acceptNew:
		return &usageError{"--accept-new: the run has no machines", "leave it out"}
	}
	if x.attach != "" {
		if _, err := lab.Standing(labsDir(p.dirs), x.attach); err != nil {
			return refuse(run, "make one like it with lab up, and name it: chokepoint resume "+run.ID+
				" --attach LAB", "%v", err)
		}
	}
	if changes := changed(run); len(changes) > 0 && !o.force {
		return refuse(run, compares, "%s", strings.Join(changes, " and "))
	}
	if err := putBack(ctx, run, p); err != nil {
		return err
	}
	if o.other.peer != "" {
		if x.peer, err = o.other.lab(ctx, run.ID, p); err != nil {
			return err
		}
	}
	x.run.Status, x.run.Reason, x.run.Peer = record.RunRunning, "", o.other.peer
	// What is found there now is compared with what was.
	x.run.Topologies, x.run.Nodes, x.run.Environments, x.run.LabNote = nil, nil, nil, ""
	err = x.whole(ctx)
	if errors.Is(err, fs.ErrExist) && x.journal == nil {
		return refuse(run, "wait for it", "somebody else has begun to resume it")
	}
	return err
}

// loadHead reads a run without its trials; name is RUN as typed.
func loadHead(ctx context.Context, d dirs, name string) (run record.Run, err error) {
	err = withRun(ctx, d, name, func(_ *store.Store, r record.Run) error { run = r; return nil })
	return run, err
}

// done are the trials of a run that is resumed, read now that nobody else can go on with it.
func (x *execution) done(ctx context.Context) (trials []record.Trial, err error) {
	if x.before == nil {
		return nil, nil
	}
	now, err := x.store.Find(ctx, x.run.ID)
	if err != nil {
		return nil, err
	}
	if reckon(nil, now.ID, &now.Status); now.Status != x.before.Status || !now.Ended.Equal(x.before.Ended) {
		return nil, refuse(*x.before, "resume it again if it is not whole", "somebody else has resumed it "+
			"meanwhile")
	}
	for t, err := range x.store.Each(ctx, x.run.ID) {
		if err != nil {
			return nil, err
		}
		trials = append(trials, t.Light())
	}
	return trials, nil
}

// lastCutShort is the newest run that did not come to its end and can be read. It says which one that is, and
// of killed ones after it that have nothing to resume.
func lastCutShort(ctx context.Context, p *program) (string, error) {
	runs, err := storedRuns(ctx, p.dirs)
	stored := map[string]bool{}
	for _, r := range runs {
		stored[r.ID] = true
	}
	for _, r := range runs {
		if !slices.Contains([]string{record.RunKilled, record.RunInterrupted, record.RunFailed}, r.Status) {
			continue
		}
		if _, err := loadHead(ctx, p.dirs, r.ID); err != nil || r.Damaged != "" {
			p.note("%s is passed over: it is damaged", shownID(r.ID))
			continue
		}
		p.sayUnstored(r.ID, stored)
		p.note("going on with run %s of plan %s, started %s", r.ID, r.Plan,
			r.Started.Local().Format("2006-01-02 15:04"))
		return r.ID, nil
	}
	p.sayUnstored("", stored)
	if err == nil {
		err = check.WithHint(errors.New("resume: no run was cut short"),
			"name one to try its failed trials again; chokepoint list shows the runs")
	}
	return "", err
}

// runIDs are the ids of runs among owners of journals; a check of labs has one, too.
var runIDs = regexp.MustCompile(`^[0-9]{8}-[0-9]{6}-[0-9a-f]{4}$`)

// sayUnstored tells of runs after the one with that id that were killed before anything of them was stored.
func (p *program) sayUnstored(after string, stored map[string]bool) {
	stale, _, _ := journal.FindStale(journalDir(p.dirs), func(owner string) bool {
		return runIDs.MatchString(owner) && owner > after && !stored[owner]
	})
	for _, s := range stale {
		p.note("run %s was killed before anything of it was stored: there is nothing to resume; chokepoint "+
			"lab restore clears it away", s.Owner)
		_ = s.Release() // nothing was written
	}
}

// putBack undoes what the run itself has left when it was killed.
func putBack(ctx context.Context, run record.Run, p *program) error {
	r, err := lab.RestoreOwner(ctx, run.ID, journalDir(p.dirs), p.agentProgram, labsDirs(p.dirs)...)
	for _, text := range r.Undone {
		p.note("%s", text)
	}
	switch {
	case err != nil:
		return dirty(fmt.Errorf("resume run %s: what it has left was not put back: %w", run.ID, err))
	case len(r.Held) > 0:
		return refuse(run, "resume when that run has ended",
			"it has left changes in lab %s, which another run is using", strings.Join(r.Held, " and "))
	}
	return nil
}

// changed lists what would make the new trials differ from the old ones and is known at once.
func changed(run record.Run) []string {
	var out []string
	if h := binaryHash(); run.BinaryHash != h {
		out = append(out, fmt.Sprintf("another build of the program (was %s, is %s)", short(run.BinaryHash),
			short(h)))
	}
	if k := probe.KernelRelease(); run.Kernel != k {
		out = append(out, fmt.Sprintf("another kernel (was %s, is %s)", run.Kernel, k))
	}
	return out
}

func short(hash string) string { return hash[:min(12, len(hash))] }

// goOn refuses a resumed run whose lab is not what it was, or marks the run, and stores that it goes on.
func (x *execution) goOn(ctx context.Context) error {
	now := x.campaign.Run
	bed := otherBed(x.before, &now)
	if l := x.campaign.Lab(); l != nil {
		is, err := otherVersion(ctx, l)
		if err != nil {
			return err
		}
		bed = append(bed, otherPeerVersion(x.before, is)...)
	}
	if len(bed) > 0 && !x.force {
		return refuse(*x.before, compares, "it would stand on something else: %s", strings.Join(bed, "; "))
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
		return x.store.EndRun(ctx, x.run.ID, record.RunRunning, "resumed", time.Now().UTC())
	})
}

// learnt is what there is to say, of a run that goes on after so many trials, that it did not say before; and
// what each of its further trials is marked with.
func learnt(was, is *record.Run, changes []string, done int) (note store.Note, mark []record.Caveat) {
	note.Skipped = is.Skipped[len(was.Skipped):]
	for _, c := range is.Caveats {
		if !slices.Contains(was.Caveats, c) {
			note.Caveats = append(note.Caveats, c)
		}
	}
	if len(changes) > 0 {
		what := strings.Join(changes, " and ")
		note.Caveats = append(note.Caveats, record.Caveat{Kind: "resumed-changed",
			Text: fmt.Sprintf("resumed after %d trials with %s", done, what)})
		mark = []record.Caveat{{Kind: "after-change", Text: "made after the run was resumed with " + what}}
	}
	return note, mark
}

// otherPeerVersion says in what the peer's version is not what it was; "" is ours.
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

// pathFacts are what must be the same of a path between two machines.
var pathFacts = []string{"near", "far", "nat", "mtu", "route"}

// standsOn reports whether a run stands on a fact of a node's environment.
func standsOn(name string) bool {
	if path, what, _ := strings.Cut(name, ":"); strings.HasPrefix(path, "path_ipv") {
		return slices.Contains(pathFacts, what)
	}
	prefix := (name + "_")[:strings.IndexAny(name+"_", ":_")+1]
	return slices.Contains(bedFacts, name) || slices.Contains(bedFacts, prefix)
}

// bedFacts are the facts of a node's environment, or how they begin, that a run stands on.
var bedFacts = []string{"cpu_model", "cpu_threads", "cpu_online", "cpu_smt", "kernel", "machine", "product",
	"hypervisor", "governor", "boot:", "mitigation:", "guest_"}

// otherBed lists in what the labs that a run stood on differ from those that are up now, of the nodes that
// both have.
func otherBed(was, is *record.Run) (out []string) {
	differ := func(what, was, is string) {
		if was != is {
			out = append(out, fmt.Sprintf("%s was %s, is %s", what, cmp.Or(was, "none"), cmp.Or(is, "none")))
		}
	}
	differ("kind of lab", was.Lab, is.Lab)
	if was.Peer != "" { // older runs do not say
		before, _ := otherEnd{peer: was.Peer}.address()
		now, _ := otherEnd{peer: is.Peer}.address()
		differ("peer", before, now)
	}
	differ("queues of each virtual link", fmt.Sprint(max(was.Queues, 1)), fmt.Sprint(max(is.Queues, 1)))
	differ("driver of the routers", was.Driver, is.Driver)
	for _, n := range is.Nodes {
		same := func(o record.NodeFacts) bool { return o.Name == n.Name }
		if i := slices.IndexFunc(was.Nodes, same); i >= 0 {
			o := was.Nodes[i]
			differ("what CPUs "+n.Name+" has", o.CPUs, n.CPUs)
			differ("by what "+n.Name+" is driven", o.Driven, n.Driven)
		}
	}
	changing := slices.ContainsFunc(was.Design.Cells, factor.Firmware.In) // the router's, between trials
	for _, e := range is.Environments {
		i := slices.IndexFunc(was.Environments, func(o record.Environment) bool { return o.Node == e.Node })
		if i < 0 {
			continue
		}
		all := map[string]string{}
		maps.Copy(all, was.Environments[i].Facts)
		maps.Copy(all, e.Facts)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			before, now := was.Environments[i].Facts[name], e.Facts[name]
			untold := strings.HasSuffix(name, ":nat") && (before == "" || now == "") // by that connection
			own := changing && e.Node == is.Tested().Name && !strings.HasPrefix(name, "path_")
			if standsOn(name) && !untold && !own {
				differ(name+" of "+e.Node, before, now)
			}
		}
	}
	return out
}
