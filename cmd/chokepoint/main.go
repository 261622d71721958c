// Command chokepoint measures what a router really forwards, and finds what holds it back. This package
// reads the command line, joins the stages and turns their errors into messages and exit codes; it
// measures, computes and lays out nothing itself.
package main

import (
	"context"
	"os"
)

func main() {
	if code, isGuest := serveGuest(os.Args); isGuest {
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
