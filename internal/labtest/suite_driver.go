package labtest

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// DriverSuite is what every driver must do with a router's operating system: say what it is, take settings,
// read them back in canonical form, and be restored to canonical forms that equal those before, each
// difference named. settings are tried one after the other, each on top of the one before.
func DriverSuite(t *testing.T, d driver.Driver, h host.Host, settings []record.Setting) {
	ctx := Context(t)
	if a := d.Check(ctx, h); a.State != check.Yes {
		t.Fatalf("check: got %v (%s), want yes", a.State, a.Reason)
	}
	forms := func() map[record.Setting]string {
		out := map[record.Setting]string{}
		for _, s := range settings {
			s.Value = ""
			text, err := d.Read(ctx, h, s)
			if err != nil {
				t.Fatalf("read %s: %v", s.Knob, err)
			}
			out[s] = text
		}
		return out
	}
	start := forms()
	before := make([]string, len(settings))
	for i, s := range settings {
		var err error
		if before[i], err = d.Read(ctx, h, s); err != nil {
			t.Fatalf("read %s: %v", s.Knob, err)
		}
		for range 2 { // a setting that holds already is no error
			if err := d.Apply(ctx, h, s); err != nil {
				t.Fatalf("apply %s=%s: %v", s.Knob, s.Value, err)
			}
		}
		if got, err := d.Read(ctx, h, s); err != nil || got != s.Value {
			t.Errorf("read back %s: got %q, %v, want %q", s.Knob, got, err, s.Value)
		}
	}
	for i, s := range slices.Backward(settings) {
		s.Value = before[i]
		if err := d.Apply(ctx, h, s); err != nil {
			t.Errorf("restore %s=%s: %v", s.Knob, s.Value, err)
		}
	}
	if diff := cmp.Diff(start, forms()); diff != "" {
		t.Errorf("canonical forms after restoring (-before +after):\n%s", diff)
	}
	lacking := record.Setting{Knob: "no_such_setting", Node: h.Name(), Value: "1"}
	if _, err := d.Read(ctx, h, lacking); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("read a setting that it lacks: got %v, want %v", err, host.ErrUnsupported)
	}
	if err := d.Apply(ctx, h, lacking); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("apply a setting that it lacks: got %v, want %v", err, host.ErrUnsupported)
	}
}
