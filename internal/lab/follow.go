package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Followed is a setting of all of a node's ports, as it holds on the device of a tunnel that ends there.
type Followed struct {
	record.Setting
	Cannot string // why the device has not got it, "" if it has
}

// following are the settings in force that the devices of tunnels follow. They are part of a tunnel's
// identity: a device is made with them and never changed, so that nothing need be put back.
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

// follow makes the settings hold on the devices of a tunnel that was laid just now. A device that cannot
// have one goes without, and that is noted.
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
	k, state, p, err := l.resolve(s, n)
	if err != nil {
		return Followed{}, err
	}
	verb := host.Verb(host.FamilyKnob, k.Name())
	var held agent.Held
	if err := n.Agent.Invoke(ctx, verb, agent.Turn{Place: p, Want: state, Check: true}, &held); err != nil {
		return Followed{}, err
	}
	if held.Answer.State == check.No {
		return Followed{Setting: s, Cannot: held.Answer.Reason}, nil
	}
	if err := n.Agent.Invoke(ctx, verb, agent.Turn{Place: p, Want: state, Restore: true}, &held); err != nil {
		return Followed{}, err
	}
	if !knob.Same(k, state, held.State) {
		return Followed{}, fmt.Errorf("read back %s", held.State)
	}
	return Followed{Setting: s}, nil
}
