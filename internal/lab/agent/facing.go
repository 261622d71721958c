package agent

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// Facing asks a node for its routes to the addresses in To.
type Facing struct {
	To []netip.Addr `json:"to"`
}

// Faced is the node's reply to Facing: its routes in the order of Facing.To, and its own addresses except
// loopback and link-local ones. If there is no route to an address, its Way is empty.
type Faced struct {
	Ways []kernel.Way `json:"ways"`
	Own  []netip.Addr `json:"own"`
	// Machine identifies the node's network stack by the kernel's boot_id and the network namespace. It is ""
	// if either of them is unavailable.
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

	all, err := kernel.OwnAddresses()
	for _, a := range all {
		if a.IsGlobalUnicast() {
			out.Own = append(out.Own, a)
		}
	}

	boot := host.BootID()
	space, _ := os.Readlink("/proc/self/ns/net")
	if boot != "" && space != "" {
		out.Machine = boot + " " + space
	}

	return out, err
}
