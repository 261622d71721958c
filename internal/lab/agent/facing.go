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

// Facing asks a node how packets to some addresses leave it.
type Facing struct {
	To []netip.Addr `json:"to"`
}

// Faced is a node's answer: the ways in the order asked, one without a device where no route leads there,
// and the node's own addresses, without those of its loopback device and of one link alone.
type Faced struct {
	Ways []kernel.Way `json:"ways"`
	Own  []netip.Addr `json:"own"`
	// Machine tells the node's network stack from any other: by the kernel's boot_id and the namespace; ""
	// where the system has neither.
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
