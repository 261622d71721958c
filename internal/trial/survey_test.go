package trial

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/routeros"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestUncounted: what a session of ours moves is no proof that the survey's packets passed.
func TestUncounted(t *testing.T) {
	got := agent.Reached{Back: make([]int, surveyPackets), Bytes: surveyPackets * 1472}
	for _, x := range []struct {
		packets, bytes uint64
		passed         bool
	}{{surveyPackets, surveyPackets * 1514, true}, {surveyPackets + 30, 12_000, false}, {12, 4_000, false}} {
		var moved []record.CounterDelta
		for counter, grown := range map[string]uint64{"rx_packets": x.packets, "tx_packets": x.packets,
			"rx_bytes": x.bytes, "tx_bytes": x.bytes} {
			moved = append(moved, record.CounterDelta{Counter: counter, Before: 1000, After: 1000 + grown})
		}

		if err := uncounted(moved, got); (err == nil) != x.passed {
			t.Errorf("%d packets of %d bytes: %v", x.packets, x.bytes, err)
		}
	}
}

// TestCrossed: only counters that did not grow, and packets of which none came back, say that the router is
// passed by. A lost agent does not, and whoever cancels is told so.
func TestCrossed(t *testing.T) {
	stop := errors.New("stop")
	lost := errors.New("agent lost")
	got := agent.Reached{Back: make([]int, surveyPackets), Bytes: surveyPackets * 1472}
	for name, x := range map[string]struct {
		got    agent.Reached
		grown  []uint64 // at each look, and then as at the last
		fails  error    // the look
		cancel int      // at which look
		want   check.State
		err    error
	}{
		"crossed":      {got: got, grown: []uint64{surveyPackets}, want: check.Yes},
		"counted late": {got: got, grown: []uint64{0, 3, surveyPackets}, want: check.Yes},
		"passed by":    {got: got, grown: []uint64{3}, want: check.No},
		"nothing back": {grown: []uint64{surveyPackets}, want: check.No},
		"agent lost":   {got: got, grown: []uint64{3}, fails: lost, want: check.Unknown},
		"cancelled":    {got: got, grown: []uint64{3}, cancel: 2, want: check.Unknown, err: stop},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			looks := 0
			a, err := crossed(ctx, x.got, func() ([]record.CounterDelta, error) {
				now := x.grown[min(looks, len(x.grown)-1)]
				if looks++; looks == x.cancel {
					cancel(stop)
				}
				return []record.CounterDelta{{Counter: "rx_packets", After: now}}, x.fails
			})
			if a.State != x.want || !errors.Is(err, x.err) || (a.Hint != "") != (x.want == check.No) {
				t.Errorf("got %+v, %v, want %s, %v, and a hint for no", a, err, x.want, x.err)
			}
		})
	}
}

// TestHeadroom: where nothing was found, it says so.
func TestHeadroom(t *testing.T) {
	for _, x := range []struct {
		found []record.Ceiling
		err   error
		state check.State
		says  string
	}{
		{[]record.Ceiling{{Value: 12.8e9}}, nil, check.Yes, "12.8 Gbit/s over TCP"},
		{nil, errors.New("agent lost"), check.Unknown, "agent lost"},
		{nil, nil, check.Unknown, "no end reported"},
	} {
		a := headroom(x.found, x.err)
		if a.State != x.state || !strings.Contains(a.Reason, x.says) || strings.Contains(a.Reason, "<nil>") {
			t.Errorf("%v, %v: got %+v, want %s: %q", x.found, x.err, a, x.state, x.says)
		}
	}
}

// TestUncountable: a router that answers that it has no such device is none to measure, one that does not
// answer may be.
func TestUncountable(t *testing.T) {
	stop := errors.New("stop")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	for _, x := range []struct {
		ctx  context.Context
		err  error
		want check.State
		ends error
	}{
		{t.Context(), &host.RemoteError{Text: "device nosuch does not exist"}, check.No, nil},
		{t.Context(), fmt.Errorf("agent: %w: it ended", host.ErrUnreachable), check.Unknown, nil},
		{t.Context(), fmt.Errorf("read: %w", context.DeadlineExceeded), check.Unknown, nil},
		{cancelled, errors.New("killed"), check.Unknown, stop},
	} {
		a, err := uncountable(x.ctx, x.err)
		if a.State != x.want || !errors.Is(err, x.ends) || (a.Hint != "") != (x.want == check.No) {
			t.Errorf("%v: got %+v, %v, want %s, %v, and a hint for no", x.err, a, err, x.want, x.ends)
		}
	}
}

// TestMeasurable: one version of IP is enough, if it has a path and that does not pass the router by.
func TestMeasurable(t *testing.T) {
	for _, x := range []struct {
		machine, four, over4, six, over6 check.State
		want                             bool
	}{
		{check.Yes, check.Yes, check.Yes, check.No, check.Unknown, true},
		{check.Yes, check.Yes, check.Unknown, check.No, check.Unknown, true},
		{check.Yes, check.Yes, check.No, check.Yes, check.Yes, true},
		{check.Yes, check.No, check.Unknown, check.No, check.Unknown, false},
		{check.Yes, check.Yes, check.No, check.No, check.Unknown, false},
		{check.No, check.Yes, check.Yes, check.Yes, check.Yes, false},
	} {
		all := []Capability{{"machine", "router", check.Answer{State: x.machine}}}
		for name, s := range map[string][2]check.State{"IPv4": {x.four, x.over4}, "IPv6": {x.six, x.over6}} {
			all = append(all, Capability{areaPath, name, check.Answer{State: s[0]}})
			if s[0] == check.Yes {
				all = append(all, Capability{areaPath, overRouter + name, check.Answer{State: s[1]}})
			}
		}

		got := Measurable(all)
		if got != x.want {
			t.Errorf("%+v: %v", x, got)
		}
	}
}

// TestOfDriver: of a router with RouterOS it says what device-mode forbids, and which port is a tunnel's.
func TestOfDriver(t *testing.T) {
	d := routeros.New()
	n := &lab.Node{Name: "router", Host: d, Driver: driver.RouterOS{}, Rights: "by ssh"}
	a, facts := ofDriver(t.Context(), n)
	want := "driven by routeros, by ssh; device-mode advanced, cpu-frequency 1400MHz; routerboard=no: "
	if a.State != check.Yes || !strings.HasPrefix(a.Reason, want) {
		t.Errorf("got %+v, want yes: %q", a, want)
	}

	for dev, want := range map[string]string{"lan": " (MTU 1500)", "office": " (MTU 1420, WireGuard)",
		"x": ""} {
		got := card(facts, dev)
		if got != want {
			t.Errorf("%s: got %q, want %q", dev, got, want)
		}
	}

	d.Broken = "/system/resource"
	a, _ = ofDriver(t.Context(), n)
	if a.State != check.Unknown || !strings.Contains(a.Reason, "is broken") {
		t.Errorf("what does not answer: got %+v", a)
	}
}
