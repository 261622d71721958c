//go:build !linux

package guest

import (
	"fmt"
	"os"
	"runtime"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Init returns an error, because guests that run this operating system have their own init.
func Init(<-chan os.Signal, []string) error {
	return fmt.Errorf("be a guest's first process: %w on %s", host.ErrUnsupported, runtime.GOOS)
}

// Modprobe returns false, because it is not implemented on this operating system.
func Modprobe([]string) bool {
	fmt.Fprintf(os.Stderr, "modprobe: error: load modules: %v on %s\n", host.ErrUnsupported, runtime.GOOS)
	return false
}
