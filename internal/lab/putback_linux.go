package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// errOthers means that a setting is neither as an owner who is gone made it nor as it was before: somebody has
// changed it since, and it was left alone.
var errOthers = errors.New("somebody has changed it since, and it was left as it is")

// behind is a setting that an owner who is gone has left on a real machine, which is reached again.
type behind struct {
	l *Lab
	n *Node
	e journal.Entry
	k knob.Knob
	p knob.Place
	// earlier are the owner's changes before this one, of the same knob there.
	earlier []journal.Entry
}

// Of a device, what it holds when it is looked at again.
const (
	asBefore  = iota // this change was undone, or those before it
	asOurs           // the change
	asOthers         // neither
	anyOfThem        // how many there are
)

// putBack compares what a machine holds with what it was before and with what the owner had made of it, by
// device. It touches nothing but what is still as the owner made it.
func (b behind) putBack(ctx context.Context) (text string, err error) {
	now, err := b.read(ctx)
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
	var sorted [anyOfThem][]string
	for _, dev := range b.devices() {
		is, err := b.compare(dev, held[dev], before[dev])
		if err != nil {
			return "", err
		}
		sorted[is] = append(sorted[is], dev)
	}
	mine := sorted[asOurs]
	switch {
	case len(mine) == 0 && len(sorted[asOthers]) == 0:
		return fmt.Sprintf("already as before: %s=%s", b.e.Knob, now), nil
	case len(mine) == len(b.devices()):
		return fmt.Sprintf("put back %s=%s", b.e.Knob, b.e.Before), b.put(ctx, b.p, b.e.Before)
	}
	for _, dev := range mine {
		p := b.p
		p.Port = dev
		err = errors.Join(err, b.put(ctx, p, string(before[dev])))
	}
	for _, dev := range sorted[asOthers] {
		err = errors.Join(err, b.differs(dev, held[dev], before[dev]))
	}
	return fmt.Sprintf("put back %s=%s of %s", b.e.Knob, b.e.Before, strings.Join(mine, " and ")), err
}

// compare says which of those a device's state is.
func (b behind) compare(dev string, held, before knob.State) (int, error) {
	ours, err := b.each(b.e.After)
	switch {
	case err != nil:
		return 0, err
	case held == before:
		return asBefore, nil
	case held == ours[dev]:
		return asOurs, nil
	case b.k.Same(before, held):
		return asBefore, nil
	case b.k.Same(ours[dev], held):
		return asOurs, nil
	}
	for _, e := range b.earlier { // it is undone, and they are: each says whether it is
		for _, state := range []string{e.Before, e.After} {
			each, err := b.each(state)
			if err != nil {
				return 0, err
			}
			if held == each[dev] || each[dev] != "" && b.k.Same(each[dev], held) {
				return asBefore, nil
			}
		}
	}
	return asOthers, nil
}

// devices are those that the setting is of, one without a name where it is the node's.
func (b behind) devices() []string {
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

func (b behind) each(s string) (map[string]knob.State, error) {
	if !knob.OfPorts(b.k) {
		return map[string]knob.State{"": knob.State(s)}, nil
	}
	return knob.Each(knob.State(s), func() ([]string, error) { return b.devices(), nil })
}

func (b behind) driven(p knob.Place) driven {
	return driven{b.l, b.n, record.Setting{Knob: b.e.Knob, Node: b.e.Node}, b.k, p}
}

// read reads the setting. An agent's session that ends before the word to go on changes nothing.
func (b behind) read(ctx context.Context) (knob.State, error) {
	if b.n.HasDriver() {
		return b.driven(b.p).read(ctx)
	}
	s, err := b.n.Agent.Open(ctx, host.Verb(host.FamilyKnob, b.e.Knob),
		agent.Turn{Place: b.p, Want: knob.State(b.e.After)})
	if err != nil {
		return "", err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	var held agent.Held
	err = s.Recv(&held)
	return held.State, err
}

func (b behind) put(ctx context.Context, p knob.Place, value string) error {
	if b.n.HasDriver() {
		return b.driven(p).put(ctx, knob.State(value))
	}
	return b.n.turn(ctx, b.e.Knob, agent.Turn{Place: p, Want: knob.State(value), Restore: true}, nil)
}

// differs names a difference, and how it is put back by hand.
func (b behind) differs(dev string, held, before knob.State) error {
	ours, err := b.each(b.e.After)
	if err != nil {
		return err
	}
	of := ""
	if dev != "" {
		of = " of " + dev
	}
	return fmt.Errorf("%s%s is %s, was %s before the run, which made it %s: %w; by hand: %s", b.e.Knob, of,
		check.Plain(string(held)), before, ours[dev], errOthers, b.byHand(dev, string(before)))
}

// byHand is what puts a state back on the machine: a command where Linux has one for it, else words.
func (b behind) byHand(dev, value string) string {
	words := "set " + strings.TrimSuffix(b.e.Knob, ":") + " to " + value
	switch {
	case b.e.Driver != "" && b.e.Driver != "linux":
	case strings.HasPrefix(b.e.Knob, "sysctl:"):
		return "sysctl -w " + host.Quote(value)
	case b.e.Knob == "link_mtu":
		return "ip link set dev " + host.Quote(dev) + " mtu " + value
	case b.e.Knob == "txqueuelen":
		return "ip link set dev " + host.Quote(dev) + " txqueuelen " + value
	case b.e.Knob == "queue" && slices.Contains([]string{"noqueue", "mq", "pfifo_fast"}, value):
		return "tc qdisc del dev " + host.Quote(dev) + " root"
	}
	return words
}
