package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Facing asks a node how it routes packets to some addresses.
type Facing struct {
	To []netip.Addr `json:"to"`
}

// Faced is a node's answer: the routes in the order asked, without a device where there is none, and the
// node's own addresses, except loopback and link-local ones.
type Faced struct {
	Ways []kernel.Way `json:"ways"`
	Own  []netip.Addr `json:"own"`
	// Machine identifies the node's network stack by the kernel's boot_id and the namespace; "" where the
	// system has neither.
	Machine string `json:"machine,omitempty"`
}

func facing(_ context.Context, q Facing) (out Faced, err error) {
	if len(q.To) > maxSizes {
		return out, fmt.Errorf("find the ways to %d addresses: at most %d at once", len(q.To), maxSizes)
	}

	for _, to := range q.To {
		w, err := kernel.WayTo(to)
		if err != nil {
			w = kernel.Way{}
		}

		out.Ways = append(out.Ways, w)
	}

	all, err := net.InterfaceAddrs()
	if err != nil {
		return out, fmt.Errorf("list the machine's addresses: %w", err)
	}

	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		at := p.Addr().Unmap()
		if err == nil && at.IsGlobalUnicast() && !slices.Contains(out.Own, at) {
			out.Own = append(out.Own, at)
		}
	}

	out.Machine = machineOf()
	return out, nil
}

func machineOf() string {
	boot := host.BootID()
	space, _ := os.Readlink("/proc/self/ns/net")
	if boot == "" || space == "" {
		return ""
	}

	return boot + " " + space
}
