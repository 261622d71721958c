package lab

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestLayoutsOfAllTopologies holds every address and route of every node, and the addresses between which
// each slot's traffic runs.
func TestLayoutsOfAllTopologies(t *testing.T) {
	for _, shape := range Topologies() {
		t.Run(shape.Name, func(t *testing.T) {
			got := describe(shape)
			file := "testdata/layout-" + shape.Name + ".golden"
			if *update {
				must(t, os.WriteFile(file, []byte(got), 0o644))
			}

			want, err := os.ReadFile(file)
			must(t, err)
			expect.Same(t, fmt.Sprintf("layout of %s", shape.Name), string(want), got)
		})
	}
}

func describe(shape record.Topology) string {
	var b strings.Builder
	for _, l := range layouts(shape) {
		fmt.Fprintf(&b, "node %s", l.Node)
		if l.Router {
			b.WriteString(", router")
		}

		fmt.Fprintf(&b, ", ports %s\n", strings.Join(l.Ports, " "))
		for _, a := range l.Addresses {
			fmt.Fprintf(&b, "  address %s dev %s\n", a.Address, a.Port)
		}

		for _, r := range l.Routes {
			fmt.Fprintf(&b, "  route %s via %s dev %s\n", r.To, r.Via, r.Dev)
		}

		for _, s := range l.Sysctls {
			fmt.Fprintf(&b, "  sysctl %s=%s\n", s[0], s[1])
		}
	}

	l := &Lab{Topology: shape, plan: addressPlan{shape}}
	for _, slot := range []int{0, 1, Slots - 1} {
		for ip := 4; ip <= 6; ip += 2 {
			fmt.Fprintf(&b, "slot %d, IPv%d: %s to %s\n", slot, ip, l.Address(slot, 0, ip),
				l.Address(slot, 1, ip))
		}
	}

	fmt.Fprintf(&b, "tunnel outside: %s to %s\n", l.plan.outer(0, 4), l.plan.outer(1, 4))
	forward, err := l.ForwardAddress(4)
	if err != nil {
		fmt.Fprintf(&b, "port forward: %v\n", err)
	} else {
		fmt.Fprintf(&b, "port forward at %s\n", forward)
	}

	return b.String()
}

// TestAddressesAreSetAsideForBenchmarking: nothing outside of RFC 2544's and RFC 5180's blocks, and no
// address twice.
func TestAddressesAreSetAsideForBenchmarking(t *testing.T) {
	for _, shape := range Topologies() {
		seen := map[string]string{}
		for _, l := range layouts(shape) {
			for _, a := range l.Addresses {
				addr := a.Address.Addr()
				s := addr.String()
				if !strings.HasPrefix(s, "198.18.") && !strings.HasPrefix(s, "198.19.") &&
					!strings.HasPrefix(s, "2001:2:0:") {
					t.Errorf("%s: node %s has %s, want an address of 198.18.0.0/15 or 2001:2::/48",
						shape.Name, l.Node, addr)
				}

				if seen[addr.String()] != "" {
					t.Errorf("%s: nodes %s and %s both have %s", shape.Name, seen[addr.String()], l.Node,
						addr)
				}

				seen[addr.String()] = l.Node
			}
		}
	}
}
