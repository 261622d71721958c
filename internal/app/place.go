package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/labgrid"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// bootPause is the time between two attempts to reach a board that is booting.
const bootPause = time.Second

// placeTags maps the tags of a place to the fields that they set. A field that the lab file sets keeps its
// value.
func placeTags(m *record.Machines) map[string]*string {
	return map[string]*string{
		"cp.client":   &m.Client.At,
		"cp.router":   &m.Router.At,
		"cp.server":   &m.Server.At,
		"cp.lan-port": &m.Router.LAN,
		"cp.wan-port": &m.Router.WAN,
		"cp.mgmt":     &m.Router.Management,
	}
}

// placeWord matches words that may be passed to labgrid-client as the value of an option.
var placeWord = check.Pattern(`^[^-+\s][^\s]*$`)

// placeFilter matches a filter of a reservation.
var placeFilter = check.Pattern(`^[a-z][^=\s]*=[^=]*$`)

// wrongPlace implements WrongMachines for a place.
func wrongPlace(p record.Place, named func(key string) string) (key string, err error) {
	for key, value := range map[string]string{"name": p.Name, "coordinator": p.Coordinator, "proxy": p.Proxy,
		"state": p.State} {
		if value != "" && !placeWord().MatchString(value) {
			key = "place." + key
			return key, Usage("one word", "%s %q is not valid", named(key), value)
		}
	}

	for _, tag := range p.Tags {
		if !placeFilter().MatchString(tag) {
			return "place.tags", Usage("such as device=openwrt_one", "tag %q is not KEY=VALUE", tag)
		}
	}

	if p.Config == "" {
		return "", nil
	}

	f, err := host.OpenTrusted(p.Config)
	if err != nil {
		return "place.config", Usage(cmp.Or(check.HintOf(err), "name a labgrid environment file"), "%s: %v",
			named("place.config"), err)
	}

	return "", f.Close()
}

// placeUses describes what this machine does to use a place.
func placeUses(p record.Place) (uses []string) {
	use := "acquires labgrid's place " + p.Name
	if p.Name == "" {
		use = "acquires a labgrid place with " + strings.Join(p.Tags, " ")
	}

	if p.PowerBefore != "" {
		use += ", power " + p.PowerBefore
	}

	if p.State != "" {
		use += ", state " + p.State
	}

	if p.PowerAfter != "" {
		use += ", power " + p.PowerAfter + " at the end"
	}

	uses = append(uses, use)
	if p.Config != "" {
		uses = append(uses, "runs here, by labgrid-client: the drivers of "+p.Config)
	}

	return uses
}

// takePlace acquires the place of the machines, if there is one. It adds the values of the place's tags to m,
// and brings the router up. If it fails, it releases the place.
func (a *App) takePlace(ctx context.Context, id string, m *record.Machines, j *journal.Journal) (
	held *labgrid.Held, err error) {
	if m.Place == nil {
		return nil, nil
	}

	defer func() {
		if err != nil {
			_, unreleased := a.release(ctx, held)
			held, err = nil, errors.Join(err, unreleased)
		}
	}()
	held, err = labgrid.Take(ctx, host.Local(), j, id, *m.Place, a.noteText)
	if err != nil {
		return held, err
	}

	of := held.Place()
	a.note("place %s: %s", of.Name, held.Describe())
	all, err := ofPlace(*m, of, held.Tags)
	if err != nil {
		return held, err
	}

	*m = all
	if err := a.bringUp(ctx, id, held, *m); err != nil {
		return held, fmt.Errorf("bring up place %s: %w", of.Name, err)
	}

	return held, nil
}

// ofPlace returns the machines of a lab file. The tags of the place supply values that the lab file does not
// set.
func ofPlace(m record.Machines, p record.Place, tags []string) (record.Machines, error) {
	m.Place = nil
	for tag, into := range placeTags(&m) {
		for _, t := range tags {
			if key, value, _ := strings.Cut(t, "="); key == tag {
				*into = cmp.Or(*into, value)
			}
		}
	}

	for name, at := range map[string]string{"client": m.Client.At, "server": m.Server.At} {
		if at == "" {
			return m, Usage("labgrid-client -p "+host.ShellWord(p.Name)+" set-tags cp."+name+"=ssh://HOST",
				"the lab file has no %s, and place %s has no tag cp.%[1]s", name, p.Name)
		}
	}

	flash := m.Flash
	m.Flash = nil // already checked with the place
	if _, err := WrongMachines(m, KeyName); err != nil {
		return m, Usage(check.HintOf(err), "place %s with its tags: %v", p.Name, err)
	}

	m.Flash, m.Place = flash, &p
	return m, nil
}

// bringUp executes the power command and brings the board into the state that the lab file requires. It then
// waits until the router answers.
func (a *App) bringUp(ctx context.Context, id string, held *labgrid.Held, m record.Machines) error {
	commands := held.Before()
	if len(commands) == 0 {
		return nil
	}

	var console *labgrid.Console
	if m.Place.State == "" { // if there is a state, the labgrid strategy uses the console itself
		console = held.Listen(ctx)
	}

	var err error
	for _, words := range commands {
		a.note("labgrid-client %s", strings.Join(words, " "))
		if err = shown(ctx, held.Command("", words...), installTime, a.noteText); err != nil {
			break
		}
	}

	if err == nil && m.Router.At != "" {
		err = a.awaitRouter(ctx, id, m)
	}

	last := console.Close()
	if err != nil && len(last) > 0 {
		err = fmt.Errorf("%w; the last lines of its console: %s", err, strings.Join(last, " / "))
	}

	return err
}

// awaitRouter waits until the router of a place can be reached.
func (a *App) awaitRouter(ctx context.Context, id string, m record.Machines) error {
	within, cancel := context.WithTimeout(ctx, m.Place.Boot)
	defer cancel()
	m.Client, m.Server = record.Machine{}, record.Machine{}
	for {
		l, err := a.Remote(id+"-boot", m, nil).Reach(within)
		if err == nil {
			return l.Close(context.WithoutCancel(ctx))
		}

		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		// A router that is booting refuses connections, or does not answer.
		if host.Pause(within, bootPause) != nil {
			return fmt.Errorf("the router did not answer within %s: %w", m.Place.Boot, err)
		}
	}
}

// release releases a place, even if ctx has been cancelled. A second Ctrl-C ends the attempt. gone reports
// whether the place had already been lost.
func (a *App) release(ctx context.Context, held *labgrid.Held) (gone bool, err error) {
	if held == nil {
		return false, nil
	}

	after, stop := a.unhurried(context.WithoutCancel(ctx))
	defer stop()
	gone, err = held.Release(after)
	if gone {
		a.noteText(lostPlace(held))
	}

	return gone, Mark(lab.ErrDirty, err)
}

func lostPlace(held *labgrid.Held) string {
	return "place " + held.Place().Name + " was not acquired any more at the end: somebody released it, or " +
		"labgrid's coordinator was restarted; others may have used the machines"
}

// hold acquires the place of the run's machines, if there is one. The head of the run then contains the place
// and its machines, so that resuming the run uses the same ones.
func (x *execution) hold(ctx context.Context) (err error) {
	m := x.run.Machines
	if m == nil {
		return nil
	}

	if err := x.ShowCommands(*m, x.run.Meter); err != nil {
		return err
	}

	// Commands that make several runs share the description of the machines, and use one place for all runs.
	placed := m.Place != nil
	x.held, err = x.takePlace(ctx, x.run.ID, m, x.journal)
	if err == nil && placed && m.Router.At == "" {
		Peer{}.limit(&x.run.Design)
		x.plan = plan.New(x.run.Design)
	}

	return err
}

// releasePlace releases the place at the end of a run. If the place was lost during the run, the run gets a
// caveat.
func (x *execution) releasePlace(ctx context.Context) error {
	gone, err := x.release(ctx, x.held)
	if gone && x.began {
		caveat := record.Caveat{Kind: "place-lost", Text: lostPlace(x.held)}
		err = errors.Join(err, x.learnt(context.WithoutCancel(ctx), nil, []record.Caveat{caveat}))
	}
	return err
}
