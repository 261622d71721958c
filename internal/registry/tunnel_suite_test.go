package registry_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// tunnelSuite tests what every kind of tunnel must do on a real lab: come up and go down twice, bear being
// taken down twice, leave no device, route or process, and count what it carries.
func tunnelSuite(t *testing.T, l *lab.Lab, kind tunnel.Tunnel) {
	const slot, mtu = 3, 1380
	ctx := labtest.Context(t)
	near, far, err := l.Ends(ctx, kind.Name(), slot)
	labtest.MustDo(t, err, "find the ends")
	labtest.Able(t, "this kernel has no such tunnel", kind.Check(ctx, near, far))
	before := residue(t, l)
	for range 2 {
		p, err := kind.Up(ctx, near, far, tunnel.Spec{Device: "tun3", MTU: mtu, Port: 51823})
		labtest.MustDo(t, err, "up")
		tunnelCarries(t, l, p, slot, mtu)
		for range 2 {
			if err := p.Down(ctx); err != nil {
				t.Errorf("down: %v", err)
			}
		}

		if _, err := p.Counters(ctx, false); err == nil {
			t.Error("counters of a tunnel that is down: got no error, want one")
		}

		expect.Soon(t, 2*time.Second, "after down", before, func() []string { return residue(t, l) })
	}
}

func tunnelCarries(t *testing.T, l *lab.Lab, p tunnel.Path, slot, mtu int) {
	t.Helper()
	ctx := labtest.Context(t)
	if p.MTU() != mtu {
		t.Errorf("mtu: got %d, want %d", p.MTU(), mtu)
	}

	for e, node := range l.Topology.Tunnel {
		dev := p.Devices()[e]
		if !slices.Contains(labtest.Devices(t, l, node), dev) {
			t.Errorf("devices of %s: got %v, want %s among them", node, labtest.Devices(t, l, node), dev)
		}
	}

	for ip := 4; ip <= 6; ip += 2 {
		before, err := p.Counters(ctx, false)
		labtest.MustDo(t, err, "counters")
		got := labtest.Reach(t, l, slot, ip, mtu+1, 100, mtu)
		if !slices.Equal(got.Back, []int{100, mtu}) {
			t.Errorf("IPv%d packets of 100, %d and %d bytes: %v came back (%s), want the first two", ip, mtu,
				mtu+1, got.Back, got.Note)
		}

		after, err := p.Counters(ctx, false)
		labtest.MustDo(t, err, "counters")
		if sent, received := int64(after.Sent-before.Sent),
			int64(after.Received-before.Received); sent < got.Bytes || received < got.Bytes {
			t.Errorf("IPv%d, %d bytes each way: counters moved by %d sent and %d received", ip, got.Bytes,
				sent, received)
		}
	}
}

// residue returns what a tunnel may leave in a lab: devices, routes and processes.
func residue(t *testing.T, l *lab.Lab) []string {
	t.Helper()
	var out []string
	for _, n := range l.Topology.Nodes {
		for _, dev := range labtest.Devices(t, l, n.Name) {
			out = append(out, n.Name+" device "+dev)
		}

		for line := range strings.Lines(labtest.Exec(t, l, n.Name, "cat", "/proc/net/route")) {
			out = append(out, n.Name+" route "+strings.Join(strings.Fields(line)[:3], " "))
		}
	}

	processes := 0
	for _, name := range strings.Fields(labtest.Exec(t, l, l.Topology.Near, "ls", "/proc")) {
		if name[0] >= '0' && name[0] <= '9' {
			processes++
		}
	}

	return append(out, strings.Repeat("process ", processes))
}
