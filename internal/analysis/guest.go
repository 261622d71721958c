package analysis

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// isVirtual reports whether the routers are guests of the tester's machine.
func isVirtual(run *record.Run) bool {
	kind, _, _ := strings.Cut(run.Lab, ":")
	return kind == "vm"
}

// isEmulated reports whether the routers' processors are: all guests' are, unless it was recorded that the
// machine's own processor ran them.
func isEmulated(run *record.Run) bool {
	for _, e := range run.Environments {
		if e.Facts["guest_accel"] == "kvm" {
			return false
		}
	}
	return isVirtual(run)
}

// sharesCores reports whether the tester and the routers share a machine.
func sharesCores(run *record.Run) bool { return run.Lab == "local" || isVirtual(run) }

// actsAsRouter is how a plan's description speaks of lab local.
const actsAsRouter = "this machine acting as a router"

// description is the plan's, with the subject that the run had.
func description(run *record.Run) string {
	text := run.Design.Description
	if !isVirtual(run) && !isPair(run) || len(text) < len(actsAsRouter) ||
		!strings.EqualFold(text[:len(actsAsRouter)], actsAsRouter) {
		return text
	}
	subject := "A virtual router"
	switch {
	case isPair(run):
		subject = "What lies between two machines"
	case isEmulated(run):
		subject = "An emulated router"
	}
	rest := text[len(actsAsRouter):]
	if isPair(run) {
		rest = strings.Replace(rest, "between two others", "between them", 1)
	}
	return subject + rest
}
