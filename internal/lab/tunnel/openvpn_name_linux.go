package tunnel

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openName opens a socket's name, by which it can be connected to after the name is gone (open(2), O_PATH).
func openName(file string) (*os.File, error) {
	fd, err := unix.Open(file, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the name of a socket: %w", err)
	}
	return os.NewFile(uintptr(fd), file), nil
}
