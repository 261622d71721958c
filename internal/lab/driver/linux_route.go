package driver

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// waysScript prints, for each argument, a line with the address and then the route to it. At the end, it
// prints all addresses.
const waysScript = `for a in "$@"; do echo "to $a"; ip route get "$a" 2>/dev/null; done
echo addresses; ip addr show`

// Ways implements Routing.
func (Linux) Ways(ctx context.Context, h host.Host, to []netip.Addr) ([]kernel.Way, []netip.Addr, error) {
	return askWays(ctx, h, waysScript, to)
}

// askWays runs a script that prints routes and then, after a line "addresses", the addresses of the router.
// It returns both.
func askWays(ctx context.Context, h host.Host, script string, to []netip.Addr) ([]kernel.Way, []netip.Addr,
	error) {
	var args []string
	for _, a := range to {
		args = append(args, a.String())
	}

	out, err := ask(ctx, h, "look up routes", script, args...)
	routes, addresses, _ := strings.Cut("\n"+out, "\naddresses\n")
	return parseWays(routes, len(to)), ownAddresses(addresses), err
}

// ownAddresses parses the output of ip addr or ifconfig, which contains lines such as "inet 198.51.100.2/24
// …". It omits addresses that other machines cannot reach.
func ownAddresses(text string) (own []netip.Addr) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "inet" && words[0] != "inet6" {
			continue
		}

		a := bsdAddress(words[1])
		if a.IsGlobalUnicast() && !slices.Contains(own, a) {
			own = append(own, a)
		}
	}
	return own
}

// parseWays parses routes, each after a line "to ADDRESS". A route is the output of ip route get, such as
// "192.0.2.1 via 198.51.100.1 dev eth0 src 198.51.100.2", or that of FreeBSD's route get, with lines such as
// "gateway: 192.0.2.1" and "interface: igc0".
func parseWays(routes string, to int) []kernel.Way {
	ways := make([]kernel.Way, to)
	at := -1
	for line := range strings.Lines(routes) {
		words := strings.Fields(line)
		if len(words) == 2 && words[0] == "to" {
			at++
			continue
		}

		if at < 0 || at >= len(ways) {
			continue
		}

		for word, next := range pairs(words) {
			switch word {
			case "dev", "interface:":
				if deviceLike(next) {
					ways[at].Device = next
				}
			case "via", "gateway:":
				ways[at].Via = bsdAddress(next) // invalid for "link#2", a directly connected network
			case "src":
				ways[at].Source = bsdAddress(next)
			}
		}
	}

	return ways
}
