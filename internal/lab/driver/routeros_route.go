package driver

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// maxRoutes is the maximum number of active routes to fetch. A router with a full Internet routing table has
// more routes.
const maxRoutes = 10_000

// Ways implements Routing. It uses the active routes in table main.
func (RouterOS) Ways(ctx context.Context, h host.Host, to []netip.Addr) (ways []kernel.Way, own []netip.Addr,
	err error) {
	var routes []item
	for _, menu := range []string{"/ip", "/ipv6"} {
		need := slices.ContainsFunc(to, func(a netip.Addr) bool { return a.Unmap().Is4() == (menu == "/ip") })
		var addresses []item
		addresses, err = items(ctx, h, menu+"/address/print as-value")
		own = append(own, parseOwn(addresses)...)
		if err == nil && need {
			var found []item
			found, err = activeRoutes(ctx, h, menu+"/route")
			routes = append(routes, found...)
		}

		if err != nil {
			return nil, nil, failed(h, "look up routes", err)
		}
	}
	return parseROSWays(routes, to), own, nil
}

func activeRoutes(ctx context.Context, h host.Host, menu string) ([]item, error) {
	n, err := count(ctx, h, "["+menu+"/find where active]")
	if err == nil && n > maxRoutes {
		err = check.WithHint(lacks("it has %d routes, which are not read", n),
			"name the router's devices: --router-lan, --router-wan")
	}

	if err != nil {
		return nil, err
	}

	return items(ctx, h, menu+"/print detail as-value where active")
}

// parseROSWays finds the route to each address. This is the route with the longest prefix. Of several such
// routes, it is the one with the smallest distance. The immediate gateway of a route is
// "198.51.100.1%ether1", or "ether1" for a connected network.
func parseROSWays(routes []item, to []netip.Addr) []kernel.Way {
	ways := make([]kernel.Way, len(to))
	for at, a := range to {
		best := -1
		nearest := uint64(0)
		for _, r := range routes {
			table := r["routing-table"]
			if table != "" && table != "main" {
				continue
			}

			text, _, _ := strings.Cut(r["dst-address"], "%") // drop the zone of a link-local network
			p, err := netip.ParsePrefix(text)
			distance, _ := r.number("distance")
			if err != nil || !p.Contains(a.Unmap()) || p.Bits() < best ||
				p.Bits() == best && distance >= nearest {
				continue
			}

			best = p.Bits()
			nearest = distance
			ways[at] = parseGateway(r["immediate-gw"])
			source, _, _ := strings.Cut(r["local-address"], "%")
			if ways[at].Source, err = netip.ParseAddr(source); err != nil {
				ways[at].Source, _ = netip.ParseAddr(r["pref-src"]) // invalid if missing, as is usual
			}
		}
	}
	return ways
}

func parseGateway(text string) (w kernel.Way) {
	text, _, _ = strings.Cut(text, ",") // take the first of several equal gateways
	text, _, _ = strings.Cut(text, "@") // drop the VRF
	via, device, named := strings.Cut(text, "%")
	if !named {
		via, device = "", text
	}

	w.Device = check.Plain(device)
	w.Via, _ = netip.ParseAddr(via) // invalid for a connected network
	if a, err := netip.ParseAddr(w.Device); err == nil {
		return kernel.Way{Via: a}
	}

	return w
}

// parseOwn returns those addresses of the router that other machines can reach.
func parseOwn(addresses []item) (own []netip.Addr) {
	for _, i := range addresses {
		p, err := netip.ParsePrefix(i["address"])
		if err == nil && p.Addr().IsGlobalUnicast() && !i.yes("disabled") && !i.yes("invalid") &&
			!slices.Contains(own, p.Addr()) {
			own = append(own, p.Addr())
		}
	}
	return own
}
