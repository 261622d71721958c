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

// applied is a setting that is in effect, and the function that undoes it.
type applied struct {
	setting record.Setting
	seq     int
	undo    func(ctx context.Context) error
	again   func(ctx context.Context) error // called if undo has failed; if nil, undo is called again
	stuck   bool                            // whether the state is unknown, such as after undoing has failed
	guarded []record.Setting                // settings that the guard would apply to undo this one
	// ofTunnel is set if the setting belongs to the end of a tunnel, and is undone with the tunnel.
	ofTunnel bool
}

// sameAs reports whether both settings have the same knob and node. If so, the later setting has the earlier
// one as its previous state. Settings of tunnels must also belong to the same tunnel.
func (t *applied) sameAs(o *applied) bool {
	return t.setting.Knob == o.setting.Knob && t.setting.Node == o.setting.Node &&
		(!t.ofTunnel || t.setting.Port == o.setting.Port)
}

// Reconcile puts exactly the wanted settings into effect. It undoes settings that are not wanted, in reverse
// order, and then applies missing settings in the given order. If a wanted setting was applied after an
// unwanted setting of the same knob and node, Reconcile also undoes and reapplies the wanted setting, because
// its previous state is the unwanted setting. All other settings remain in effect. If undoing fails, every
// call fails until undoing succeeds, so that nothing is measured with an unwanted setting.
func (l *Lab) Reconcile(ctx context.Context, want []record.Setting) error {
	want = slices.DeleteFunc(slices.Clone(want), func(s record.Setting) bool {
		n, err := l.Node(ctx, s.Node)
		return err == nil && n.given(s)
	})
	// drop contains unwanted settings, and later settings of the same knob and node.
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

// StopIdleLoad undoes settings whose companion processes keep cores busy; see knob.Accompanied.
func (l *Lab) StopIdleLoad(ctx context.Context) error {
	var keep []record.Setting
	for _, t := range l.settings {
		if t.ofTunnel {
			keep = append(keep, t.setting)
			continue
		}

		x, err := l.site(ctx, t.setting)
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

// undo undoes settings in reverse order and removes them from l.settings. If undoing a setting fails, undo
// also keeps earlier settings of the same knob and node.
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

// CheckSetting reports whether a setting can be made.
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

// site returns the site of a setting.
func (l *Lab) site(ctx context.Context, s record.Setting) (site, error) {
	n, err := l.Node(ctx, s.Node)
	if err != nil {
		return site{}, err
	}
	return l.resolve(s, n)
}

// resolve returns the knob, the canonical state and the place of a setting. For a family such as "sysctl:",
// the state includes the rest of the name.
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

	if limited, ok := k.(knob.Limited); ok && err == nil { // an agent makes this check by itself
		err = limited.Allowed(x.p, x.want)
	}

	return x, err
}

// knobNamed returns the knob with the given name, or nil if there is none. If the knob is a family, member is
// the rest of the name.
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

// placeOf returns the place of a setting, including what knobs need to know about the surroundings of the
// node.
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

			if e == 0 { // the port leads to the far side
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

// Device returns the device of a port of a node, or the VLAN device on the port. In namespaces and guests,
// devices have the names of ports.
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

// apply journals a setting and then changes it. If the change fails and cannot be undone either, apply
// returns both the setting and an error.
func (l *Lab) apply(ctx context.Context, s record.Setting) (*applied, error) {
	x, err := l.site(ctx, s)
	if err == nil && x.n.Facts.Fixed != "" {
		err = fmt.Errorf("%w: %s", host.ErrUnsupported, x.n.Facts.Fixed)
	}

	if err != nil {
		return nil, err
	}

	if x.n.HasDriver() {
		return x.applyByDriver(ctx)
	}

	session, err := x.open(ctx, x.want)
	if err != nil {
		return nil, err
	}

	// If ctx ends, finish the session. The node then undoes its changes, and reports this within unwindTime.
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

	close(answered) // keeps the session open, because undoing has its own time limit
	if !stop() {
		err = context.Cause(ctx)
	}

	if err == nil {
		return t, nil
	}

	return l.failed(ctx, t, err)
}

// failed undoes a setting that could not be applied because of err. If undoing also fails, failed returns the
// setting.
func (l *Lab) failed(ctx context.Context, t *applied, err error) (*applied, error) {
	if undoErr := l.unwind(ctx, t); undoErr != nil {
		return t, errors.Join(err, undoErr)
	}
	return nil, err
}

// These are the time limits for undoing a setting. They are longer on a node without an agent, because
// programs must be started there, and a small router needs seconds to load its firewall.
const (
	unwindTime          = 5 * time.Second
	agentlessUnwindTime = 30 * time.Second
)

// unwind undoes a setting. It works even if ctx is cancelled, because this is the usual reason for undoing.
// If undoing fails, the journal entry remains for restore.
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

// remember writes a journal entry for a change that is about to be made.
func (x site) remember(knob string, before knob.State) (int, error) {
	b, _ := json.Marshal(x.p) // never returns an error
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

// driverOf returns the name of the node's driver, or "" if the node has an agent.
func driverOf(n *Node) string {
	if n.HasDriver() {
		return n.Driver.Name()
	}
	return ""
}

// finish ends a session and waits until the node has undone its changes. Because the node undoes them before
// it reports an error, changes remain only after host.ErrNotUndone or a lost connection.
func finish(ctx context.Context, s host.Session) error {
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Finish(); err != nil {
		return err
	}

	for {
		if err := s.Recv(nil); err != nil {
			return leftBy(err)
		}
	}
}

// leftBy returns an error if changes remain after the session has ended with err. No changes remain if the
// session ended normally, or with an error of the node other than host.ErrNotUndone.
func leftBy(err error) error {
	_, ended := errors.AsType[*host.RemoteError](err)
	if errors.Is(err, io.EOF) || ended && !errors.Is(err, host.ErrNotUndone) {
		return nil
	}
	return err
}

// Followed describes a setting for all ports of a node that was also applied to the device of a tunnel that
// ends on the node.
type Followed struct {
	record.Setting
	Cannot string // reason why the device does not support the setting; "" if it does
}

// following returns the settings in effect that also apply to the devices of tunnels. These settings are part
// of a tunnel's key. They are applied to a device when it is created and do not change later, so they need
// not be undone.
func (l *Lab) following() []record.Setting {
	var out []record.Setting
	for _, t := range l.settings {
		s := t.setting
		if s.Port != "" || !slices.Contains(l.Topology.Tunnel[:], s.Node) || strings.Contains(s.Value, ":") {
			continue
		}

		k, _ := knobNamed(l.parts.Knobs, s.Knob)
		if on, ok := k.(knob.OnTunnels); ok && on.OnTunnels() {
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

// follow applies settings to the devices of a new tunnel, and records those that a device does not support.
func (l *Lab) follow(ctx context.Context, t *laid, settings []record.Setting) error {
	for _, s := range settings {
		s.Port = t.Devices()[slices.Index(l.Topology.Tunnel[:], s.Node)]
		if slices.Contains(l.Ports(s.Node), s.Port) {
			continue // the tunnel has no device
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
	f := Followed{Setting: s}
	x, err := l.site(ctx, s)
	if err != nil {
		return f, err
	}

	switch a := x.check(ctx); a.State {
	case check.No:
		f.Cannot = a.Reason
		return f, nil
	case check.Unknown:
		return f, errors.New(a.Reason)
	}

	return f, x.keep(ctx)
}

// Keep applies settings permanently and reads them back. It does not journal them, and nothing undoes them.
// If a setting fails, the error lists the settings applied before it, which remain in effect.
func (l *Lab) Keep(ctx context.Context, settings []record.Setting) error {
	for i, s := range settings {
		x, err := l.site(ctx, s)
		if err == nil && x.n.Facts.Fixed != "" {
			err = errors.New(x.n.Facts.Fixed)
		}

		if err == nil {
			err = x.keep(ctx)
		}

		if err != nil {
			err = fmt.Errorf("keep %s=%s on %s: %w", s.Knob, s.Value, place(s), err)
			if i > 0 {
				err = fmt.Errorf("%w (kept before it%s)", err, wordsOf(settings[:i]))
			}
			return err
		}
	}
	return nil
}

// OnManagement returns the device through which the node of a setting is reached, provided that the setting
// affects that device, a device below it, or the firewall. Otherwise, it returns "".
func (l *Lab) OnManagement(ctx context.Context, s record.Setting) string {
	x, err := l.site(ctx, s)
	if err != nil || x.n.given(s) {
		return ""
	}

	by := l.management[x.p.Node]
	devices := x.p.Ports
	if x.p.Port != "" {
		devices = []string{x.p.Port}
	}

	// A device such as dev.10 is a VLAN on dev. The firewall affects the whole node.
	above := func(dev string) bool { return by == dev || strings.HasPrefix(by, dev+".") }
	if knob.OfPorts(x.k) && slices.ContainsFunc(devices, above) || x.k.Name() == "firewall" {
		return by
	}

	return ""
}
