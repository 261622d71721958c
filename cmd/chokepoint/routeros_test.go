package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/routeros"
)

// playRouterOS is "routeros ADDRESS DIR", see routeros.Play, until it is told to end.
func playRouterOS() {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	if err := routeros.Play(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "routeros:", err)
		os.Exit(1)
	}
}
