package lab

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
)

// Locals lends local labs by topology; it makes each at first use and owns them all. Attached, where it is
// set, is the only lab lent, and is not ours to take down.
type Locals struct {
	Owner    string // prefix of the labs' ids: the run
	Dir      string
	Journal  *journal.Journal
	Parts    Parts
	Guest    *vm.Guest // what the routers are; nil = namespaces
	Driver   string    // by which the routers are set and watched; "" = agents
	Queues   int       // transmit and receive queues of each virtual link; 0 = 1
	Attached *Lab
	Keep     string // directory that the consoles of guests are kept in, "" = nowhere

	labs map[string]*Lab
}

// For returns the lab of a topology.
func (o *Locals) For(ctx context.Context, topology string) (*Lab, error) {
	if o.Attached != nil {
		if has := o.Attached.Topology.Name; has != topology {
			return nil, &NoTopology{topology, "the attached lab " + o.Attached.ID + " is " + has}
		}
		return o.Attached, nil
	}
	if l := o.labs[topology]; l != nil {
		return l, nil
	}
	t, err := TopologyNamed(topology)
	if err != nil {
		return nil, err
	}
	l, err := Local{ID: o.Owner + "-" + topology, Topology: t, Dir: o.Dir, Journal: o.Journal, Guest: o.Guest,
		Driver: o.Driver, Queues: o.Queues, Parts: o.Parts}.Up(ctx)
	if err != nil {
		return nil, err
	}
	if o.labs == nil {
		o.labs = map[string]*Lab{}
	}
	o.labs[topology] = l
	return l, nil
}

// Close puts every lab back and ends those that were made here.
func (o *Locals) Close(ctx context.Context) error {
	var err error
	for _, topology := range slices.Sorted(maps.Keys(o.labs)) {
		err = errors.Join(err, keepConsoles(o.labs[topology], o.Keep), o.labs[topology].Close(ctx))
		delete(o.labs, topology)
	}
	if o.Attached != nil {
		err = errors.Join(err, keepConsoles(o.Attached, o.Keep), o.Attached.Close(ctx))
	}
	return err
}

func keepConsoles(l *Lab, dir string) error {
	if l.keep == nil || dir == "" {
		return nil
	}
	return l.keep(dir)
}
