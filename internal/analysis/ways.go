package analysis

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Way describes the path between two machines for one IP version.
type Way struct {
	IP   int    `json:"ip"`
	Near string `json:"near"` // address of the near end
	Far  string `json:"far"`  // address at which the near end reaches the far end
	// Hops is the number of routers on the path. It is absent if unknown.
	Hops    *int     `json:"hops,omitempty"`
	Routers []string `json:"routers,omitempty"` // nearest first; "?" for a router that does not answer
	// NAT lists the ends whose addresses are translated on the path: "near", "far", "near far" or "none". It
	// is absent if unknown.
	NAT string `json:"nat,omitempty"`
	MTU int    `json:"mtu,omitempty"` // largest packet that is not fragmented; absent if unknown
}

// ways returns the paths between two machines. They follow from the facts that trial/pathdiscovery stored.
func ways(run *record.Run) []Way {
	var out []Way
	for _, e := range run.Environments {
		for _, ip := range []int{4, 6} {
			fact := func(name string) string { return e.Facts[fmt.Sprintf("path_ipv%d:%s", ip, name)] }
			w := Way{
				IP:      ip,
				Near:    fact("near"),
				Far:     fact("far"),
				NAT:     fact("nat"),
				Routers: strings.Fields(fact("route")),
			}
			if w.Near == "" || w.Far == "" {
				continue
			}

			w.MTU, _ = strconv.Atoi(fact("mtu"))
			if n, err := strconv.Atoi(fact("routers")); err == nil {
				w.Hops = &n
			}

			out = append(out, w)
		}
	}
	return out
}

// Between describes the path between the ends, such as "1 router (192.168.1.1), NAT, MTU 1500".
func (w Way) Between() string {
	parts := []string{w.Passes()}
	if len(w.Routers) > 0 {
		parts[0] += " (" + strings.Join(w.Routers, ", ") + ")"
	}

	nat := w.Translates()
	if nat != "" {
		parts = append(parts, nat)
	}

	if w.MTU > 0 {
		parts = append(parts, "MTU "+strconv.Itoa(w.MTU))
	}

	return strings.Join(parts, ", ")
}

// Passes describes the number of routers on the path.
func (w Way) Passes() string {
	switch {
	case w.Hops == nil:
		return "routers not known"
	case *w.Hops == 0:
		return "no router"
	}
	return unit.Count(*w.Hops, "router")
}

// Translates describes where addresses are translated on the path. It returns "" if that is unknown.
func (w Way) Translates() string {
	switch w.NAT {
	case "":
		return ""
	case "none":
		return "no NAT"
	case "far":
		return "NAT before the far end"
	case "near far":
		return "NAT at both ends"
	}
	return "NAT"
}

// Words describes the path from end to end in one line.
func (w Way) Words() string { return w.Near + " → " + w.Between() + " → " + w.Far }
