package labtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// driverTime limits the duration of the suite. Each Read runs a command, and an emulated router can start
// only a few commands per second.
const driverTime = 4 * time.Minute

// SettingsOf parses settings of the router, one per line: "KNOB=VALUE" or "KNOB.PORT=VALUE".
func SettingsOf(text string) (out []record.Setting) {
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		name, value, _ := strings.Cut(line, "=")
		s := record.Setting{Knob: name, Node: "router", Value: value}
		if knob, port, ok := strings.Cut(name, "."); ok && !strings.Contains(name, ":") {
			s.Knob, s.Port = knob, port
		}

		out = append(out, s)
	}
	return out
}

// DriverSuite tests a driver for a router's operating system. The driver must identify the system, apply
// settings, read them back in canonical form, and restore the original settings. settings are applied in
// turn, each on top of the previous ones. A driver that implements driver.Counting must return the
// counters of devices, and a driver that implements driver.Sampling must return series for them.
func DriverSuite(t *testing.T, d driver.Driver, h host.Host, settings []record.Setting, devices ...string) {
	ctx, cancel := context.WithTimeout(t.Context(), driverTime)
	defer cancel()
	a := d.Check(ctx, h)
	if a.State != check.Yes {
		t.Fatalf("check: got %v (%s), want yes", a.State, a.Reason)
	}

	read := func(s record.Setting) string {
		s.Value = ""
		text, err := d.Read(ctx, h, s)
		MustDo(t, err, "read %s", s.Knob)
		return text
	}
	forms := func() map[record.Setting]string {
		out := map[record.Setting]string{}
		for _, s := range settings {
			s.Value = ""
			out[s] = read(s)
		}
		return out
	}
	start := forms()
	before := make([]string, len(settings))
	for i, s := range settings {
		before[i] = read(s)
		for range 2 { // applying a setting twice is not an error
			MustDo(t, d.Apply(ctx, h, s), "apply %s=%s", s.Knob, s.Value)
		}

		got := read(s)
		if got != s.Value {
			t.Errorf("read back %s: got %q, want %q", s.Knob, got, s.Value)
		}
	}

	for i, s := range slices.Backward(settings) {
		s.Value = before[i]
		if err := d.Apply(ctx, h, s); err != nil {
			t.Errorf("restore %s=%s: %v", s.Knob, s.Value, err)
		}
	}

	diff := cmp.Diff(start, forms())
	if diff != "" {
		t.Errorf("canonical forms after restoring (-before +after):\n%s", diff)
	}

	lacking := record.Setting{Knob: "no_such_setting", Node: h.Name(), Value: "1"}
	if _, err := d.Read(ctx, h, lacking); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("read a setting that it lacks: got %v, want %v", err, host.ErrUnsupported)
	}

	if err := d.Apply(ctx, h, lacking); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("apply a setting that it lacks: got %v, want %v", err, host.ErrUnsupported)
	}

	if c, ok := d.(driver.Counting); ok {
		if all, err := c.Counters(ctx, h, devices); err != nil || len(all) != len(devices) {
			t.Errorf("counters of %v: got %v, %v, want each", devices, all, err)
		}

		if _, err := c.Counters(ctx, h, []string{"no-such-device"}); err == nil {
			t.Error("counters of a device that it lacks: got no error")
		}
	}

	if w, ok := d.(driver.Sampling); ok {
		driverSamples(t, w, h, devices)
	}
}

// driverSamples checks that the driver returns at least one sample per second, with times of the
// controller's clock. It also checks that Collect returns as many series when called again, and that it
// fails after Close.
func driverSamples(t *testing.T, d driver.Sampling, h host.Host, devices []string) {
	ctx := Context(t)
	from := host.Monotonic()
	w, err := d.Watch(ctx, h, time.Second)
	MustDo(t, err, "watch")
	time.Sleep(2500 * time.Millisecond)
	to := host.Monotonic()
	got, err := w.Collect(ctx, from, to)
	MustDo(t, err, "collect")
	found := false
	for _, s := range got.Samples {
		if s.Table == nil {
			if s.Unavailable == "" {
				t.Errorf("%s: got neither samples nor a reason", s.Probe)
			}
			continue
		}

		n := len(s.Table.T)
		if n < 2 || s.Table.T[n-1] < to-int64(50*time.Millisecond) ||
			s.Table.T[0] < from-int64(time.Second) {
			t.Errorf("%s: %d samples at %v, want some from %d to %d", s.Probe, n, s.Table.T, from, to)
		}

		for _, dev := range devices {
			found = found || s.Probe == "netdev" && s.Table.Column(dev+"/rx_bytes") != nil
		}
	}

	if len(devices) > 0 && !found {
		t.Errorf("series of %v: got none in %d", devices, len(got.Samples))
	}

	costUnknown := slices.ContainsFunc(got.Samples, func(s record.Samples) bool { // the driver reports why
		return strings.HasPrefix(s.Probe, "driver ") && s.Unavailable != ""
	})
	if got.Clock.BoundBefore <= 0 || got.Clock.BoundAfter <= 0 || len(got.Cost) == 0 != costUnknown {
		t.Errorf("clock and cost: got %+v, %+v, want both, or why there is no cost", got.Clock, got.Cost)
	}

	if again, err := w.Collect(ctx, to, host.Monotonic()); err != nil ||
		len(again.Samples) != len(got.Samples) {
		t.Errorf("collect again: got %d series, %v, want %d", len(again.Samples), err, len(got.Samples))
	}

	if err := w.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}

	if _, err := w.Collect(ctx, from, to); err == nil {
		t.Error("collect after close: got no error")
	}
}
