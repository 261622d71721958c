// Command portable is an agent on Linux with the node sides of an agent on other systems, to try these over
// ssh without a machine with FreeBSD or macOS.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
)

func main() {
	host.Settle()
	if len(os.Args) != 2 || os.Args[1] == "version" {
		fmt.Println("chokepoint's portable sides")
		return
	}

	p := node.Parts()
	const nowhere = "/chokepoint-has-no-proc" // there nothing is readable
	p.Knobs, p.Handlers = nil, watch.Handlers(probe.Root{Proc: nowhere, Sys: nowhere, Dev: nowhere})
	for verb := range p.Isolated {
		if strings.HasPrefix(verb, host.FamilyTraffic) {
			p.Handlers[verb] = node.PortableOnly
		}
	}

	p.Isolated = nil // no verb has its own process there
	p.Handlers[host.Verb(host.FamilyTraffic, stream.Native{}.Name())] = stream.ServePortable
	p.Handlers[host.Verb(host.FamilyTraffic, latency.Echo{}.Name())] = latency.ServePortable
	if err := agent.Main(context.Background(), os.Args[1], node.Standard{}, p); err != nil {
		fmt.Fprintln(os.Stderr, "portable:", err)
		os.Exit(1)
	}
}
