package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/labgrid"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Restored describes what Restore has done.
type Restored struct {
	Undone []string `json:"undone"` // descriptions of the changes that were undone
	Living []string `json:"living"` // owners that are running, and whose labs were therefore left alone
	Held   []string `json:"held"`   // labs with settings of killed runs, left alone because they are in use
}

// Program returns the path of the agent's executable for an architecture.
type Program func(ctx context.Context, arch string) (path string, err error)

// Restore undoes the changes of owners that are no longer running: it takes down their labs, and restores
// their settings in detached labs and on real machines. It does not affect labs of running owners, and does
// not take down detached labs. It keeps journals that are damaged or contain changes that could not be
// undone. If owner is not "", Restore considers only this owner. labDirs lists the directories in which this
// user's labs are created now, or may have been created before. agents provides the agent for real machines.
func Restore(ctx context.Context, journalDir, owner string, agents Program, labDirs ...string) (out Restored,
	err error) {
	lock, err := journal.Lock(ctx, journalDir)
	if lock != nil {
		defer lock.Close()
		err = journal.Sweep(journalDir)
	}

	var stale []*journal.Stale
	swept := labDirs[:1:1] // directories to sweep
	if err == nil {
		stale, out.Living, err = journal.FindStale(journalDir,
			func(name string) bool { return owner == "" || name == owner })
	}

	for _, s := range stale {
		labDir := cmp.Or(s.Labs, labDirs[0])
		if s.Rebooted { // after a reboot, no lab is up in any directory
			labDir = labDirs[0]
		}

		if !slices.Contains(labDirs, labDir) {
			err = errors.Join(err, outOfReach(s), s.Release())
			continue
		}

		err = errors.Join(err, out.restore(ctx, labDir, agents, s))
		if !slices.Contains(swept, labDir) {
			swept = append(swept, labDir)
		}
	}

	for _, labDir := range swept {
		text, sweepErr := sweep(labDir)
		out.Undone, err = append(out.Undone, text...), errors.Join(err, sweepErr)
	}

	if err != nil {
		return out, dirtied("restore", err)
	}

	return out, nil
}

// outOfReach returns the error for an owner whose labs are in a directory that is not in labDirs. This
// program must not use a directory only because a journal contains it.
func outOfReach(s *journal.Stale) error {
	err := fmt.Errorf("owner %s: its labs are in %q, which is not where this user's are now", s.Owner, s.Labs)
	hint := "restore from where it was started, a login or a job"
	if dir, ok := strings.CutSuffix(s.Labs, "/chokepoint/labs"); ok {
		hint = "restore with XDG_RUNTIME_DIR=" + host.ShellWord(check.Plain(dir))
	}

	return check.WithHint(err, hint)
}

// restore undoes the entries of one journal. It records at once that an entry was undone, so that a later
// attempt does not revert changes that others have made since. If it has undone all entries, it ignores
// errors in recording this, because it removes the journal.
func (r *Restored) restore(ctx context.Context, labDir string, agents Program, s *journal.Stale) (err error) {
	machines := remotes{labDir, agents, s, map[string]*Lab{}}
	defer func() { err = errors.Join(err, machines.close(ctx)) }()
	// Undo settings first, then dismiss guards, and finally remove the locations of the machines.
	// A place is released last, and only if all settings have been undone, because others may use its
	// machines then.
	order := map[string]int{journal.KindGuard: 1, journal.KindMachines: 2, journal.KindPlace: 3}
	slices.SortStableFunc(s.Entries, func(a, b journal.Entry) int {
		return cmp.Compare(order[a.Kind], order[b.Kind])
	})
	type site struct{ lab, node string }
	failed := false
	guarded := map[site]bool{} // nodes with guards that may still have settings to undo
	var noteErr error
	for _, e := range s.Entries {
		text := ""
		undoErr := error(nil)
		switch {
		case e.Kind != journal.KindLab && owns(s, e.Lab) && e.Node != HostNode, // the guard ends with its lab
			e.Kind == journal.KindMachines && failed, // the next attempt needs the locations
			e.Kind == journal.KindGuard && guarded[site{e.Lab, e.Node}]:
			continue
		case e.Kind == journal.KindPlace && failed:
			err = errors.Join(err, check.WithHint(fmt.Errorf("owner %s: the labgrid place that %s holds "+
				"stays acquired, because not everything could be undone", s.Owner, e.Holder),
				"restore again; or, to release it all the same: labgrid-client -p PLACE release"))
			continue
		case e.Kind == journal.KindMachines: // all settings on the machines have been undone
			undoErr = os.RemoveAll(filepath.Join(labDir, e.Lab))
		case e.Kind == journal.KindGuard:
			undoErr = machines.dismiss(ctx, e)
		case e.Kind == journal.KindPlace:
			text, undoErr = labgrid.Restore(ctx, host.Local(), e)
		case machines.have(e.Lab):
			text, undoErr = machines.putBack(ctx, e)
		default:
			text, undoErr = undoEntry(ctx, labDir, e, s.Rebooted)
		}

		if text != "" {
			r.Undone = append(r.Undone, text)
		}

		if undoErr == nil {
			noteErr = errors.Join(noteErr, s.Done(e.Seq))
			continue
		}

		failed = true
		if !errors.Is(undoErr, errOthers) {
			guarded[site{e.Lab, e.Node}] = true
		} else {
			undoErr = check.WithHint(undoErr, "put it back by hand, then restore again; or keep it as it "+
				"is, and once nothing else is left to undo, remove "+host.ShellWord(s.Path()))
		}

		if !errors.Is(undoErr, errHeld) {
			err = errors.Join(err, fmt.Errorf("owner %s: %w", s.Owner, undoErr))
		} else if !slices.Contains(r.Held, e.Lab) {
			r.Held = append(r.Held, e.Lab)
		}
	}

	if failed {
		return errors.Join(err, noteErr, s.Release())
	}

	return s.Remove()
}

// owns reports whether the lab was created by the owner of the journal.
func owns(s *journal.Stale, id string) bool {
	return slices.ContainsFunc(s.Entries,
		func(e journal.Entry) bool { return e.Kind == journal.KindLab && e.Lab == id })
}

// undoEntry undoes one entry. It returns a description of what it has undone, or an error.
func undoEntry(ctx context.Context, labDir string, e journal.Entry, rebooted bool) (text string, err error) {
	defer func() {
		if err != nil {
			text = ""
		}
	}()
	if e.Kind == journal.KindLab {
		i := Info{Local: Local{ID: e.Lab}, Pid: e.Pid, Born: e.Born}
		if rebooted {
			i.Pid = 0 // another process may have that PID by now
		}
		return "took down lab " + e.Lab, Down(labDir, i)
	}

	what := fmt.Sprintf("%s=%s on %s of lab %s", e.Knob, e.Before, e.Node, e.Lab)
	i, err := living(labDir, e.Lab)
	switch {
	case err != nil:
		return "", err
	case rebooted:
		return "forgot " + what + ": the machine has started anew", nil
	case i != nil: // the lab is running; lockLab fails if a run is using it
		lock, err := lockLab(i.dir(), e.Lab)
		if err != nil {
			return "", err
		}
		defer lock.Close()
		return "put back " + what, i.putBack(ctx, e)
	case e.Node == HostNode: // the lab is gone, but the host is not
		return "put back " + what, Local{ID: e.Lab, Dir: labDir}.putBack(ctx, e)
	}

	return "forgot " + what + ": the lab is gone", nil
}

// putBack applies the previous state through a new agent.
func (o Local) putBack(ctx context.Context, e journal.Entry) error {
	known := slices.ContainsFunc(o.Topology.Nodes, func(n record.TopoNode) bool { return n.Name == e.Node })
	if !known && e.Node != HostNode {
		return fmt.Errorf("put back %s: lab %s has no node %s", e.Knob, o.ID, e.Node)
	}

	t, err := turnBack(e)
	if err != nil {
		return err
	}

	wanted := ""
	if e.Node == HostNode { // the agent of the host runs in the namespaces of this machine
		wanted = o.dir()
		if !slices.ContainsFunc(knob.All(), func(k knob.Knob) bool {
			return k.Name() == e.Knob && k.Factor().Placed&factor.OnHost != 0
		}) {
			return fmt.Errorf("put back %s on %s: the machine that carries a lab is not set by it", e.Knob,
				e.Node)
		}
	}

	p := t.Place
	if p.Node != e.Node || p.Lab != wanted || e.Node == HostNode && p.Port != "" {
		return fmt.Errorf("put back %s on %s: its place is not in lab %s", e.Knob, e.Node, o.ID)
	}

	n, err := o.dial(ctx, e.Node)
	if err != nil {
		return err
	}
	defer n.close()
	by := driverOf(n)
	if by != e.Driver {
		return fmt.Errorf("put back %s on %s: it was set through driver %q, the node has %q", e.Knob, e.Node,
			e.Driver, by)
	}

	if n.HasDriver() {
		return n.Driver.Apply(ctx, n.Host, record.Setting{
			Knob:  e.Knob,
			Node:  e.Node,
			Port:  t.Place.Port,
			Value: e.Before,
		})
	}

	return n.Agent.Invoke(ctx, host.Verb(host.FamilyKnob, e.Knob), t, nil)
}

// turnBack returns the request that restores a setting.
func turnBack(e journal.Entry) (agent.KnobRequest, error) {
	t := agent.KnobRequest{Want: knob.State(e.Before), Restore: true}
	d := json.NewDecoder(bytes.NewReader(e.Place))
	d.DisallowUnknownFields()
	if err := d.Decode(&t.Place); err != nil {
		return t, fmt.Errorf("read place of %s: %w", e.Knob, err)
	}

	return t, nil
}

// sweep removes the directories of labs that ended with their owners, or that were killed before they were
// journalled. It skips locked directories, which belong to labs that are starting or whose owners are
// running.
func sweep(labDir string) (out []string, err error) {
	if isHolder(1) { // this process runs in a node of a lab, where holders are not visible
		return nil, nil
	}

	entries, err := os.ReadDir(labDir)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return nil, err
	}

	for _, e := range entries {
		if !e.IsDir() || !journal.ValidID(e.Name()) {
			continue // not the directory of a lab
		}

		swept, err := sweepOne(labDir, e.Name())
		if err != nil {
			return out, err
		}

		if swept {
			out = append(out, "removed the directory of lab "+e.Name())
		}
	}

	return out, nil
}

func sweepOne(labDir, id string) (swept bool, err error) {
	dir := filepath.Join(labDir, id)
	held, err := holdDir(dir, unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
		return false, nil
	}

	if err != nil {
		return false, err
	}
	defer held.Close()
	i, err := living(labDir, id) // checked under the lock, which keeps the state from changing
	if err != nil || i != nil {
		return false, err
	}

	return true, os.RemoveAll(dir)
}
