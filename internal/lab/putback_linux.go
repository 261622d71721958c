package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// remotes provides labs of real machines, in order to undo the settings of an owner that is not running.
type remotes struct {
	dir    string
	agents Program
	of     *journal.Stale
	labs   map[string]*Lab // connected labs by name
}

// machines returns the machines of a lab, or nil if the lab has none.
func (o *remotes) machines(id string) *record.Machines {
	for _, e := range o.of.Entries {
		if e.Kind == journal.KindMachines && e.Lab == id {
			return e.Machines
		}
	}
	return nil
}

func (o *remotes) have(id string) bool { return o.machines(id) != nil }

// putBack restores the previous state of a setting on a real machine. Usually, the agent or guard on the
// machine has already restored it after the connection was lost, unless the agent or guard was killed. The
// returned text describes what was restored, even if putBack also returns an error.
func (o *remotes) putBack(ctx context.Context, e journal.Entry) (string, error) {
	at := fmt.Sprintf(" on %s (%s)", e.Node, o.machine(e).At)
	what := "put back " + e.Knob + at
	t, err := turnBack(e)
	if err != nil {
		return "", err
	}

	if t.Place.Node != e.Node || t.Place.Lab != "" || e.Node == HostNode {
		return "", fmt.Errorf("%s: its place is not in lab %s", what, e.Lab)
	}

	b := leftover{
		site: site{
			p:    t.Place,
			s:    record.Setting{Knob: e.Knob, Node: e.Node},
			want: knob.State(e.After),
		},
		e: e,
	}
	if b.k, _ = knobNamed(append(knob.All(), knob.TunnelEnd()), e.Knob); b.k == nil {
		return "", fmt.Errorf("%s: no such knob", what)
	}

	for _, x := range o.of.Entries {
		if x.Kind == e.Kind && x.Lab == e.Lab && x.Node == e.Node && x.Knob == e.Knob && x.Seq < e.Seq {
			b.earlier = append(b.earlier, x)
		}
	}

	text := ""
	ctx, cancel := host.Within(ctx, restoreTime)
	defer cancel()
	if b.n, err = o.node(ctx, e); err == nil && b.n.HasDriver() { // an agent makes this check by itself
		err = b.n.free(ctx, o.guards(e)...)
	}

	if err == nil {
		b.l = o.labs[e.Lab]
		text, err = b.putBack(ctx)
	}

	if text != "" {
		text += at
	}

	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}

	return text, err
}

// restoreTime is the time limit for restoring one setting, including the time to connect. Meanwhile, other
// restores wait for the lock.
const restoreTime = 3 * time.Minute

// guards returns the names of this owner's guards on the node of a setting. A guard is a process that
// restores settings.
func (o *remotes) guards(of journal.Entry) (names []string) {
	for _, e := range o.of.Entries {
		if e.Kind == journal.KindGuard && e.Lab == of.Lab && e.Node == of.Node {
			names = append(names, e.Guard)
		}
	}
	return names
}

// dismiss removes a guard after its settings were restored. Otherwise, the guard would later undo settings of
// other controllers.
func (o *remotes) dismiss(ctx context.Context, e journal.Entry) error {
	ctx, cancel := host.Within(ctx, restoreTime)
	defer cancel()
	n, err := o.node(ctx, e)
	if err == nil {
		n.guard = guard{name: e.Guard}
		err = n.dismiss(ctx, nil)
	}

	if err != nil {
		return fmt.Errorf("dismiss the guard of %s: %w", e.Node, err)
	}

	return nil
}

// node connects to the node of an entry through the agent or driver that made the setting.
func (o *remotes) node(ctx context.Context, e journal.Entry) (*Node, error) {
	if !o.have(e.Lab) {
		return nil, fmt.Errorf("it is not known where %s of lab %s is", e.Node, e.Lab)
	}

	l, err := o.lab(e.Lab)
	if err != nil {
		return nil, err
	}

	n, err := l.Node(ctx, e.Node)
	switch {
	case err != nil:
		return nil, err
	case !n.HasAgent() && !n.HasDriver():
		return nil, errors.New(n.Facts.Unreachable)
	case driverOf(n) != e.Driver:
		return nil, fmt.Errorf("it was set through driver %q, the node has %q", e.Driver, driverOf(n))
	}

	return n, nil
}

func (o *remotes) machine(e journal.Entry) record.Machine {
	r := Remote{Machines: *o.machines(e.Lab)}
	return r.machine(e.Node)
}

// lab returns a Lab that connects to its machines on first use. It controls the router with the driver that
// made the settings. It has no journal, because only changes that are already journalled are undone.
func (o *remotes) lab(id string) (*Lab, error) {
	if l := o.labs[id]; l != nil {
		return l, nil
	}

	if o.agents == nil {
		return nil, fmt.Errorf("reach the machines of lab %s again: no program to put there", id)
	}

	machines := *o.machines(id)
	i := slices.IndexFunc(o.of.Entries, func(e journal.Entry) bool {
		return e.Lab == id && e.Node == "router"
	})
	if i >= 0 {
		machines.Router.Driver = o.of.Entries[i].Driver
	}

	machines.Server.ISP, machines.Server.ISPPort = "", "" // a restore needs no provider
	machines.AcceptNew = false                            // applied only to the start of the run
	l, _, err := Remote{ID: id + "-restore", Machines: machines, Dir: o.dir, Program: o.agents}.begin()
	if err != nil {
		return nil, err
	}

	o.labs[id] = l
	return l, nil
}

func (o *remotes) close(ctx context.Context) (err error) {
	for _, l := range o.labs {
		err = errors.Join(err, l.Close(ctx))
	}
	return err
}

// errOthers reports that a setting has neither its previous state nor the state that the owner set. Someone
// else has changed the setting since, so it was not restored.
var errOthers = errors.New("somebody has changed it since, and it was left as it is")

// leftover is a setting that remains on a real machine after its owner has ended.
type leftover struct {
	site
	e journal.Entry
	// earlier contains the owner's earlier changes of the same knob on the node.
	earlier []journal.Entry
}

// These are the results of comparing the state of a device with known states.
const (
	stateBefore = iota // the state before this change or an earlier change of the owner
	stateSet           // the state after this change
	stateOther         // any other state
	states             // number of possible results above
)

// putBack compares the state of each device with the states before and after the owner's change. It restores
// only the devices that still have the state after the change.
func (b leftover) putBack(ctx context.Context) (text string, err error) {
	now, err := b.now(ctx, b.want)
	if err != nil {
		return "", err
	}

	held, err := b.each(string(now))
	if err != nil {
		return "", err
	}

	before, err := b.each(b.e.Before)
	if err != nil {
		return "", err
	}

	after, err := b.each(b.e.After)
	if err != nil {
		return "", err
	}

	var sorted [states][]string
	for _, dev := range b.devices() {
		is, err := b.compare(dev, held[dev], before[dev], after[dev])
		if err != nil {
			return "", err
		}

		sorted[is] = append(sorted[is], dev)
	}

	ours := sorted[stateSet]
	switch {
	case len(ours) == 0 && len(sorted[stateOther]) == 0:
		return "already as before: " + b.says(string(now)), nil
	case len(ours) == len(b.devices()):
		if err := b.put(ctx, knob.State(b.e.Before)); err != nil {
			return "", err
		}
		return "put back " + b.says(b.e.Before), nil
	}

	var done []string
	for _, dev := range ours {
		one := b.site
		one.p.Port = dev
		wrong := one.put(ctx, before[dev])
		if wrong != nil {
			err = errors.Join(err, wrong)
			continue
		}

		done = append(done, dev)
	}

	if len(done) > 0 {
		text = "put back " + b.says(b.e.Before) + " of " + strings.Join(done, " and ")
	}

	var changed error
	for _, dev := range sorted[stateOther] {
		changed = errors.Join(changed, b.differs(dev, held[dev], before[dev], after[dev]))
	}

	if err != nil && changed != nil {
		// This error does not wrap errOthers, because the restore of a device has failed and must be
		// repeated.
		return text, fmt.Errorf("%w\n%v", err, changed)
	}

	return text, cmp.Or(err, changed)
}

// says returns a state preceded by the name of the knob. The state of a knob family already contains the rest
// of the name.
func (b leftover) says(state string) string {
	if strings.HasSuffix(b.k.Name(), ":") {
		return b.k.Name() + check.Plain(state)
	}
	return b.k.Name() + "=" + check.Plain(state)
}

// compare reports which of the known states a device has.
func (b leftover) compare(dev string, held, before, after knob.State) (int, error) {
	switch {
	case held == before:
		return stateBefore, nil
	case held == after:
		return stateSet, nil
	case b.k.Same(before, held):
		return stateBefore, nil
	case b.k.Same(after, held):
		return stateSet, nil
	}

	// If the device has a state from before or after an earlier change, this change was already undone.
	for _, e := range b.earlier {
		for _, state := range []string{e.Before, e.After} {
			each, err := b.each(state)
			if err != nil {
				return 0, err
			}

			if held == each[dev] || each[dev] != "" && b.k.Same(each[dev], held) {
				return stateBefore, nil
			}
		}
	}

	return stateOther, nil
}

// devices returns the devices of the setting. For a setting of the node, the only element is "".
func (b leftover) devices() []string {
	switch {
	case !knob.OfPorts(b.k):
		return []string{""}
	case b.p.Port != "":
		return []string{b.p.Port}
	case len(b.p.Ports) > 0:
		return b.p.Ports
	}
	return []string{b.p.WAN}
}

func (b leftover) each(s string) (map[string]knob.State, error) {
	if !knob.OfPorts(b.k) {
		return map[string]knob.State{"": knob.State(s)}, nil
	}
	return knob.Each(knob.State(s), b.devices()), nil
}

// differs returns an error that describes how a state differs from the expected one, and how the user can
// restore the setting.
func (b leftover) differs(dev string, held, before, after knob.State) error {
	of := ""
	if dev != "" {
		of = " of " + check.Plain(dev)
	}

	return fmt.Errorf("%s%s is %s, was %s before the run, which made it %s: %w; by hand: %s",
		strings.TrimSuffix(b.k.Name(), ":"), of, check.Plain(string(held)), check.Plain(string(before)),
		check.Plain(string(after)), errOthers, b.byHand(dev, string(before)))
}

// byHand returns instructions for restoring a state on the machine: a Linux command if there is one, and a
// description otherwise.
func (b leftover) byHand(dev, value string) string {
	command, ok := map[string]string{"sysctl:": "sysctl -w %[2]s", "link_mtu": "ip link set dev %s mtu %s",
		"txqueuelen": "ip link set dev %s txqueuelen %s",
		"queue":      "tc qdisc replace dev %s root %s"}[b.k.Name()]
	// A value that contains spaces is in our own syntax.
	if !ok || b.e.Driver != "" && b.e.Driver != "linux" || strings.Contains(value, " ") {
		return "set it to " + check.Plain(value)
	}
	return fmt.Sprintf(command, host.ShellWord(check.Plain(dev)), host.ShellWord(check.Plain(value)))
}
