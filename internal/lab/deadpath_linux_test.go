package lab

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// answering is an agent that answers, and notes of whom it was asked to end the guest.
type answering struct {
	host.Agent
	name   string
	killed *[]string
}

func (a answering) Clock(context.Context) (offset, bound int64, err error) { return 0, 1, nil }

func (a answering) Invoke(_ context.Context, verb string, _, _ any) error {
	if verb == verbKill {
		*a.killed = append(*a.killed, a.name)
	}
	return nil
}

// TestDeadPath: only routers are suspected of a path that carries nothing, and only if they are guests.
func TestDeadPath(t *testing.T) {
	for _, x := range []struct {
		dead   bool
		guests []string
		want   []string
	}{
		{true, []string{"client", "router", "server"}, []string{"router"}},
		{true, []string{"client", "server"}, nil},
		{false, []string{"client", "router", "server"}, nil},
	} {
		l := newForward(t, record.LabVM, Parts{})
		if x.dead {
			l.PathDead()
		}

		var killed, gone []string
		for _, name := range []string{"client", "router", "server"} {
			n := &Node{Name: name, Agent: answering{name: name, killed: &killed}}
			if slices.Contains(x.guests, name) {
				n.Facts.CPUs = record.CPUsVirtual
			}

			if l.gone(t.Context(), n) != nil {
				gone = append(gone, name)
			}
		}

		expect.Same(t, fmt.Sprintf("dead %v, guests %v: booted anew, and said to be gone", x.dead, x.guests),
			[][]string{x.want, x.want}, [][]string{killed, gone})
	}
}
