package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Restored says what Restore did.
type Restored struct {
	Undone []string `json:"undone"` // in words
	Living []string `json:"living"` // owners that live: their labs were left alone
	Held   []string `json:"held"`   // labs in use that have settings of killed runs: left alone, too
}

// Restore finishes the undoing of owners that are gone: their labs are taken down, and settings that they
// left in detached labs are put back. It never touches a lab whose owner lives, nor a detached lab itself.
func Restore(ctx context.Context, journalDir, labDir string) (Restored, error) {
	stale, living, err := journal.FindStale(journalDir)
	out := Restored{Living: living}
	for _, s := range stale {
		failed := false
		for _, e := range s.Entries {
			if e.Kind == journal.KindSetting && owns(s, e.Lab) && e.Node != HostNode {
				continue // goes with its lab, which is taken down next
			}
			text, undoErr := undoEntry(ctx, labDir, e)
			if errors.Is(undoErr, errHeld) {
				failed = true
				if !slices.Contains(out.Held, e.Lab) {
					out.Held = append(out.Held, e.Lab)
				}
				continue
			}
			if undoErr != nil {
				err = errors.Join(err, fmt.Errorf("owner %s: %w", s.Owner, undoErr))
				failed = true
				continue
			}
			out.Undone = append(out.Undone, text)
		}
		if failed {
			err = errors.Join(err, s.Release())
			continue
		}
		err = errors.Join(err, s.Remove())
	}
	text, sweepErr := sweep(labDir)
	out.Undone = append(out.Undone, text...)
	if err = errors.Join(err, sweepErr); err != nil {
		return out, fmt.Errorf("restore: %w: %w", ErrDirty, err)
	}
	return out, nil
}

// owns reports whether the owner had made the lab itself.
func owns(s *journal.Stale, id string) bool {
	return slices.ContainsFunc(s.Entries, func(e journal.Entry) bool {
		return e.Kind == journal.KindLab &&
			e.Lab == id
	})
}

func undoEntry(ctx context.Context, labDir string, e journal.Entry) (string, error) {
	if e.Kind == journal.KindLab {
		return "took down lab " + e.Lab, Down(filepath.Dir(e.Dir), Info{ID: e.Lab, Pid: e.Pid, Born: e.Born})
	}
	what := fmt.Sprintf("%s=%s on %s of lab %s", e.Knob, e.Before, e.Node, e.Lab)
	labs, err := List(labDir)
	if err != nil {
		return "", err
	}
	for _, i := range labs {
		if i.ID == e.Lab && i.Alive() {
			return "put back " + what, putBack(ctx, i.site(labDir), e)
		}
	}
	if e.Node == HostNode { // what this machine was set to outlives the lab
		return "put back " + what, putBackOn(ctx, site{dir: filepath.Join(labDir, e.Lab)}, e)
	}
	return "forgot " + what + ": the lab is gone", nil
}

// putBack applies the state before through a fresh agent, unless a run is using the lab.
func putBack(ctx context.Context, at site, e journal.Entry) error {
	lock, err := lockLab(at.dir, e.Lab)
	if err != nil {
		return err
	}
	defer lock.Close()
	return putBackOn(ctx, at, e)
}

func putBackOn(ctx context.Context, at site, e journal.Entry) error {
	n, err := at.dial(e.Node)
	if err != nil {
		return err
	}
	defer n.close()
	t := agent.Turn{Want: knob.State(e.Before), Restore: true}
	if err := json.Unmarshal(e.Place, &t.Place); err != nil {
		return fmt.Errorf("read place of %s: %w", e.Knob, err)
	}
	if n.HasDriver() {
		return n.Driver.Apply(ctx, n.Host, record.Setting{Knob: e.Knob, Node: e.Node, Port: t.Place.Port,
			Value: e.Before})
	}
	return n.Agent.Invoke(ctx, host.Verb(host.FamilyKnob, e.Knob), t, nil)
}

// sweep removes the directories of labs that died with their owners, and of labs whose start was killed
// before it could be journalled. One that is starting, or whose owner lives, is held.
func sweep(labDir string) ([]string, error) {
	entries, err := os.ReadDir(labDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
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
	labs, err := List(labDir) // only now does it stay as it is
	if err != nil || slices.ContainsFunc(labs, func(i Info) bool { return i.ID == id && i.Alive() }) {
		return false, err
	}
	return true, os.RemoveAll(dir)
}
