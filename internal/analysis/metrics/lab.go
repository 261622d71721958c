package metrics

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// IsVirtual reports whether the routers are guests of the tester's machine.
func IsVirtual(run *record.Run) bool {
	kind, _, _ := strings.Cut(run.Lab, ":")
	return kind == "vm"
}

// IsEmulated reports whether the routers' processors are: all guests' are, unless it was recorded that the
// machine's own processor ran them.
func IsEmulated(run *record.Run) bool {
	for _, e := range run.Environments {
		if e.Facts["guest_accel"] == "kvm" {
			return false
		}
	}
	return IsVirtual(run)
}

// SharesCores reports whether the tester and the routers share a machine.
func SharesCores(run *record.Run) bool { return run.Lab == "local" || IsVirtual(run) }

// IsPair reports whether the ends are two machines of their own, with something between that nobody
// watched.
func IsPair(run *record.Run) bool { return run.Lab == "pair" }
