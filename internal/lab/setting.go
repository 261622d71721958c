package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// applied is a setting in force, with the function that undoes it.
type applied struct {
	setting record.Setting
	seq     int
	undo    func(ctx context.Context) error
	again   func(ctx context.Context) error // undoes it after undo has failed; nil: undo does
	stuck   bool                            // undo has failed: the state there is unknown
	guarded []record.Setting                // settings by which the node's guard undoes it
	// ofTunnel: it belongs to a tunnel's end, and is undone with the tunnel.
	ofTunnel bool
}

// sameAs reports whether both have the same knob and node, so that the later one's previous state is what the
// earlier one made. Settings of tunnels must belong to the same tunnel.
func (t *applied) sameAs(o *applied) bool {
	return t.setting.Knob == o.setting.Knob && t.setting.Node == o.setting.Node &&
		(!t.ofTunnel || t.setting.Port == o.setting.Port)
}

// Reconcile makes exactly the wanted settings hold: it undoes what is in force but not wanted, last first,
// applies what is wanted but not in force in the given order, and leaves the rest alone. A setting applied
// before one that must be undone is itself undone and applied again only if both have the same knob and node,
// so that undoing restores what each found. What cannot be undone is left to the next call, and until that
// succeeds every call fails: nothing may be measured under it.
func (l *Lab) Reconcile(ctx context.Context, want []record.Setting) error {
	want = slices.DeleteFunc(slices.Clone(want), func(s record.Setting) bool {
		n, err := l.Node(ctx, s.Node)
		return err == nil && n.given(s)
	})
	// The first unwanted one, and every later one at the same knob and node: its previous state is what the
	// unwanted one made.
	var drop []*applied
	for i, t := range l.settings {
		if t.stuck || !t.ofTunnel && !slices.Contains(want, t.setting) || slices.ContainsFunc(l.settings[:i],
			func(o *applied) bool { return slices.Contains(drop, o) && o.sameAs(t) }) {
			drop = append(drop, t)
		}
	}

	if err := l.undo(ctx, drop); err != nil {
		return err
	}

	for _, s := range want {
		if slices.ContainsFunc(l.settings, func(t *applied) bool { return t.setting == s }) {
			continue
		}

		t, err := l.apply(ctx, s)
		if t != nil {
			l.settings = append(l.settings, t)
		}

		if err != nil {
			return fmt.Errorf("apply %s=%s on %s: %w", s.Knob, s.Value, place(s), err)
		}
	}

	return nil
}

// StopIdleLoad undoes the settings in force that keep processes busy, see knob.Accompanied.
func (l *Lab) StopIdleLoad(ctx context.Context) error {
	var keep []record.Setting
	for _, t := range l.settings {
		if t.ofTunnel {
			keep = append(keep, t.setting)
			continue
		}

		n, err := l.Node(ctx, t.setting.Node)
		if err != nil {
			return err
		}

		x, err := l.resolve(t.setting, n)
		if err != nil {
			return err
		}

		if a, ok := x.k.(knob.Accompanied); !ok || len(a.Companions(x.p, x.want)) == 0 {
			keep = append(keep, t.setting)
		}
	}

	if len(keep) == len(l.settings) {
		return nil
	}

	return l.Reconcile(ctx, keep)
}

// undo undoes settings, last first, and forgets those that it has undone. One below a later setting that
// could not be undone must wait.
func (l *Lab) undo(ctx context.Context, drop []*applied) error {
	var failed error
	var left []*applied
	for _, t := range slices.Backward(drop) {
		if slices.ContainsFunc(left, t.sameAs) {
			left = append(left, t)
			continue
		}

		if err := l.unwind(ctx, t); err != nil {
			failed = errors.Join(failed, err)
			left = append(left, t)
		}
	}

	l.settings = slices.DeleteFunc(l.settings, func(t *applied) bool {
		return slices.Contains(drop, t) && !slices.Contains(left, t)
	})
	return failed
}

func place(s record.Setting) string { return strings.TrimSuffix(s.Node+"."+s.Port, ".") }

// CheckSetting asks the node whether a setting can be made there.
func (l *Lab) CheckSetting(ctx context.Context, s record.Setting) check.Answer {
	n, err := l.Node(ctx, s.Node)
	switch {
	case err != nil:
		return check.CouldNotTell("%v", err)
	case n.given(s):
		return check.OKBecause("it holds as it is, and nothing is set")
	case n.Facts.Fixed != "":
		return check.Not("%s", n.Facts.Fixed)
	}

	x, err := l.resolve(s, n)
	if err != nil {
		return check.Not("%v", err).Hinted("%s", check.HintOf(err))
	}

	return x.check(ctx)
}

// resolve finds the knob of a setting, its canonical state and its place. A knob family such as "sysctl:"
// keeps the rest of the name in its state.
func (l *Lab) resolve(s record.Setting, n *Node) (x site, err error) {
	k, member := knobNamed(l.parts.Knobs, s.Knob)
	if k == nil {
		return x, errors.New("no such knob")
	}

	text := s.Value
	if strings.HasSuffix(k.Name(), ":") {
		text = member + "=" + text
	}

	x = site{l: l, n: n, s: s, k: k, p: l.placeOf(s)}
	x.p.OwnKernel = n.Facts.OwnKernel
	x.p.Sysctls = n.Sysctls
	x.want, err = k.Parse(text)
	if o, ok := k.(knob.OwnLinks); ok && o.OwnLinks() && !l.OwnNetwork() && err == nil {
		err = fmt.Errorf("%w: the machines' links are not the lab's own", host.ErrUnsupported)
	}

	if limited, ok := k.(knob.Limited); ok && err == nil { // nobody else asks an agentless node
		err = limited.Allowed(x.p, x.want)
	}

	return x, err
}

// knobNamed finds a knob by name, nil if there is none; for a family it also returns the member.
func knobNamed(all []knob.Knob, name string) (k knob.Knob, member string) {
	for _, k := range all {
		if k.Name() == name {
			return k, ""
		}

		if rest, ok := strings.CutPrefix(name, k.Name()); ok && strings.HasSuffix(k.Name(), ":") {
			return k, rest
		}
	}
	return nil, ""
}

// placeOf adds what a knob may need to know of its node's surroundings.
func (l *Lab) placeOf(s record.Setting) knob.Place {
	p := knob.Place{Node: s.Node, Port: l.Device(s.Node, s.Port)}
	if s.Node == HostNode {
		p.Lab = l.dir
		return p
	}

	for i, link := range l.Topology.Links {
		for e, end := range link.Ends {
			if end.Node != s.Node {
				continue
			}

			dev := l.Device(end.Node, end.Port)
			if s.Port == "" || s.Port == end.Port {
				p.Ports = append(p.Ports, dev)
			}

			if e == 0 { // faces the far side
				p.WAN = dev
				for _, a := range l.plan.link(i, e) {
					if l.OwnNetwork() {
						p.Outside = append(p.Outside, a.Addr().String())
					}
				}
			}
		}
	}

	for ip := 4; ip <= 6; ip += 2 {
		if far, err := l.End(0, 1, ip); err == nil && ip == 4 {
			p.Collector = far.Addr.String()
		}

		if near, err := l.End(0, 0, ip); err == nil {
			p.Inside = append(p.Inside, near.Addr.String())
		}
	}

	return p
}

// Device returns the device of a node's port, or of a VLAN of it: labs of our own name it like the port.
func (l *Lab) Device(node, port string) string {
	base, rest, tagged := strings.Cut(port, ".")
	dev, named := l.devices[node][base]
	switch {
	case !named:
		return port
	case tagged:
		return dev + "." + rest
	}

	return dev
}

// apply applies one setting, journalling it first. With an error it returns the setting if it could not be
// undone either.
func (l *Lab) apply(ctx context.Context, s record.Setting) (*applied, error) {
	n, err := l.Node(ctx, s.Node)
	if err != nil {
		return nil, err
	}

	if n.Facts.Fixed != "" {
		return nil, fmt.Errorf("%w: %s", host.ErrUnsupported, n.Facts.Fixed)
	}

	x, err := l.resolve(s, n)
	if err != nil {
		return nil, err
	}

	if n.HasDriver() {
		return x.applyByDriver(ctx)
	}

	session, err := n.Agent.Open(ctx, host.Verb(host.FamilyKnob, x.k.Name()),
		agent.KnobRequest{Place: x.p, Want: x.want})
	if err != nil {
		return nil, err
	}

	// When stopped, it notifies the node that nothing more follows. The node undoes what it may have done and
	// reports that; the wait for the report is bounded.
	answered := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		session.Finish()
		select {
		case <-answered:
		case <-time.After(unwindTime):
			session.Close()
		}
	})
	t := &applied{setting: s, undo: func(ctx context.Context) error { return finish(ctx, session) }}
	var held agent.KnobReply
	if err = session.Recv(&held); err == nil {
		before := held.State
		t.again = func(ctx context.Context) error { return x.put(ctx, before) }
		t.seq, err = x.remember(x.k.Name(), before)
	} else {
		t.undo = func(context.Context) error { return nil } // nothing changes before the go-ahead
		defer session.Close()
	}

	if err == nil {
		if err = session.Send(struct{}{}); err == nil {
			err = session.Recv(&held)
		}
	}

	close(answered) // undoing has its own time limit
	if !stop() {
		err = context.Cause(ctx)
	}

	if err == nil {
		return t, nil
	}

	return l.failed(ctx, t, err)
}

// failed undoes a setting whose application failed with err. It returns the setting if undoing fails, too.
func (l *Lab) failed(ctx context.Context, t *applied, err error) (*applied, error) {
	if undoErr := l.unwind(ctx, t); undoErr != nil {
		return t, errors.Join(err, undoErr)
	}
	return nil, err
}

// unwindTime bounds how long a node takes to undo one setting. An agentless node has to start programs, and a
// small router's firewall takes seconds to load.
const (
	unwindTime          = 5 * time.Second
	agentlessUnwindTime = 30 * time.Second
)

// unwind undoes a setting although ctx may be cancelled: that is the usual reason for undoing. What cannot be
// undone keeps its journal entry, for restore.
func (l *Lab) unwind(ctx context.Context, t *applied) error {
	limit := unwindTime
	if t.guarded != nil {
		limit = agentlessUnwindTime
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := t.undo(ctx); err != nil {
		t.stuck = true
		if t.again != nil {
			t.undo = t.again
		}
		return dirtied(fmt.Sprintf("undo %s on %s", t.setting.Knob, place(t.setting)), err)
	}

	return l.journal.Done(t.seq)
}

// remember journals a change of a knob before it is made.
func (x site) remember(knob string, before knob.State) (int, error) {
	b, err := json.Marshal(x.p)
	if err != nil {
		return 0, fmt.Errorf("encode place: %w", err)
	}
	return x.l.journal.Add(journal.Entry{
		Kind:   journal.KindSetting,
		Lab:    x.l.ID,
		Node:   x.s.Node,
		Driver: driverOf(x.n),
		Knob:   knob,
		Place:  b,
		Before: string(before),
		After:  string(x.want),
	})
}

// driverOf returns the name of the driver that sets a node, "" for an agent.
func driverOf(n *Node) string {
	if n.HasDriver() {
		return n.Driver.Name()
	}
	return ""
}

// finish ends a knob's session and waits until the node has put the setting back. Before the node reports any
// error, except a failure to put back, it has put the setting back.
func finish(ctx context.Context, s host.Session) error {
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Finish(); err != nil {
		return err
	}

	for {
		var rest json.RawMessage
		if err := s.Recv(&rest); err != nil {
			return leftBy(err)
		}
	}
}

// leftBy returns an error if the end of a session means that something is left. Nothing is left after an
// ordinary end, nor after a node's error that does not mention it.
func leftBy(err error) error {
	_, ended := errors.AsType[*host.RemoteError](err)
	if errors.Is(err, io.EOF) || ended && !errors.Is(err, host.ErrNotUndone) {
		return nil
	}
	return err
}

// Followed is a setting of all of a node's ports, as applied to the device of a tunnel that ends there.
type Followed struct {
	record.Setting
	Cannot string // why the device lacks it, "" if it has it
}

// following returns the settings in force that the devices of tunnels follow. They are part of a tunnel's
// identity: a device is made with them and never changed, so that nothing needs to be put back.
func (l *Lab) following() []record.Setting {
	var out []record.Setting
	for _, t := range l.settings {
		s := t.setting
		i := slices.IndexFunc(l.parts.Knobs, func(k knob.Knob) bool { return k.Name() == s.Knob })
		if i < 0 || s.Port != "" || !slices.Contains(l.Topology.Tunnel[:], s.Node) ||
			strings.Contains(s.Value, ":") {
			continue
		}

		if k, ok := l.parts.Knobs[i].(knob.OnTunnels); ok && k.OnTunnels() {
			out = append(out, s)
		}
	}
	return out
}

func wordsOf(list []record.Setting) string {
	text := ""
	for _, s := range list {
		text += fmt.Sprintf(", %s=%s@%s", s.Knob, s.Value, s.Node)
	}
	return text
}

// follow applies the settings to the devices of a tunnel just laid. If a device cannot have one, that is
// recorded.
func (l *Lab) follow(ctx context.Context, t *laid, settings []record.Setting) error {
	for _, s := range settings {
		s.Port = t.Devices()[slices.Index(l.Topology.Tunnel[:], s.Node)]
		if slices.Contains(l.Ports(s.Node), s.Port) {
			continue // a tunnel without a device
		}

		f, err := l.followOn(ctx, s)
		if err != nil {
			return fmt.Errorf("apply %s=%s on %s: %w", s.Knob, s.Value, place(s), err)
		}

		t.follow = append(t.follow, f)
	}
	return nil
}

func (l *Lab) followOn(ctx context.Context, s record.Setting) (Followed, error) {
	n, err := l.Node(ctx, s.Node)
	if err != nil {
		return Followed{}, err
	}

	x, err := l.resolve(s, n)
	if err != nil {
		return Followed{}, err
	}

	switch a := x.check(ctx); a.State {
	case check.No:
		return Followed{Setting: s, Cannot: a.Reason}, nil
	case check.Unknown:
		return Followed{}, errors.New(a.Reason)
	}

	if err := x.keep(ctx); err != nil {
		return Followed{}, err
	}

	return Followed{Setting: s}, nil
}
