//go:build !linux && !freebsd

package stream

import (
	"errors"
	"net"
)

// fixedCongestion is what macOS has used since 10.10, and lets nobody choose for one socket.
const fixedCongestion = "cubic"

func hasCongestion(name string) error {
	if name == fixedCongestion {
		return nil
	}
	return errors.New("a socket cannot choose it there, its streams use " + fixedCongestion)
}

func setCongestion(_ *net.TCPConn, name string) (string, error) {
	if name == "" {
		return "", nil // what it uses is not told
	}
	return name, hasCongestion(name)
}
