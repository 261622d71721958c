// Command chokepoint measures the real forwarding performance of a router and finds what limits it. This
// package parses the command line, calls package app, prints the results and converts errors to messages
// and exit codes. It does not measure, compute or lay out anything itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm/guest"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

func main() {
	host.Settle()
	if code, isGuest := guest.Serve(os.Args, agent.LineRole); isGuest {
		os.Exit(code)
	}

	if code, isRole := serveRole(os.Args[1:]); isRole {
		os.Exit(code)
	}

	ctx, hard, release := interrupts(context.Background())
	p := newProgram(hard)
	code := p.execute(ctx, os.Args[1:])
	release()
	os.Exit(code)
}

// serveRole runs a helper role of a lab if args name one. The program starts copies of itself in these roles.
func serveRole(args []string) (code int, isRole bool) {
	isRole, err := registry.Serve(args)
	if err == nil {
		return codeOK, isRole
	}

	fmt.Fprintf(os.Stderr, "chokepoint %s: %v\n", args[0], err)
	if errors.Is(err, registry.ErrRole) {
		return codeUsage, isRole
	}

	return codeError, isRole
}
