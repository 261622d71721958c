package knob

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// TestSysctlLeavesTheMachineAlone: plans are written by others and run as root. What belongs to the whole
// machine is neither read nor written through a node that is a namespace of it, nor anything on the machine
// itself. The value is the one that holds, so that a failure does no harm.
func TestSysctlLeavesTheMachineAlone(t *testing.T) {
	is, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		t.Fatal(err)
	}

	k := Sysctl()
	ctx := context.Background()
	pattern := State("kernel.core_pattern=" + strings.TrimSpace(string(is)))
	namespace := Place{Node: "router", Sysctls: OfNamespace}
	machine := Place{Node: "server", OwnKernel: true}
	owners := func(names Permission) Place { return Place{Node: "server", OwnKernel: true, Sysctls: names} }
	for _, tt := range []struct {
		name    string
		place   Place
		state   State
		refused bool
	}{
		{"in a namespace", namespace, pattern, true},
		{"by another spelling", namespace, "net/../kernel/core_pattern=x", true},
		{"of the network, on the machine itself", Place{Node: "host", Lab: "/run/x"},
			"net.ipv4.ip_default_ttl=64", true},
		{"of the network, on the machine, whose lab is not named", Place{Node: "host"},
			"net.ipv4.ip_default_ttl=64", true},
		{"on the lab's own guest", Place{Node: "router", OwnKernel: true, Sysctls: OfGuest}, pattern, false},
		{"of the network, in a namespace", namespace, "net.ipv4.conf.all.rp_filter=0", false},
		{"on a real machine", machine, pattern, true},
		{"on a real machine, with slashes", machine, "kernel/core_pattern=|/tmp/x", true},
		{"that opens a real machine to others", machine, "net.ipv4.conf.all.route_localnet=1", true},
		{"that a real machine's owner allows", owners("vm.swappiness,kernel.core_pattern"), pattern, false},
		{"beside the one that the owner allows", owners("kernel.core_pattern"), "kernel.core_pipe_limit=0", true},
		{"of packets, on a real machine", machine, "net.ipv4.ip_default_ttl=64", false},
		{"the same with slashes", machine, "net/ipv4/ip_default_ttl=64", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := k.Read(ctx, tt.place, tt.state)
			refused := err != nil
			if refused != tt.refused {
				t.Errorf("read: got %v, want refused: %v", err, tt.refused)
			}

			if !tt.refused {
				return
			}

			if err := k.Apply(ctx, tt.place, tt.state); err == nil {
				t.Error("apply: got no error, want a refusal")
			}

			a := k.Check(ctx, tt.place, tt.state)
			if a.State != check.No {
				t.Errorf("check: got %+v, want no", a)
			}
		})
	}

	if _, err := k.Read(ctx, Place{Node: "router"}, pattern); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("got %v, want that it matches %v", err, host.ErrUnsupported)
	}
}
