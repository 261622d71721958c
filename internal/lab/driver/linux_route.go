package driver

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// waysScript prints the routes to its arguments, each behind a line that names it, and all addresses.
const waysScript = `for a in "$@"; do echo "to $a"; ip route get "$a" 2>/dev/null; done
echo addresses; ip addr show`

// Ways implements Routing.
func (Linux) Ways(ctx context.Context, h host.Host, to []netip.Addr) ([]kernel.Way, []netip.Addr, error) {
	var args []string
	for _, a := range to {
		args = append(args, a.String())
	}
	out, err := shell(ctx, h, "", waysScript, args...)
	if err != nil {
		return nil, nil, fmt.Errorf("ask %s for its ways: %w", h.Name(), err)
	}
	ways, own := parseWays(out, to)
	return ways, own, nil
}

// parseWays reads what ip route get says, "192.0.2.1 via 198.51.100.1 dev eth0 src 198.51.100.2", and the
// addresses of ip addr, "inet 198.51.100.2/24 scope global eth0".
func parseWays(text string, to []netip.Addr) (ways []kernel.Way, own []netip.Addr) {
	ways = make([]kernel.Way, len(to))
	routes, addresses, _ := strings.Cut("\n"+text, "\naddresses\n")
	at := -1
	for line := range strings.Lines(routes) {
		words := strings.Fields(line)
		if len(words) == 2 && words[0] == "to" {
			at++
			continue
		}
		for i := 0; i+1 < len(words) && at >= 0 && at < len(ways); i++ {
			a, _ := netip.ParseAddr(words[i+1]) // only of via and src
			switch words[i] {
			case "dev":
				ways[at].Device = words[i+1]
			case "via":
				ways[at].Via = a
			case "src":
				ways[at].Source = a
			}
		}
	}
	for line := range strings.Lines(addresses) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "inet" && words[0] != "inet6" {
			continue
		}
		p, err := netip.ParsePrefix(words[1])
		if err == nil && p.Addr().IsGlobalUnicast() && !slices.Contains(own, p.Addr()) {
			own = append(own, p.Addr())
		}
	}
	return ways, own
}
