package registry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// knobSuite tests what every knob must do on a real lab, for one setting: parse stably, be applied as it is
// read back, be restored, and be put back by the node itself when the session that holds it is killed.
// attach returns another controller's view of the same lab.
func knobSuite(t *testing.T, l *lab.Lab, attach func() *lab.Lab, k knob.Knob, s record.Setting) {
	ctx := labtest.Context(t)
	want := parseStably(t, k, s)
	labtest.Able(t, "this kernel or user lacks the setting", l.CheckSetting(ctx, s))
	read := func() knob.State {
		t.Helper()
		got, err := labtest.ReadState(t, l, k, s, want)
		if err != nil {
			t.Errorf("read %s: %v", s.Knob, err)
		}

		return got
	}
	before := read()
	if k.Same(want, before) {
		t.Fatalf("%s=%s holds already: the suite wants a level that changes something", s.Knob, s.Value)
	}

	for range 2 { // the second time nothing is done
		labtest.MustDo(t, l.Reconcile(ctx, []record.Setting{s}), "apply %s=%s", s.Knob, s.Value)
		got := read()
		if !k.Same(want, got) {
			t.Errorf("read back: got %q, want %q", got, want)
		}
	}

	labtest.MustDo(t, l.Reconcile(ctx, nil), "restore %s", s.Knob)
	if got := read(); got != before {
		t.Errorf("restored: got %q, want %q as before", got, before)
	}

	other := attach()
	labtest.MustDo(t, other.Reconcile(ctx, []record.Setting{s}), "apply %s=%s by another controller", s.Knob,
		s.Value)
	if got := read(); !k.Same(want, got) {
		t.Errorf("set by another controller: got %q, want %q", got, want)
	}

	n, err := other.Node(ctx, s.Node)
	labtest.MustDo(t, err, "node %s", s.Node)
	n.Agent.Close() // as a controller that dies
	expect.Soon(t, 2*time.Second, "after the session was killed", before, func() knob.State {
		got, _ := labtest.ReadState(t, l, k, s, want) // fails while the node is half way back
		return got
	})
}

// parseStably parses a setting's value; the canonical text must parse to itself, and nonsense to an error
// that says what is allowed.
func parseStably(t *testing.T, k knob.Knob, s record.Setting) knob.State {
	t.Helper()
	text := s.Value
	_, member, isFamily := strings.Cut(s.Knob, ":")
	if isFamily {
		text = member + "=" + text
	}

	want, err := k.Parse(text)
	labtest.MustDo(t, err, "parse %q", text)
	if again, err := k.Parse(string(want)); err != nil || again != want {
		t.Errorf("parse canonical %q: got %q, %v, want itself", want, again, err)
	}

	if got, err := k.Parse("no such level \x00"); err == nil || got != "" {
		t.Errorf("parse nonsense: got %q, %v, want an error and no state", got, err)
	}

	return want
}
