package lab_test

import (
	"context"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestAnEmptyReplyIsNoAnswer: a node that answers with nothing does not end the controller.
func TestAnEmptyReplyIsNoAnswer(t *testing.T) {
	topology, err := lab.TopologyNamed("direct")
	must(t, err)
	k := knob.TxQueueLen()
	var nodes []*lab.Node
	for _, n := range topology.Nodes {
		a := host.Inside(t.Context(), map[string]host.Handler{host.Verb(host.FamilyKnob, k.Name()): func(
			_ context.Context, s host.Session) error {
			return s.Send(struct{}{})
		}})
		defer a.Close()
		nodes = append(nodes, &lab.Node{Name: n.Name, Agent: a})
	}

	l, err := lab.Assemble("x", topology, nodes, lab.Parts{Knobs: []knob.Knob{k}}, nil)
	must(t, err)
	set := record.Setting{Knob: k.Name(), Node: nodes[0].Name, Value: "100"}
	got := l.CheckSetting(t.Context(), set)
	if got.State != check.Unknown || !strings.Contains(got.Reason, "did not answer") {
		t.Errorf("got %+v, want that it could not be told", got)
	}

	_, err = l.FollowOn(t.Context(), set)
	expect.Error(t, "on a tunnel's device", err, "did not answer")
	// What is fixed is refused by whoever applies it, too, and not only by whoever asks first.
	nodes[0].Facts.Fixed = "nothing is changed here"
	expect.Error(t, "fixed", l.Reconcile(t.Context(), []record.Setting{set}), "nothing is changed here")
}
