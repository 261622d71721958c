package agent_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// aloneNode is an agent in namespaces of its own, with a pair of devices eth0 and eth1, and their hardware
// addresses.
func aloneNode(t *testing.T) (a host.Agent, macs []string) {
	t.Helper()
	s := host.Spawn{Args: []string{agent.ChildRole}, Namespaces: syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS}
	if os.Geteuid() != 0 {
		s.Namespaces |= syscall.CLONE_NEWUSER
	}

	child, err := s.Start()
	must(t, err)
	a = host.Connect(child)
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Errorf("agent ended with %v, want nil", err)
		}
	})
	must(t, a.Invoke(labtest.Context(t), "test/veth", nil, &macs))
	return a, macs
}

// TestArrange lays a node out by hardware addresses, once more, and with the names swapped.
func TestArrange(t *testing.T) {
	a, macs := aloneNode(t)
	ctx := labtest.Context(t)
	prefix := netip.MustParsePrefix
	l := agent.Layout{
		Node:  "router",
		Names: map[string]string{strings.ToUpper(macs[0]): "wan", macs[1]: "lan"},
		Ports: []string{"lan", "wan"},
		Addresses: []agent.PortAddress{
			{Port: "lan", Address: prefix("198.18.0.2/30")}, {Port: "lan", Address: prefix("2001:2::2/64")},
			{Port: "wan", Address: prefix("198.18.0.5/30")},
		},
		Routes: []agent.Route{{
			To:  prefix("198.18.9.0/24"),
			Via: netip.MustParseAddr("198.18.0.6"),
			Dev: "wan",
		}},
		Sysctls: [][2]string{{"net.ipv4.ip_forward", "1"}, {"net.ipv6.conf.lan.accept_dad", "0"}},
	}
	want := []string{"node router", macs[1] + " lan [198.18.0.2/30 2001:2::2/64]", macs[0] +
		" wan [198.18.0.5/30]", "forward 1", "198.18.9.9 by wan"}
	for _, time := range []string{"first", "second"} {
		if err := a.Invoke(ctx, agent.VerbArrange, l, nil); err != nil {
			t.Fatalf("%s time: %v", time, err)
		}

		var got []string
		must(t, a.Invoke(ctx, "test/look", nil, &got))
		expect.Same(t, fmt.Sprintf("node, %s time", time), want, got)
	}

	swapped := agent.Layout{Node: "other", Names: map[string]string{macs[0]: "lan", macs[1]: "wan"}}
	must(t, a.Invoke(ctx, agent.VerbArrange, swapped, nil))
	var got []string
	must(t, a.Invoke(ctx, "test/look", nil, &got))
	if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, macs[0]+" lan ") }) ||
		got[0] != "node other" {
		t.Errorf("names swapped: got %q, want node other and %s as lan", got, macs[0])
	}
}

func TestArrangeRefuses(t *testing.T) {
	t.Parallel()
	a, macs := aloneNode(t)
	for want, l := range map[string]agent.Layout{
		"name port dmz: device with hardware address 02:00:00:00:00:99 does " +
			"not exist": {Names: map[string]string{"02:00:00:00:00:99": "dmz"}},
		"name port lan: address here: invalid MAC address": {Names: map[string]string{"here": "lan"}},
		"rename to lo port0.aside":                         {Names: map[string]string{macs[0]: "lo"}},
		"set up lan: device lan does not exist":            {Ports: []string{"lan"}},
		"write kernel setting net.none":                    {Sysctls: [][2]string{{"net.none", "1"}}},
	} {
		l.Node = "router"
		err := a.Invoke(labtest.Context(t), agent.VerbArrange, l, nil)
		expect.Error(t, "an arrangement", err, want)
	}
}
