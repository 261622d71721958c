package main

import (
	"fmt"
	"os"
	"os/signal"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm/guest"
)

// serveGuest lives the life of a program that a guest's kernel starts by its name: the first process, or
// modprobe.
func serveGuest(argv []string) (code int, isGuest bool) {
	switch guest.RoleOf(argv[0], os.Getpid()) {
	case guest.InitRole:
		signals := make(chan os.Signal, 64)
		signal.Notify(signals, guest.Signals()...)
		fmt.Fprintf(os.Stderr, "chokepoint: error: %v\n", guest.Init(signals, []string{agent.LineRole}))
		return codeError, true
	case guest.ModprobeRole:
		if !guest.Modprobe(argv[1:], os.Stderr) {
			return codeError, true
		}
		return codeOK, true
	}
	return codeOK, false
}
