// Command chokepoint measures what a router really forwards, and finds what holds it back. This package
// reads the command line, calls package app, prints its results and turns its errors into messages and exit
// codes. It measures, computes and lays out nothing itself.
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

// serveRole runs one of the program's other roles, in which it starts itself again for a lab.
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
